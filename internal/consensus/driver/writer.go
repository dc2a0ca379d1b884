package driver

import (
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus/core"
	"github.com/rdmakv/rdmakv/store/log"
)

// writers is how many frames are on their way to the disk at once: one gathers while the
// disk is at the other, and what is quick enough does both at a time.
const writers = 2

// frameMost bounds what a frame of the log takes, unless the log takes less.
const frameMost = 4 << 20

// A backlog is what turns want stored, in the order of the log. What is in it is bounded by
// what the groups hand out: see the package's text.
type backlog struct {
	mu      sync.Mutex
	cond    sync.Cond
	items   []item
	sealing bool // a writer has taken items, and its frame is not sealed: frames keep the order
	done    bool // nothing more comes
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
// is over. Nobody else takes any until sealed is called.
func (b *backlog) take(spare []item, most int64) []item {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.sealing || len(b.items) == 0 && !b.done {
		b.cond.Wait()
	}
	b.sealing = true
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

// sealed lets others take what follows.
func (b *backlog) sealed() {
	b.mu.Lock()
	b.sealing = false
	b.mu.Unlock()
	b.cond.Broadcast()
}

// write takes frames to the disk, and tells the groups.
func (n *Node) write() {
	var items []item
	for {
		var f *log.Frame
		var err error
		if items, f, err = n.seal(items); len(items) == 0 {
			return
		}
		if err == nil {
			if err = f.Write(); err == nil {
				err = f.Turn()
			}
			if err == nil {
				n.stored(items)
			}
			f.Pass()
		}
		if err != nil {
			n.fail(err)
		}
		for i := range items {
			if items[i].whole != nil {
				items[i].g.storing.Done()
			}
		}
		clear(items)
	}
}

// seal makes a frame of what is to be stored next.
func (n *Node) seal(spare []item) ([]item, *log.Frame, error) {
	items := n.backlog.take(spare, n.most)
	defer n.backlog.sealed()
	if len(items) == 0 {
		return nil, nil, nil
	}
	f := n.c.Log.Begin()
	room := int64(0)
	var err error
	for i := 0; i < len(items) && err == nil; i++ {
		err = items[i].g.disk.Add(f, items[i].a)
		room += items[i].reserve
	}
	if err == nil {
		err = f.Seal()
	}
	n.c.Log.Unreserve(room)
	if err != nil {
		f.Drop()
	}
	return items, f, err
}

// stored tells what is durable, in the order of the log. The writers call it one at a time.
func (n *Node) stored(items []item) {
	for i := range items {
		it := &items[i]
		if t := it.a.State.Term; it.a.HasState && t > it.g.told {
			it.g.told = t
			it.g.m.Durable(t) // R10: the word, and then votes and messages of the term
		}
	}
	for i := range items {
		if it := items[i]; it.whole != nil {
			it.g.post(func(t *turn, g *group) error { return g.appended(it.whole) })
		}
	}
}

// appended is an event: an append is durable.
func (g *group) appended(a *core.Append) error {
	g.pending = append(g.pending[:0], g.pending[1:]...)
	g.unstored -= a.Bytes()
	return g.r.Appended(a)
}

// overdue says whether the oldest append has been under way for too long.
func (g *group) overdue(now time.Time) bool {
	return len(g.pending) > 0 && now.Sub(g.pending[0]) > g.n.c.Overdue
}
