package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/client"
)

// A unit is what one write of the kill test changes together: a record, the records of a
// batch, or a counter. Its writer alone changes it, and a reader may raise seen.
type unit struct {
	keys    [][]byte
	counter bool

	// acked is the newest write of each key that the server acknowledged, or that was found
	// behind a restart. next is one that was sent and not acknowledged; nil if there is
	// none. It may or may not have happened, for all keys alike.
	acked, next []state
	// version is the highest that any of the keys is known to have had.
	version uint64
	// seen is the highest sequence number that any reader got of a key. What was seen
	// must be there after a crash: visible implies durable.
	seen []atomic.Uint64
}

// A state is what a write leaves of a key. The zero state is a key that was never written.
type state struct {
	seq     uint64 // of the write
	gone    bool   // it was a delete
	version uint64 // 0: not known
	// from and to are between which the key expires by this machine's clock; zero: it does not.
	from, to time.Time
}

func (s *state) there() bool { return s.seq != 0 && !s.gone }

// passing: the key may have gone by itself.
func (s *state) passing() bool {
	return !s.from.IsZero() && !time.Now().Before(s.from.Add(-clockMost))
}

// clockMost is how far a server's time may be ahead of the wall clock after a crash, and a
// second for this machine to be slow.
const clockMost = 7 * time.Second

// killUnits are those of all writers.
func killUnits() (all [][]*unit) {
	for w := range killWriters {
		var mine []*unit
		add := func(u *unit) {
			u.acked, u.seen = make([]state, len(u.keys)), make([]atomic.Uint64, len(u.keys))
			mine = append(mine, u)
		}
		for i := range killRecords {
			add(&unit{keys: [][]byte{fmt.Appendf(nil, "writer %d key %d", w, i)}})
		}
		for g := range killGroups {
			u := new(unit)
			for i := range killGroup {
				u.keys = append(u.keys, fmt.Appendf(nil, "{writer %d group %d} key %d", w, g, i))
			}
			add(u)
		}
		for i := range killCounters {
			add(&unit{keys: [][]byte{fmt.Appendf(nil, "writer %d counter %d", w, i)}, counter: true})
		}
		all = append(all, mine)
	}
	return all
}

// plan chooses the next write.
func (u *unit) plan(rnd *rand.Rand) {
	u.next = make([]state, len(u.keys))
	seq := uint64(0)
	for i := range u.acked {
		seq = max(seq, u.acked[i].seq)
	}
	for i := range u.next {
		u.next[i].seq = seq + 1
		u.next[i].gone = !u.counter && rnd.IntN(10) == 0
	}
}

// killTTLs are the times that records of the kill test live, most of them for ever. A short
// one may be over when the next life looks, a long one is not.
var killTTLs = []time.Duration{0, 0, 0, 0, 0, 0, 50 * time.Millisecond, time.Second, time.Hour}

// send sends the planned write and notes what the reply says of it.
func (u *unit) send(ctx context.Context, c *client.Client, rnd *rand.Rand) error {
	if u.counter {
		sum, err := c.Increment(ctx, u.keys[0], 1)
		if err == nil && uint64(sum) != u.next[0].seq {
			err = fmt.Errorf("the sum is %d, want %d", sum, u.next[0].seq)
		}
		return err
	}
	var b client.Batch
	var value []byte
	ttls := make([]time.Duration, len(u.keys))
	for i, key := range u.keys {
		if u.next[i].gone {
			b.Delete(key)
			continue
		}
		ttls[i] = killTTLs[rnd.IntN(len(killTTLs))]
		value = appendRecord(value[:0], key, u.next[i].seq, killSize(rnd, len(u.keys) == 1))
		b.PutWith(key, value, client.PutOptions{TTL: ttls[i]})
	}
	sent := time.Now()
	last, err := uint64(0), error(nil)
	switch {
	case len(u.keys) > 1:
		last, err = c.WriteBatch(ctx, &b)
	case u.next[0].gone:
		_, err = c.Delete(ctx, u.keys[0])
	default:
		last, err = c.PutWith(ctx, u.keys[0], value, client.PutOptions{TTL: ttls[0]})
	}
	for i, ttl := range ttls {
		s := &u.next[i]
		if ttl != 0 {
			s.from, s.to = sent.Add(ttl), time.Now().Add(ttl)
		}
		if last != 0 {
			s.version = last - uint64(len(ttls)-1-i) // a batch has versions in a row
		}
	}
	return err
}

// killSize is the size of a value: mostly small, some that stand apart, some too large for a
// message and for a frame of the log, which are written in pieces.
func killSize(rnd *rand.Rand, alone bool) int {
	switch kind := rnd.IntN(50); {
	case kind == 0 && alone:
		return 20_000 + rnd.IntN(40_000)
	case kind == 1 && alone:
		return 270_000 + rnd.IntN(300_000)
	case kind < 8:
		return 1000 + rnd.IntN(4000)
	}
	return rnd.IntN(400)
}

