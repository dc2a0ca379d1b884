package store

import (
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/internal/teeth"
)

// The committer is one goroutine that turns queued writes of all shards into
// Pebble batches. It does not wait for the disk: a batch goes into Pebble's
// log and memtable, then to the publisher, which waits for the fsync. While
// one fsync runs the next batches fill up, so the batches grow with the load
// and nobody sets a timer.

// A group is the writes of one batch, in order.
type group struct {
	batch  *pebble.Batch // nil: nothing to commit (writes without effect)
	writes []*Write
	bytes  int64 // admitted at the gate
}

// groupsInFlight bounds the batches between committer and publisher, besides
// one in the hands of each. Two keep a sync always under way, with the next
// batch in Pebble's queue behind it; what is beyond that gathers in the queue
// and makes the batches large. With 64 blocking writers this gives 12 puts per
// batch instead of 3 with a depth of 16, and costs a tenth less CPU per put.
const groupsInFlight = 2

// groupWithoutSync bounds the writes of a group where no sync is waited for: the
// first of many writers are answered while what the others have sent is still
// being committed, so that both ends are at work. With 50 writers in another
// process that gives a tenth more puts than one group of all.
const groupWithoutSync = 24

// groupPool keeps the write slices of published groups.
type groupPool struct{ sync.Pool }

func (p *groupPool) get() *group {
	if g, ok := p.Get().(*group); ok {
		return g
	}
	return &group{}
}

func (p *groupPool) put(g *group) {
	clear(g.writes)
	*g = group{writes: g.writes[:0]}
	p.Put(g)
}

// runCommitter commits until the queue is closed and empty, then closes the
// channel to the publisher.
func (s *Store) runCommitter() {
	defer s.workers.Done()
	defer close(s.groups)
	var spare []*Write
	for {
		writes, done := s.queue.take(spare)
		for rest := writes; len(rest) > 0; {
			n, bytes := cut(rest, s.cfg.BatchBytes)
			if s.cfg.Sync != Always && n > groupWithoutSync {
				n, bytes = cut(rest[:groupWithoutSync], s.cfg.BatchBytes)
			}
			g := s.pool.get()
			g.writes, g.bytes = append(g.writes, rest[:n]...), bytes
			if !s.commit(g) {
				return
			}
			rest = rest[n:]
		}
		clear(writes)
		spare = writes
		if len(writes) > 0 {
			continue
		}
		if done {
			return
		}
		select {
		case <-s.queue.wake:
		case <-s.fence.down:
			return
		}
	}
}

// cut returns how many of the writes go into one batch, and their bytes.
func cut(writes []*Write, limit int) (n int, bytes int64) {
	for n < len(writes) {
		size := writes[n].charge
		if n > 0 && bytes+size > int64(limit) {
			break
		}
		bytes += size
		n++
	}
	return n, bytes
}

// commit applies a group to Pebble and hands it to the publisher. false: the
// store is fenced.
//
// Should Pebble fail to write its log it does not return: its Logger.Fatalf,
// which is ours (fatal.go), fences the store and parks this goroutine.
func (s *Store) commit(g *group) bool {
	g.batch = s.encode(g)
	if g.batch != nil {
		var err error
		if s.cfg.Sync == Always {
			err = s.db.ApplyNoSyncWait(g.batch, pebble.Sync)
		} else {
			err = s.db.Apply(g.batch, pebble.NoSync)
		}
		if err != nil {
			s.fence.fail(fmt.Errorf("commit: %w", err))
			return false
		}
		s.counts.batches.Add(1)
		s.unbeaten.Store(true)
	}
	if teeth.Off(teeth.D5AckDurable) {
		for _, w := range g.writes {
			w.Done(w)
			w.Done = func(*Write) {}
		}
	}
	// With no sync to wait for and nothing more to commit, waking the publisher
	// would cost more than doing its work here.
	if s.cfg.Sync != Always && (s.unpublished.Load() == 0 || teeth.Off(teeth.D5PublishInOrder)) && s.queue.idle() {
		return s.finishGroup(g)
	}
	s.unpublished.Add(1)
	select {
	case s.groups <- g: // the group belongs to the publisher from here
		return true
	case <-s.fence.down:
		return false
	}
}
