package store

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/parts"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Parts is what a store knows of its values in parts: which there are, which are being
// uploaded, and what may be put of them. A store takes any key and value; that a client puts parts and
// heads only as they fit is for its caller to see to, by Begin, Part and Head. What is left without
// a head, however that came, the store removes by itself.
type Parts = parts.Registry

// PartsConfig bounds values in parts.
type PartsConfig = parts.Config

// Why a part or a head is refused.
var (
	ErrNoUpload = parts.ErrNoUpload
	ErrParts    = parts.ErrParts
)

const (
	// collectEvery is how often it is looked for parts that have to go, and collectMost how
	// many uploads at a time: others wait for the next look.
	collectEvery = time.Second
	collectMost  = 64
	// cacheLooks is after how many of them a cache looks whether its values are whole.
	cacheLooks = 5
)

// IsPart says whether a key is that of a part, which is shown to nobody.
func IsPart(key []byte) bool { return layout.IsPartKey(key) }

// WholeLen is the length of the value that stands for value, in bytes: of one in parts, whose head it
// is, that of all of it.
func WholeLen(value []byte) int64 { return layout.WholeLen(value) }

// Parts returns what the store knows of its values in parts.
func (s *Store) Parts() *Parts { return s.parts }

// A collector removes parts that nobody needs. It is its goroutine's alone.
type collector struct {
	*Store
	unchecked []layout.UploadID // of a cache, values that this pass has not looked at
	most      int               // items of a cache in one look
}

// run removes parts that nobody needs, until the store ends. After a start it looks
// at the parts that there are first.
func (c *collector) run() {
	if err := c.lookForParts(c.life.Ctx); err != nil && !c.life.Over() {
		c.fence.Report(slog.LevelWarn, "look for parts of values: it will be tried again", "err", err)
	}
	looks, led := 0, make(map[*member]bool)
	c.life.Every(collectEvery, func() {
		if c.groups.gained(led) {
			c.parts.LookAgain() // what had to go meanwhile was for others
		}
		err := c.lookForParts(c.life.Ctx)
		if looks++; !c.disk.Durable() && looks%cacheLooks == 0 {
			err = errors.Join(err, c.checkCached(c.life.Ctx))
		}
		if err == nil {
			err = c.removeParts(c.life.Ctx)
		}
		if err != nil && !c.life.Over() && !errors.Is(err, ErrOverloaded) && !errors.Is(err, ErrNotLeader) {
			c.fence.Report(slog.LevelError, "removal of parts of values", "err", err)
		}
	})
}

// lookForParts goes through all parts that the store has, if that is needed, and tells the
// registry of them. A record of an upload stands before its parts, in the order of the keys.
func (c *collector) lookForParts(ctx context.Context) error {
	if !c.disk.Durable() || !c.parts.Look() {
		return nil
	}
	req := ScanRequest{Prefix: layout.PartPrefix(), KeysOnly: true, Parts: true}
	for {
		page, err := c.Scan(ctx, req)
		if err != nil {
			return err
		}
		for _, e := range page.Entries {
			if _, n, ok := layout.ParsePartKey(e.Key); !ok || n != layout.UploadPart {
				c.parts.FoundPart(e.Shard, e.Key)
			} else if err := c.foundUpload(ctx, e.Shard, e.Key); err != nil {
				return err
			}
		}
		if req.After = page.Next; !page.More {
			c.parts.EndLook()
			return nil
		}
	}
}

