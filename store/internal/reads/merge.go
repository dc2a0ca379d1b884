package reads

import (
	"bytes"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/dirty"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/newest"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A merge walks the keys of all shards in order, as they were at one moment (newest.Moment):
//
//	shard 0    base    a . c d .          keys
//	           view    . b c . .  <- newer: of c this one counts
//	           cursor  a b c d            a key at a time, of either or both
//	  ...
//	merge      heap of one cursor per shard
//
// Not safe for concurrent use.
type merge struct {
	reads   *Reads
	moment  newest.Moment
	newer   newest.Entries
	expires bool // some of the keys in the base may
	look    int  // keys that a page looks at, at most
	apart   int  // bytes that it may still read of the log, and of values for no more than their times
	// known has for each shard the newest write that was published before the moment, so
	// that the moment has it, too.
	known   []layout.Version
	cursors cursors
	all     []disk.Records
}

// A cursor is at a key of one shard.
type cursor struct {
	shard uint16
	base  disk.Records
	view  *dirty.Iterator
	key   []byte // the user's key; good until the cursor moves
	// Which of both have the key. If the view has it, its entry counts: the base is of an
	// earlier state of the key, or of the same one if the range came into it before the snapshot.
	inBase, inView bool
}

// settle finds the key that comes next; false: there is none. An iterator that meets a
// damaged block says "no more" and keeps the reason to itself until it is asked: so it is
// asked, every time, before what is only in the view passes for all there is.
func (c *cursor) settle() (bool, error) {
	c.inBase, c.inView = c.base.Valid(), c.view.Key() != nil
	if c.inBase {
		var ok bool
		if _, _, c.key, ok = disk.ParseKey(c.base.Key()); !ok {
			return false, &base.CorruptError{Shard: c.shard, Detail: fmt.Sprintf("impossible key %x", c.base.Key())}
		}
	} else if err := c.base.Error(); err != nil {
		return false, err
	}
	if !c.inView {
		return c.inBase, nil
	}
	if c.inBase {
		order := bytes.Compare(c.key, c.view.Key())
		c.inBase, c.inView = order <= 0, order >= 0
	}
	if c.inView {
		c.key = c.view.Key()
	}
	return true, nil
}

// next moves on; false: there are no more keys.
func (c *cursor) next() (bool, error) {
	if c.inBase {
		c.base.Next()
	}
	if c.inView {
		c.view.Next()
	}
	return c.settle()
}

// cursors is a heap by key. Equal keys in two shards cannot be; were they,
// the shard decides, so that the order is the same every time.
type cursors []*cursor

func (c cursors) Len() int { return len(c) }
func (c cursors) Less(i, j int) bool {
	if d := bytes.Compare(c[i].key, c[j].key); d != 0 {
		return d < 0
	}
	return c[i].shard < c[j].shard
}
func (c cursors) Swap(i, j int) { c[i], c[j] = c[j], c[i] }
func (c *cursors) Push(x any)   { *c = append(*c, x.(*cursor)) }
func (c *cursors) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}

// bounds returns the span of the user's keys that are asked for; a nil upper has no end.
// none: it is empty.
func (req *ScanRequest) bounds() (lower, upper []byte, none bool) {
	lower = req.Prefix
	for i := len(req.Prefix) - 1; i >= 0 && upper == nil; i-- {
		if req.Prefix[i] != 0xff {
			upper = append(bytes.Clone(req.Prefix[:i]), req.Prefix[i]+1)
		}
	}
	if len(req.After) > 0 {
		after := bytes.Clone(req.After)
		if !req.From {
			after = append(after, 0) // the first key behind it
		}
		if bytes.Compare(after, lower) > 0 {
			lower = after
		}
	}
	if len(req.End) > 0 && (upper == nil || bytes.Compare(req.End, upper) < 0) {
		upper = req.End
	}
	return lower, upper, upper != nil && bytes.Compare(lower, upper) >= 0
}

// openMerge takes the moment, and positions a cursor at the first key of each shard that is wanted.
func (r *Reads) openMerge(ctx context.Context, req ScanRequest) (*merge, error) {
	m := &merge{reads: r, newer: newest.Entries{Reader: r.env.Newest}, look: maxScanLook, apart: MaxScanApart, known: make([]layout.Version, len(r.env.Shards))}
	for i, sh := range r.env.Shards {
		m.known[i] = sh.Marks().Published
	}
	var err error
	if m.moment, err = r.env.Moment(); err != nil {
		return nil, err
	}
	// What is in the snapshot and expires was ordered behind the clock's bound.
	m.expires = r.clock.Bounded()
	lower, upper, none := req.bounds()
	if none {
		return m, nil
	}
	for i := range r.wanted(req) {
		sh := r.env.Shards[i]
		if err := m.open(sh.ID, lower, upper); err != nil {
			m.close()
			return nil, r.env.Disk.Fault(sh.ID, req.Prefix, err)
		}
		// The first scan of a shard sorts what is newer than the base.
		if req.Pause != nil {
			req.Pause()
		}
		if err := ctx.Err(); err != nil {
			m.close()
			return nil, err
		}
	}
	heap.Init(&m.cursors)
	return m, nil
}

// wanted goes through the shards whose keys a request asks for.
func (r *Reads) wanted(req ScanRequest) iter.Seq[uint16] {
	if req.Shards != nil {
		return slices.Values(req.Shards)
	}
	return func(yield func(uint16) bool) {
		for i := range r.env.Shards {
			if !yield(uint16(i)) {
				return
			}
		}
	}
}

// open puts a cursor among the others, if the shard has a key within the bounds.
func (m *merge) open(shard uint16, lower, upper []byte) error {
	from := disk.AppendKey(nil, shard, disk.KindData, lower)
	_, to := disk.KindBounds(shard, disk.KindData)
	if upper != nil {
		to = disk.AppendKey(nil, shard, disk.KindData, upper)
	}
	iter, err := m.moment.Base.Records(from, to)
	if err != nil {
		return err
	}
	m.all = append(m.all, iter)
	iter.First()
	c := &cursor{shard: shard, base: iter, view: m.moment.Views[shard].Keys(lower, upper)}
	c.view.Next()
	some, err := c.settle()
	if some {
		m.cursors = append(m.cursors, c)
	}
	return err
}

// next moves the first cursor on.
func (m *merge) next() error {
	more, err := m.cursors[0].next()
	if more {
		heap.Fix(&m.cursors, 0)
	} else {
		heap.Pop(&m.cursors)
	}
	return err
}

// close releases iterators and moment. Errors were looked at before.
func (m *merge) close() {
	var err error
	for _, iter := range m.all {
		err = errors.Join(err, iter.Close())
	}
	_ = errors.Join(err, m.moment.Base.Close())
	m.moment.Release()
}
