package route

import (
	"context"
	"math/rand/v2"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/client/internal/session"
)

// A Seen says how new the memory of a replica is: it shows all that was acknowledged before At. It is immutable.
type Seen struct {
	Peer    *peer.Peer
	Session *session.Session // of that life of the replica
	At      int64            // on the lease clock of the client
}

// A Fresh is what a client knows of a group for gets that may be old (read.Bounded): which replica they READ, and how new that one is. One call at a time learns more:
//
//	Begin or TryBegin, Leave if another replica is to be read, Found, End
//
// The methods are safe for concurrent use; Found, Node and Failed are for the call that has begun.
type Fresh struct {
	Now    func() int64  // the lease clock of the client; those of sessions may count from elsewhere
	Node   string        // whose replica is to be read, if it can be
	Failed int64         // lease clock: when the last look was, if it was in vain; else 0
	Looks  atomic.Uint64 // that were begun
	turn   chan struct{} // capacity 1: held by the call that learns
	seen   atomic.Pointer[Seen]
	least  atomic.Int64                    // of Seen.At: when a get without a bound ended that was made for one with a bound
	reads  atomic.Pointer[session.Session] // that gets READ; nil: none, until the next Found
}

// newFresh makes one that begins with any of the nodes: clients spread over the replicas.
func newFresh(nodes []string, now func() int64) *Fresh {
	return &Fresh{Now: now, Node: nodes[rand.IntN(len(nodes))], turn: make(chan struct{}, 1)}
}

// Since is what is known of the replica that is read, if it is not older than a time on the lease clock; else nil.
func (f *Fresh) Since(at int64) *Seen {
	s := f.seen.Load()
	if s == nil || s.At < max(at, f.least.Load()) || s.Session.IsDown() || !f.Reads(s.Session) {
		return nil
	}
	return s
}

// Showed notes that a call has shown now what its leader has, so that what was learned before says too little: a get at a replica could show less.
func (f *Fresh) Showed() {
	for now := f.Now(); ; {
		if old := f.least.Load(); now <= old || f.least.CompareAndSwap(old, now) {
			return
		}
	}
}

// Seen is what was found last; nil: nothing yet.
func (f *Fresh) Seen() *Seen { return f.seen.Load() }

// Reads reports whether gets READ the replica of a session now.
func (f *Fresh) Reads(s *session.Session) bool { return f.reads.Load() == s }

// Leave has no gets READ a replica until the next Found, if it is that of s; nil: whichever it is.
func (f *Fresh) Leave(s *session.Session) {
	if s == nil {
		f.reads.Store(nil)
		return
	}
	f.reads.CompareAndSwap(s, nil)
}

// Found notes what was learned. If that is of another replica than the one that gets have READ, they were told to Leave before the time s.At.
func (f *Fresh) Found(s *Seen) {
	f.seen.Store(s)
	f.reads.Store(s.Session)
}

// Drop forgets what was found last, if it is s: its replica is gone. No get READs it until the next Found.
func (f *Fresh) Drop(s *Seen) {
	f.Leave(s.Session)
	f.seen.CompareAndSwap(s, nil)
}

// Begin waits until no other call learns; false: ctx ended before.
func (f *Fresh) Begin(ctx context.Context) bool {
	select {
	case f.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// TryBegin is Begin that does not wait.
func (f *Fresh) TryBegin() bool {
	select {
	case f.turn <- struct{}{}:
		return true
	default:
		return false
	}
}

// End lets the next call learn.
func (f *Fresh) End() { <-f.turn }

// Fresh is what is known of the group for gets that may be old.
func (l Led) Fresh() *Fresh { return l.g.seat.fresh }