// foundUpload tells the registry of an upload whose record is there.
func (c *collector) foundUpload(ctx context.Context, shard uint16, key []byte) error {
	record, err := c.Get(ctx, shard, key, nil)
	if errors.Is(err, ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	id, of, fresh := c.parts.Found(shard, key, record.Data)
	if !fresh {
		return nil
	}
	value, err := c.headOf(ctx, shard, of.Key)
	if err != nil {
		return err
	}
	c.parts.Settle(id, value)
	return nil
}

// headOf returns the head under a key; nil: there is none.
func (c *collector) headOf(ctx context.Context, shard uint16, key []byte) ([]byte, error) {
	// The length first: what is no head may be large.
	info, err := c.Stat(ctx, shard, key)
	if errors.Is(err, ErrNotFound) || err == nil && info.ValLen > layout.MaxHeadLen {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	value, err := c.Get(ctx, shard, key, nil)
	if errors.Is(err, ErrNotFound) || err == nil && !layout.IsHead(value.Data) {
		return nil, nil
	}
	return value.Data, err
}

// removeParts removes strays, and what uploads have left whose time is over.
func (c *collector) removeParts(ctx context.Context) error {
	strays := c.parts.Strays()
	late := make(map[*member]bool) // groups that do not get on
	for i, one := range strays {
		m := c.groups.of[one.Shard].Load()
		reign, err := ReignOf(c.Store, one.Shard)
		if err != nil {
			continue
		}
		if late[m] {
			c.parts.Back(strays[i : i+1])
			continue
		}
		switch err := c.remove(ctx, one.Shard, one.Key, one.Version, reign); {
		case m != nil && stuck(ctx, err):
			late[m] = true
			c.parts.Back(strays[i : i+1])
		case err != nil:
			c.parts.Back(strays[i:])
			return err
		}
	}
	for {
		due := c.parts.Due(collectMost, c.disk.Admits(false) != nil, c.cfg.predecessorWait(), c.groups.orders)
		for _, u := range due {
			if m := c.groups.of[u.Shard].Load(); late[m] {
				continue
			} else if err := c.removeUpload(ctx, u); m != nil && stuck(ctx, err) {
				late[m] = true
			} else if err != nil {
				return err
			}
		}
		if len(due) < collectMost || len(late) > 0 {
			return nil
		}
	}
}

// removeUpload removes the parts of an upload, and its record.
func (c *collector) removeUpload(ctx context.Context, u parts.Doomed) error {
	// Its head may have passed at another replica that led before this reign; in it this store lets none pass.
	reign, err := ReignOf(c.Store, u.Shard)
	if err != nil || !c.parts.Going(u.ID) {
		return nil
	}
	for n := u.Parts; n >= layout.UploadPart; n-- { // the record last
		if err := c.remove(ctx, u.Shard, u.Keys.Key(n), 0, reign); err != nil {
			return err
		}
	}
	c.parts.Gone(u.ID)
	return nil
}

// stuck says whether a group of replicas does not get on with what is removed, or this store does not lead it any more: what has to go in
// other shards does not wait for that.
func stuck(ctx context.Context, err error) bool {
	return errors.Is(err, ErrNotLeader) || errors.Is(err, ErrOutcomeUnknown) || errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
}

// removePatience is how long one removal is waited for.
const removePatience = 2 * time.Second

// remove deletes a key, if it has the version or that is 0, in a reign of the shard's group.
func (c *collector) remove(ctx context.Context, shard uint16, key []byte, v layout.Version, reign uint64) error {
	w := &Write{Op: Op{Shard: shard, Key: bytes.Clone(key), Kind: OpDelete}, Reign: reign}
	if v != 0 {
		w.If, w.IfVersion = CondVersion, v
	}
	if reign != 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, removePatience)
		defer cancel()
	}
	err := c.Do(ctx, w)
	if errors.Is(err, ErrCondition) {
		return nil
	}
	return err
}

// checkMost is how many items of a cache are looked at in one look. Whatever the cache has, a look takes some
// milliseconds; where there are more the next one goes on.
const checkMost = 16 << 10

// checkCached looks whether the values in parts of a cache are whole, a part of them at a time.
// One that has lost a part is of no use, and neither is its head.
func (c *collector) checkCached(ctx context.Context) error {
	if len(c.unchecked) == 0 {
		c.unchecked = c.parts.Live()
	}
	for looked := 0; len(c.unchecked) > 0 && looked < c.most; {
		v, ok := c.parts.Value(c.unchecked[0])
		if ok {
			looked += 1 + v.Parts
			if err := c.checkWhole(ctx, v); err != nil {
				return err
			}
		}
		c.unchecked = c.unchecked[1:]
	}
	return nil
}

// checkWhole removes the head of a value of which a part is gone.
func (c *collector) checkWhole(ctx context.Context, v parts.Value) error {
	item, err := c.Get(ctx, v.Shard, v.Key, nil)
	h, bad := layout.ParseHead(item.Data)
	switch {
	case errors.Is(err, ErrNotFound), err == nil && (bad != nil || h.ID != v.ID):
		c.parts.Lost(v.ID)
		return nil
	case err != nil:
		return err
	}
	for n := 1; n <= v.Parts; n++ {
		if _, err = c.Stat(ctx, v.Shard, v.Keys.Key(n)); errors.Is(err, ErrNotFound) {
			return c.remove(ctx, v.Shard, v.Key, item.Version, 0)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// HasParts says whether a store has the parts of a head that the registry lets pass; if not
// the error is ErrParts. It may read them all.
func HasParts(ctx context.Context, s *Store, shard uint16, list []parts.Part) error {
	for i, p := range list {
		info, err := s.Stat(ctx, shard, p.Key)
		if err == nil && info.ValLen != p.Length {
			err = base.ErrNotFound
		}
		if err == nil && p.Read {
			var v Value
			if v, err = s.Get(ctx, shard, p.Key, nil); err == nil && xxh3.Hash(v.Data) != p.Sum {
				err = base.ErrNotFound
			}
		}
		switch {
		case errors.Is(err, ErrNotFound):
			return parts.Missing(i + 1)
		case err != nil:
			return err
		}
	}
	return nil
}