// acknowledged settles the planned write when the server has acknowledged it.
func (u *unit) acknowledged() error {
	high := u.version
	for i := range u.next {
		if v := u.next[i].version; v != 0 {
			if v <= u.version {
				return fmt.Errorf("key %q: version %#x was given out, and %#x before", u.keys[i], v, u.version)
			}
			high = max(high, v)
		}
	}
	u.version = high
	u.acked, u.next = u.next, nil
	return nil
}

// verifyUnits reads every key after a restart, one by one and by a scan, and settles what
// happened to the writes that were under way.
func verifyUnits(ctx context.Context, c *client.Client, units [][]*unit) error {
	found := make(map[string]client.Item)
	for _, mine := range units {
		for _, u := range mine {
			if err := u.verify(ctx, c, found); err != nil {
				return err
			}
		}
	}
	for e, err := range c.Scan(ctx, client.ScanOptions{}) {
		if err != nil {
			return err
		}
		f, ok := found[string(e.Key)]
		if !ok {
			return fmt.Errorf("key %q: a get says that it is not there, and a scan shows version %#x", e.Key, e.Version)
		}
		if f.Version != e.Version || string(f.Value) != string(e.Value) {
			return fmt.Errorf("key %q: a get shows version %#x, a scan version %#x", e.Key, f.Version, e.Version)
		}
		delete(found, string(e.Key))
	}
	for key, f := range found {
		if f.Expiry.IsZero() || time.Now().Before(f.Expiry.Add(-clockMost)) {
			return fmt.Errorf("key %q: a get shows version %#x, and a scan leaves it out", key, f.Version)
		}
	}
	return nil
}

// verify reads the keys of a unit after a restart: they show what was acknowledged last, or
// what was under way, all of them the same.
func (u *unit) verify(ctx context.Context, c *client.Client, found map[string]client.Item) error {
	items := make([]*client.Item, len(u.keys))
	for i, key := range u.keys {
		item, err := c.GetItem(ctx, key)
		if err == nil {
			items[i], found[string(key)] = &item, item
		} else if !errors.Is(err, client.ErrNotFound) {
			return fmt.Errorf("key %q: %w", key, err)
		}
	}
	old := u.fits(items, u.acked, 0)
	if old != nil {
		if u.next == nil {
			return old
		}
		if err := u.fits(items, u.next, u.version); err != nil {
			return fmt.Errorf("%w; nor is it what was under way: %w", old, err)
		}
		u.acked = u.next
	}
	// What was found is now what holds. Both may fit (a delete of nothing);
	// then the older view is as good.
	u.next = nil
	for i, item := range items {
		if item != nil {
			u.acked[i].version = item.Version
			u.version = max(u.version, item.Version)
		} else if u.acked[i].there() {
			u.acked[i].gone = true // it has expired, and does not come back
		}
	}
	return nil
}

// fits: what was found of each key is what a write has left, at a version above one.
func (u *unit) fits(items []*client.Item, want []state, above uint64) error {
	for i, item := range items {
		key, w, seen := u.keys[i], &want[i], u.seen[i].Load()
		if seen > w.seq {
			return fmt.Errorf("key %q: sequence %d is the newest, but somebody had read %d", key, w.seq, seen)
		}
		if item == nil {
			if w.there() && !w.passing() {
				return fmt.Errorf("key %q is not there; sequence %d was written", key, w.seq)
			}
			continue
		}
		seq, err := u.parse(i, item.Value)
		switch {
		case err != nil:
			return err
		case !w.there() || seq != w.seq:
			return fmt.Errorf("key %q: found sequence %d, and %d was written (deleted: %v)", key, seq, w.seq, w.gone)
		case w.version != 0 && item.Version != w.version || item.Version <= above || u.counter && item.Version < u.version:
			return fmt.Errorf("key %q: found version %#x, was told %#x, and had %#x before", key, item.Version, w.version, above)
		case w.from.IsZero() != item.Expiry.IsZero():
			return fmt.Errorf("key %q: found expiry %v, written was %v", key, item.Expiry, w.from)
		case !w.from.IsZero() && (item.Expiry.Before(w.from.Add(-clockMost)) || item.Expiry.After(w.to.Add(clockMost))):
			return fmt.Errorf("key %q: it expires at %v, was to between %v and %v", key, item.Expiry, w.from, w.to)
		case !w.from.IsZero() && time.Since(w.to) > clockMost:
			return fmt.Errorf("key %q: it is there, and was to expire at %v", key, w.to)
		}
	}
	return nil
}
