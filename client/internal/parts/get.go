// Package parts puts and gets values that are larger than one item can be: as ordinary
// values under keys of their own, and a head under the key (layout.Head).
//
//	Put ─▶ the record of the upload ─▶ parts, a few at a time ─▶ the head: takes effect here
//	Get ─▶ the head, that was got already ─▶ parts, a few at a time, each compared with the head
//
// The parts of an upload are under keys that nobody else uses, ever, so what is read there and has the sum of the
// head is of that value, whenever it was read. So a get takes effect where its head was read,
// and all of it is of that version.
package parts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/read"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

const (
	// atOnce is how many parts are on their way at a time.
	atOnce = 3
	// tries is how often a get begins with a newer head because parts of the one that it had
	// were gone, and sameTries how often with the same one.
	tries     = 16
	sameTries = 3
	// rest is how long it waits before it looks for the same parts again.
	rest = 50 * time.Millisecond
)

// A Query is what is asked of a value in parts.
type Query struct {
	Off, N int64 // bytes of the value wanted; N < 0: to the end
	Dst    []byte
	Head   []byte
	Info   base.Info // of the head
}

// errGone: a part is not there, or is not what the head says.
var errGone = errors.New("a part of the value is not there")

// Get appends the wanted bytes to q.Dst. What it returns has the length of the whole value
// in its Info. It fails as read.Get does.
func Get(ctx context.Context, f *route.Router, op string, key []byte, q Query) (Query, error) {
	from := len(q.Dst)
	var a again
	for {
		h, err := layout.ParseHead(q.Head)
		if err != nil {
			return q, f.Fail(op, key, base.Because(base.ErrCorrupt, err))
		}
		lo, hi, err := span(q.Off, q.N, h.Total)
		if err != nil {
			return q, f.Fail(op, key, err)
		}
		q.Info.Size = h.Total
		q.Dst = slices.Grow(q.Dst[:from], int(hi-lo))[:from+int(hi-lo)]
		v, err := newValue(ctx, f, op, key, h)
		if err == nil {
			err = v.each(lo, hi, func(n int, off int64, length int) error {
				// Each part goes to where it stays.
				begin, _ := v.head.Part(n)
				at := from + int(begin+off-lo)
				return v.part(n, off, q.Dst[at:at:at+length], length)
			})
		}
		if err == nil {
			return q, nil
		}
		next, err := a.look(ctx, f, op, key, h, err)
		if err != nil {
			return q, err
		}
		if q.Info = next.Info; next.Head == nil { // it is in parts no more
			lo, hi, err := span(q.Off, q.N, int64(len(next.Dst)))
			if err != nil {
				return q, f.Fail(op, key, err)
			}
			q.Dst = append(q.Dst[:from], next.Dst[lo:hi]...)
			return q, nil
		}
		q.Head = next.Head
	}
}

// Stream writes a value to w, part by part, in order. It fails as Get does, with what w says, and with
// base.ErrReplaced if parts of the value are gone when some have been written already.
func Stream(ctx context.Context, f *route.Router, op string, key []byte, q Query, w io.Writer) (base.Info, error) {
	var a again
	for {
		h, err := layout.ParseHead(q.Head)
		if err != nil {
			return q.Info, f.Fail(op, key, base.Because(base.ErrCorrupt, err))
		}
		q.Info.Size = h.Total
		v, err := newValue(ctx, f, op, key, h)
		written := false
		if err == nil {
			written, err = v.write(w)
		}
		if err == nil {
			return q.Info, nil
		}
		if written {
			if errors.Is(err, errGone) {
				err = f.Fail(op, key, fmt.Errorf("%w: %w", base.ErrReplaced, err))
			}
			return q.Info, err
		}
		next, err := a.look(ctx, f, op, key, h, err)
		if err != nil {
			return q.Info, err
		}
		if q.Info, q.Head = next.Info, next.Head; next.Head == nil {
			_, err := w.Write(next.Dst)
			return q.Info, err
		}
	}
}

// span is which bytes are wanted of a value of size bytes.
func span(off, n, size int64) (lo, hi int64, err error) {
	if off > size {
		return 0, 0, fmt.Errorf("%w: offset %d in a value of %d bytes", base.ErrRange, off, size)
	}
	if n < 0 || n > size-off {
		return off, size, nil
	}
	return off, off + n, nil
}

// An again is how often a get has begun again.
type again struct{ all, same int }

// look reads the value of the key anew because a get of its parts has failed with err. It
// returns an error if that will not help.
func (a *again) look(ctx context.Context, f *route.Router, op string, key []byte, h layout.Head, err error) (read.Query, error) {
	next := read.Query{N: -1, Dst: []byte{}}
	if !errors.Is(err, errGone) {
		return next, err
	}
	if a.all++; a.all >= tries {
		return next, f.Fail(op, key, base.Because(base.ErrUnavailable, fmt.Errorf("the value was replaced %d times while it was read: %w", tries, err)))
	}
	if err := read.Get(ctx, f, op, key, &next); err != nil {
		return next, err
	}
	if newer, bad := layout.ParseHead(next.Head); bad != nil || newer.ID != h.ID {
		a.same = 0
		return next, nil
	}
	if a.same++; a.same < sameTries {
		t := time.NewTimer(rest)
		defer t.Stop()
		select {
		case <-t.C:
			return next, nil
		case <-ctx.Done():
			return next, f.Fail(op, key, base.AsTimeout(ctx.Err()))
		}
	}
	if isCache(f, key) {
		return next, base.ErrNotFound // a part was evicted, and so the value
	}
	return next, f.Fail(op, key, base.Because(base.ErrCorrupt, err))
}

