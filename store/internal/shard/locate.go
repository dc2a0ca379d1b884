package shard

import (
	"context"

	"github.com/rdmakv/rdmakv/store/layout"
)

// Where the published value of a key is.

// A Location says where a key's published value is.
type Location uint8

const (
	InPebble Location = iota // or in the log, or nowhere: memory does not know
	InMemory
	Nowhere
)

// Locate finds key in published memory. Caller holds Mu.
func (sh *Shard) Locate(h layout.Hash, key []byte) (Item, Location) {
	sh.damaged = false
	if it, ok := sh.Resident(h, key); ok {
		if !sh.mem.Clock.Expired(it.Expiry) {
			sh.mem.Counts.Resident.Add(1)
			return it, InMemory
		}
		// A write in flight may have been judged while the key was there, so
		// that it never was absent: then the answer waits for that one. It waits for the
		// removal where that is agreed upon.
		if sh.Agreed.Load() || sh.Inflight(h, key) != nil {
			return Item{}, InPebble
		}
		return Item{}, Nowhere
	}
	if e, dirty := sh.Dirty.Find(h, key); dirty {
		if !e.Gone {
			return Item{}, InPebble
		}
		// The delete is published, and every write behind it was judged on a key that is not
		// there, so none of them depends on a life that it had before: nobody need wait.
		sh.mem.Counts.Absent.Add(1)
		return Item{}, Nowhere
	}
	// A damaged item could have been this key's.
	if sh.damaged || sh.pebbled || sh.Index.Slotless(h) {
		return Item{}, InPebble
	}
	sh.mem.Counts.Absent.Add(1)
	return Item{}, Nowhere
}

// Resident returns key's live item. If there is a slot and its item is not
// live, or does not verify, memory does not know (damaged). Caller holds Mu.
func (s *Items) Resident(h layout.Hash, key []byte) (Item, bool) {
	if _, ok := s.Find(h, key); !ok {
		return Item{}, false
	}
	it, ok := s.mem.itemAt(s.hit)
	ok = ok && it.State == layout.Live
	s.damaged = s.damaged || !ok
	return it, ok
}

// Newest returns the version of the newest write of key in flight, or 0.
// Caller holds Mu.
func (o *Order) Newest(h layout.Hash, key []byte) layout.Version {
	if w := o.Inflight(h, key); w != nil {
		return w.Version
	}
	return 0
}

// WaitFlight is waitPublished for what newest said.
func (sh *Shard) WaitFlight(ctx context.Context, newest layout.Version) error {
	if newest == 0 {
		return nil
	}
	return sh.WaitPublished(ctx, newest)
}
