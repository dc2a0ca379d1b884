package store

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/internal/teeth"
)

// After a start memory is empty and Pebble has everything. The store serves at
// once: every bucket header says 255 keys without slot, so that every miss is
// asked by SEND, and the fill brings the keys in behind that. It runs beside
// puts and deletes, and a value it read earlier must never win over them
// (rule F6). A key read from a chunk's snapshot is dropped if
//
//	its version is above published    that write is in flight and will link it
//	it has a slot                     a put linked it, this or a newer value
//	it was deleted, or put without a  the snapshot is older than that
//	  slot, since the snapshot
//
// and else goes in like a put: pending, slot, live. Each of the three is
// looked at under the shard's lock together with the last three steps.

const (
	chunkKeys  = 4096
	chunkBytes = 4 << 20
	// maxTouched bounds the keys remembered per chunk; beyond it the rest of
	// the chunk is read again from a new snapshot.
	maxTouched = 4096
)

// fillState is a shard's part in the fill. Guarded by the shard's lock.
type fillState struct {
	// touched are the keys that were deleted or put without a slot since the
	// snapshot of the chunk under way; nil between chunks.
	touched map[string]struct{}
	over    bool // too many: the chunk's rest is void
	hurry   bool // the chunk's first key has waited for room long enough
}

// touch notes a key. Caller holds the shard's lock.
func (f *fillState) touch(key []byte) {
	switch {
	case f.touched == nil || f.over:
	case len(f.touched) == maxTouched:
		f.over = true
	default:
		f.touched[string(key)] = struct{}{}
	}
}

// A filler is the state of the whole fill.
type filler struct {
	done    atomic.Bool   // every shard is filled
	next    atomic.Int32  // the next shard for a worker
	shards  atomic.Int32  // shards whose misses are believed
	keys    atomic.Uint64 // read from Pebble
	bytes   atomic.Uint64 // of their values
	dropped atomic.Uint64 // keys that lost against a newer write

	started  time.Time
	expected uint64

	telling  sync.Mutex // held while Progress is called
	reported time.Time  // under telling

	mu  sync.Mutex // behind telling
	err error      // under mu: the first fault
}

var (
	// errStopped ends a fill when the store closes.
	errStopped = errors.New("store: stopped")
	// errNoRoomYet ends a chunk at a key whose segment grows a lease from now.
	errNoRoomYet = errors.New("store: retired index memory rests")
)

// fillPatience is for how many leases the fill waits with one key for room in
// the index. The first lease frees what was retired when the wait began.
const fillPatience = 3

// progressEvery is the least time between two calls of Config.Progress.
const progressEvery = 250 * time.Millisecond

// runFill is one worker: it fills shard after shard.
func (s *Store) runFill() {
	defer s.workers.Done()
	if s.cfg.holdFill != nil {
		<-s.cfg.holdFill
	}
	batch := &fillBatch{s: s, keys: make([]fillKey, 0, batchKeys)}
	defer batch.places.release(s)
	for {
		i := int(s.filler.next.Add(1)) - 1
		if i >= len(s.shards) {
			return
		}
		batch.sh = s.shards[i]
		switch err := s.fillShard(batch); {
		case errors.Is(err, errStopped):
			return
		case err != nil:
			s.fillFailed(s.shards[i], err)
		}
	}
}

// fillShard fills the shard of the batch and arranges for its misses to be
// believed.
func (s *Store) fillShard(batch *fillBatch) error {
	sh := batch.sh
	lower, upper := kindBounds(sh.id, kindData)
	var since time.Time // when the key at lower first found no room; zero: it did not
	for more := true; more; {
		hurry := !since.IsZero() && time.Since(since) > fillPatience*s.cfg.Lease
		next, rest, err := s.fillChunk(batch, lower, upper, hurry)
		switch {
		case errors.Is(err, errNoRoomYet):
			if since.IsZero() || !bytes.Equal(next, lower) {
				since = time.Now()
			}
			if err := s.fillPause(); err != nil {
				return err
			}
		case err != nil:
			return err
		default:
			since = time.Time{}
		}
		lower, more = next, rest
		s.progress(false)
	}
	sh.mu.Lock()
	ordered, published := sh.ordered, sh.published
	sh.mu.Unlock()
	if published == ordered {
		s.filled(sh)
		return nil
	}
	s.workers.Add(1)
	go s.fillAfter(sh, ordered)
	return nil
}

// fillPause waits for a beat. A fill is faster than any writer: the segments
// that it outgrows rest for a lease, and the index bounds what may rest. A key
// that goes without a slot for that would be answered by SEND from then on, so
// the fill, which is in no hurry, rather waits.
func (s *Store) fillPause() error {
	beat := time.NewTimer(s.cfg.BeatInterval)
	defer beat.Stop()
	select {
	case <-beat.C:
		return nil
	case <-s.stop:
	case <-s.fence.down:
	}
	return errStopped
}

// fillChunk fills from lower on, out of one snapshot. It returns where the
// next chunk begins, with errNoRoomYet if it is not yet time for that one.
func (s *Store) fillChunk(batch *fillBatch, lower, upper []byte, hurry bool) (next []byte, more bool, err error) {
	sh := batch.sh
	// The order matters: writes that the snapshot does not have are noted.
	sh.mu.Lock()
	sh.fill = fillState{touched: make(map[string]struct{}), hurry: hurry}
	sh.mu.Unlock()
	defer func() {
		sh.mu.Lock()
		sh.fill = fillState{}
		sh.mu.Unlock()
	}()
	iter, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return nil, false, err
	}
	defer func() {
		if closeErr := iter.Close(); err == nil { // else it says the same
			err = closeErr
		}
	}()
	if teeth.Enabled {
		teeth.At("fill.snapshot", uint64(sh.id))
	}
	keys, size := 0, 0
	for iter.First(); iter.Valid(); iter.Next() {
		if keys == chunkKeys || size >= chunkBytes {
			next = append([]byte(nil), iter.Key()...)
			break
		}
		value, err := iterValue(iter)
		if err != nil {
			// What was read before it is as good as ever.
			_, _, _ = batch.end()
			return nil, false, err
		}
		_, _, key, _ := parseKey(iter.Key())
		batch.add(iter.Key(), key, value)
		keys, size = keys+1, size+len(value)
		if batch.full() {
			if s.stopping() {
				batch.drop()
				return nil, false, errStopped
			}
			if next, more, err := batch.end(); more {
				return next, true, err
			}
		}
	}
	if first, early, err := batch.end(); early {
		return first, true, err
	}
	// A damaged block looks like the end; only this tells.
	return next, next != nil, iter.Error()
}

// A fillFate is what became of a key that the fill read.
type fillFate uint8

const (
	fillLinked    fillFate = iota // it has a slot now
	fillCounted                   // no memory, or damaged: its slot says Pebble only, or it is counted
	fillDropped                   // a newer write knows better
	fillVoid                      // too many keys were touched: read it again
	fillNoRoomYet                 // there will be room a lease from now: likewise
)