// isCache says whether the server of a key may lose keys.
func isCache(f *route.Router, key []byte) bool {
	p, err := f.Owner(key)
	if err != nil {
		return false
	}
	s := p.Current()
	return s != nil && s.Welcome.Flags&wire.WelcomeCache != 0
}

// A value is one in parts, of one version.
type value struct {
	ctx  context.Context
	f    *route.Router
	op   string
	head layout.Head
	keys layout.PartKeys
}

func newValue(ctx context.Context, f *route.Router, op string, key []byte, h layout.Head) (*value, error) {
	shards, _, err := bounds(ctx, f, op, key)
	if err != nil {
		return nil, err
	}
	keys, err := keysOf(key, h.ID, shards)
	if err != nil {
		return nil, f.Fail(op, key, err)
	}
	return &value{ctx: ctx, f: f, op: op, head: h, keys: keys}, nil
}

// keysOf makes the keys of the parts of an upload.
func keysOf(key []byte, id layout.UploadID, shards int) (layout.PartKeys, error) {
	shard := cluster.ShardOf(key, shards)
	keys, ok := layout.NewPartKeys(id, func(part []byte) bool { return cluster.ShardOf(part, shards) == shard })
	if !ok {
		return keys, fmt.Errorf("%w: no part has a key in shard %d of %d", base.ErrServer, shard, shards)
	}
	return keys, nil
}

// bounds returns how many shards the server of a key has, and how long values may be.
func bounds(ctx context.Context, f *route.Router, op string, key []byte) (shards int, most int64, err error) {
	var way route.Reroute
	defer way.End()
	for {
		p, err := f.Owner(key)
		if err != nil {
			return 0, 0, f.Fail(op, key, err)
		}
		l, reach := p.Begin(ctx), p.Session
		if p.Led() { // any replica knows
			p.Replica.Hurry(&l, way.PatienceAt(p))
			reach = p.Replica.Reach
		}
		s, err := reach(&l)
		if err == nil {
			return int(s.Welcome.Shards), int64(s.Welcome.MaxValue), nil
		}
		if !p.Led() {
			return 0, 0, p.Fail(op, key, "", err)
		}
		err = p.Replica.Fail(op, key, "", err)
		next := f.Again(ctx, &way, p, key, err)
		if next == nil {
			return 0, 0, way.Because(err)
		}
		ctx = next
	}
}

// part appends length bytes of part n, from offset off of it on, to dst, which has room for them. All of
// a part is compared with the head; of a piece the chunks are, that it is in, with the item.
func (v *value) part(n int, off int64, dst []byte, length int) error {
	_, whole := v.head.Part(n)
	w := read.Query{Off: off, N: int64(length), Dst: dst}
	err := read.Get(v.ctx, v.f, v.op, v.keys.Key(n), &w)
	switch {
	case errors.Is(err, base.ErrNotFound), errors.Is(err, base.ErrRange):
		return fmt.Errorf("%w: part %d", errGone, n)
	case err != nil:
		return err
	case len(w.Dst) != length || w.Info.Size != int64(whole) || length == whole && xxh3.Hash(w.Dst) != v.head.Sums[n-1]:
		return fmt.Errorf("%w: part %d has other bytes", errGone, n)
	}
	return nil
}

// each calls get for the pieces of parts that the bytes from lo up to hi are in, a few at a
// time, and returns the first error.
func (v *value) each(lo, hi int64, get func(n int, off int64, length int) error) error {
	if lo == hi {
		return nil
	}
	size := int64(v.head.PartLen)
	w := newWork(v.ctx)
	for n := int(lo/size) + 1; n <= int((hi-1)/size)+1; n++ {
		begin, length := v.head.Part(n)
		from, to := max(lo-begin, 0), min(hi-begin, int64(length))
		if !w.run(func() error { return get(n, from, int(to-from)) }) {
			break
		}
	}
	return w.wait()
}

// write writes the parts to w in order, while the next ones are on their way.
func (v *value) write(w io.Writer) (written bool, err error) {
	type one struct {
		buf []byte
		err error
	}
	count := v.head.Parts()
	var ahead []chan one // parts on their way, in order
	var free [][]byte
	defer func() { // nothing is left behind
		for _, c := range ahead {
			<-c
		}
	}()
	for next := 1; next <= count || len(ahead) > 0; {
		for ; next <= count && len(ahead) < atOnce; next++ {
			var buf []byte
			if k := len(free); k > 0 {
				buf, free = free[k-1], free[:k-1]
			} else {
				buf = make([]byte, min(int64(v.head.PartLen), v.head.Total))
			}
			c := make(chan one, 1)
			n := next
			_, length := v.head.Part(n)
			go func() { c <- one{buf[:length], v.part(n, 0, buf[:0:length], length)} }()
			ahead = append(ahead, c)
		}
		got := <-ahead[0]
		ahead = ahead[1:]
		if got.err != nil {
			return written, got.err
		}
		if _, err := w.Write(got.buf); err != nil {
			return true, err
		}
		written = true
		free = append(free, got.buf[:cap(got.buf)])
	}
	return written, nil
}
