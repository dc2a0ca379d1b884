package store

import (
	"bytes"
	"errors"
	"slices"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Conditions, increments and touches are judged once, when they are ordered,
// on the ordered state of their keys: what is published and, on top, the
// writes in flight. Judged on what is published alone, two increments that
// follow each other closely would both start from the same number.

// A keyState is a key in the ordered state, as it is stored: an expired key
// exists until it is deleted, see alive.
type keyState struct {
	exists  bool
	version layout.Version // 0: does not exist
	expiry  uint64         // 0: never
	// value is there if it was asked for. It may be the memory of a write in
	// flight or of an item: good while the shard's lock is held.
	value []byte
	owned bool   // value is a copy of its own
	from  *Write // the write in flight that makes it so, or nil
}

// alive says whether the key is there at a time.
func (k *keyState) alive(now uint64) bool {
	return k.exists && (k.expiry == 0 || now < k.expiry)
}

// stateAfter is the state of a key once w, which has an effect, has taken it.
func stateAfter(w *Write) keyState {
	if w.removes() {
		return keyState{from: w}
	}
	return keyState{exists: true, version: w.Version, expiry: w.expiry, value: w.Value, from: w}
}

// judge returns the ordered state of a key if the writes in flight or memory
// know it. Caller holds mu.
func (sh *shard) judge(s *Store, h layout.Hash, key []byte, value bool) (state keyState, sure bool) {
	if w := sh.inflight(h, key); w != nil && !teeth.Off(teeth.F5OrderedState) {
		return stateAfter(w), true
	}
	sh.damaged = false
	if it, ok := sh.resident(s, h, key); ok {
		state = keyState{exists: true, version: it.Version, expiry: it.Expiry}
		if !value {
			return state, true
		}
		// A large value is neither verified nor copied under the lock if there
		// is a choice. A damaged one is lost where there is nobody else to ask.
		if state.value = it.value(); it.ValLen > copyLocked && s.db != nil {
			return state, false
		}
		if !it.verified(state.value) {
			return keyState{}, s.db == nil
		}
		return state, true
	}
	if s.db == nil {
		return keyState{}, true // there is nobody else to ask
	}
	return keyState{}, !sh.damaged && !sh.pebbled && !sh.ix.Slotless(h)
}

// A probe is a look into Pebble on behalf of an operation to be ordered.
// When it begins there is no write of the key in flight, so Pebble holds all
// that were ordered; those ordered while it looks are told to it.
type probe struct {
	hash  layout.Hash
	key   []byte
	value bool // the value is asked for, too
	told  bool
	state keyState // with told: after the newest write ordered since; value: a copy
	err   error    // what Pebble said
}

// tellProbes tells those who look at w's key of w. Caller holds mu.
func (sh *shard) tellProbes(w *Write) {
	var value []byte // one copy for all: nobody changes it
	for _, p := range sh.probes {
		if p.hash == w.hash && bytes.Equal(p.key, w.Key) {
			p.told, p.state, p.err = true, stateAfter(w), nil
			p.state.from = nil // it may be over by the time of asking
			if p.value {
				if value == nil {
					value = bytes.Clone(w.Value)
				}
				p.state.value, p.state.owned = value, true
			}
		}
	}
}

// dropProbe ends a probe. Caller holds mu.
func (sh *shard) dropProbe(p *probe) {
	for i := range sh.probes {
		if sh.probes[i] == p {
			last := len(sh.probes) - 1
			sh.probes[i] = sh.probes[last]
			sh.probes[last] = nil
			sh.probes = sh.probes[:last]
			return
		}
	}
}

// look reads a probe's key from Pebble into the probe, without any lock.
func (s *Store) look(sh *shard, p *probe) (state keyState, err error) {
	s.counts.probes.Add(1)
	rec, closer, err := s.readRecord(sh, p.key)
	if errors.Is(err, ErrNotFound) {
		return keyState{}, nil
	}
	if err != nil {
		return keyState{}, err
	}
	defer closer.Close()
	state = keyState{exists: true, version: rec.version, expiry: rec.expiry}
	if p.value {
		state.value, state.owned = bytes.Clone(rec.value), true
	}
	return state, nil
}

// lockJudged returns the ordered state of a key, with the shard locked, so
// that a write ordered before unlocking is judged against exactly it. After
// an error the shard is not locked.
//
// Writes in flight and memory are asked first. Where memory does not hold the
// key and cannot prove its absence, Pebble decides; it is read outside the
// lock, under a probe that learns of the writes ordered meanwhile.
func (s *Store) lockJudged(sh *shard, h layout.Hash, key []byte) (keyState, error) {
	w := Write{Key: key, hash: h, Op: OpDelete}
	effects := [1]*Write{&w}
	err := s.lockEffects(sh, effects[:], true)
	return w.state, err
}

// lockEffects locks the shard and sets the state of each effect that is judged
// (Write.judged), all of them as of now. If Pebble must be asked and wait is
// not set, it fails with ErrMustAsk. After an error the shard is not locked.
func (s *Store) lockEffects(sh *shard, effects []*Write, wait bool) error {
	var probes map[*Write]*probe // those whose keys only Pebble knows
	for {
		sh.mu.Lock()
		var fresh []*Write
		for _, e := range effects {
			if !e.judged() {
				continue
			}
			if p := probes[e]; p != nil {
				// Whatever Pebble said is older than what p was told.
				if p.err != nil {
					sh.endProbes(probes)
					sh.mu.Unlock()
					return p.err
				}
				if e.state = p.state; p.told {
					e.state.from = sh.inflight(e.hash, e.Key)
				}
				continue
			}
			var sure bool
			if e.state, sure = sh.judge(s, e.hash, e.Key, e.needsValue()); !sure {
				fresh = append(fresh, e)
			}
		}
		if len(fresh) == 0 || !wait {
			sh.endProbes(probes)
			if len(fresh) == 0 {
				return nil
			}
			sh.mu.Unlock()
			return ErrMustAsk
		}
		if probes == nil {
			probes = make(map[*Write]*probe, len(fresh))
		}
		for _, e := range fresh {
			p := &probe{hash: e.hash, key: e.Key, value: e.needsValue()}
			probes[e] = p
			sh.probes = append(sh.probes, p)
		}
		sh.mu.Unlock()
		for _, e := range fresh {
			state, err := s.look(sh, probes[e])
			sh.mu.Lock()
			if p := probes[e]; !p.told {
				p.state, p.err = state, err
			}
			sh.mu.Unlock()
		}
	}
}

// endProbes ends all of them. Caller holds mu.
func (sh *shard) endProbes(probes map[*Write]*probe) {
	if len(probes) == 0 {
		return
	}
	ended := make(map[*probe]struct{}, len(probes))
	for _, p := range probes {
		ended[p] = struct{}{}
	}
	sh.probes = slices.DeleteFunc(sh.probes, func(p *probe) bool {
		_, over := ended[p]
		return over
	})
}
