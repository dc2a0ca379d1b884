package driver

import (
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus/core"
	"github.com/rdmakv/rdmakv/store/log"
)

// frameMost bounds what a frame of the log takes, unless the log takes less.
const frameMost = 4 << 20

// A backlog is what turns want stored, in the order of the log. What is in it is bounded by
// what the groups hand out: see the package's text.
type backlog struct {
	mu    sync.Mutex
	cond  sync.Cond
	items []item
	done  bool // nothing more comes
}

// An item is an append of a group, or a part of one.
type item struct {
	g       *group
	a       *core.Append // what is to be stored
	whole   *core.Append // what ends with this item; nil: more parts follow
	reserve int64        // room of the log that is given back once the item is sealed
}

func (b *backlog) put(items []item) {
	b.mu.Lock()
	b.items = append(b.items, items...)
	b.mu.Unlock()
	b.cond.Broadcast()
}

func (b *backlog) end() {
	b.mu.Lock()
	b.done = true
	b.mu.Unlock()
	b.cond.Broadcast()
}

// take waits for items and returns the first ones, at least one, of so many bytes; none: it
// is over.
func (b *backlog) take(spare []item, most int64) []item {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.items) == 0 && !b.done {
		b.cond.Wait()
	}
	n, sum := 0, int64(0)
	for n < len(b.items) {
		if sum += b.items[n].a.Bytes(); n > 0 && sum > most {
			break
		}
		n++
	}
	items := append(spare[:0], b.items[:n]...)
	rest := copy(b.items, b.items[n:])
	clear(b.items[rest:])
	b.items = b.items[:rest]
	return items
}

// more reports whether there are items.
func (b *backlog) more() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.items) > 0
}

// write takes frames to the disk, one after the other, and tells the groups. What comes meanwhile is one frame.
func (n *Node) write() {
	var items []item
	for {
		var f *log.Frame
		var more bool
		if items, f, more = n.seal(items); !more {
			return
		}
		if f != nil {
			err := f.Write()
			if err == nil {
				err = f.Turn()
			}
			if err == nil {
				n.stored(items)
			} else {
				n.fail(err)
			}
			f.Pass()
			if n.backlog.more() {
				n.rouse() // the disk comes first
			} else {
				n.help()
			}
		}
		for i := range items {
			if items[i].whole != nil {
				items[i].g.storing.Done()
			}
		}
		clear(items)
	}
}

// seal makes a frame of what is to be stored next. Nil: there is nothing in it, because its
// groups are stopped; more false: it is over.
func (n *Node) seal(spare []item) (items []item, f *log.Frame, more bool) {
	items = n.backlog.take(spare, n.most)
	if len(items) == 0 {
		return nil, nil, false
	}
	room := int64(0)
	for i := range items {
		room += items[i].reserve
	}
	defer n.c.Log.Unreserve(room)
	for {
		f := n.c.Log.Begin()
		bad, filled, err := fill(f, items)
		if err == nil && !filled {
			f.Drop()
			return items, nil, true
		}
		if err == nil {
			if err = f.Seal(); err == nil {
				return items, f, true
			}
		}
		f.Drop()
		if failed := n.c.Log.Err(); failed != nil {
			n.fail(failed)
			return items, nil, true
		}
		// What a group wants stored cannot be: it is stopped, and the others go on. If it is
		// not known which one it is, all of this frame are.
		for i := range items {
			if g := items[i].g; bad == nil || g == bad {
				g.breaks(err)
			}
		}
	}
}

// fill fills a frame with what items want, but for groups that are stopped.
func fill(f *log.Frame, items []item) (bad *group, filled bool, err error) {
	for i := range items {
		if items[i].g.broken.Load() {
			continue
		}
		filled = true
		if err := items[i].g.disk.Add(f, items[i].a); err != nil {
			return items[i].g, true, err
		}
	}
	return nil, filled, nil
}

// breaks has nothing of a group stored from here on, and it is fenced.
func (g *group) breaks(err error) {
	if !g.broken.Swap(true) {
		g.post(func(*turn, *group) error { return err })
	}
}

// stored tells what is durable, in the order of the log. The writer calls it, and helps when others may tell, too.
func (n *Node) stored(items []item) {
	for i := range items {
		it := &items[i]
		if it.g.broken.Load() {
			continue
		}
		if t := it.a.State.Term; it.a.HasState && t > it.g.told {
			it.g.told = t
			it.g.m.Durable(t) // R10: the word, and then votes and messages of the term
		}
	}
	for i := range items {
		if it := items[i]; it.whole != nil && !it.g.broken.Load() {
			it.g.note(func(t *turn, g *group) error { return g.appended(it.whole) })
		}
	}
}

// appended is an event: an append is durable.
func (g *group) appended(a *core.Append) error {
	g.pending = append(g.pending[:0], g.pending[1:]...)
	g.unstored -= a.Bytes()
	if a.Adopting != nil {
		g.noted()
		return nil
	}
	return g.r.Appended(a)
}

// overdue says whether the oldest append has been under way for too long.
func (g *group) overdue(now time.Time) bool {
	return len(g.pending) > 0 && now.Sub(g.pending[0]) > g.n.c.Overdue
}
