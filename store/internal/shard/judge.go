package shard

import (
	"bytes"
	"slices"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Conditions, increments and touches are judged once, when they are ordered,
// on the ordered state of their keys: what is published and, on top, the
// writes in flight. Judged on what is published alone, two increments that
// follow each other closely would both start from the same number.

// CopyLocked is the value size up to which a resident value is copied under
// the shard's lock: about 3 µs. Larger ones are pinned and copied outside.
const CopyLocked = 64 << 10

// Judge returns the ordered state of a key if the writes in flight, memory or the set of
// what is newer than the base know it. Caller holds Mu.
func (sh *Shard) Judge(h layout.Hash, key []byte, value bool) (state flight.KeyState, sure bool) {
	if e := sh.Inflight(h, key); e != nil {
		return flight.StateAfter(e), true
	}
	sh.damaged = false
	if it, ok := sh.Resident(h, key); ok {
		state = flight.KeyState{Exists: true, Version: it.Version, Expiry: it.Expiry}
		if !value {
			return state, true
		}
		// A large value is neither verified nor copied under the lock if there
		// is a choice. A damaged one is lost where there is nobody else to ask.
		if state.Value = it.InPlace(); it.ValLen > CopyLocked && sh.mem.Backed {
			return state, false
		}
		if !it.Verified(state.Value) {
			return flight.KeyState{}, !sh.mem.Backed
		}
		return state, true
	}
	if !sh.mem.Backed {
		return flight.KeyState{}, true // there is nobody else to ask
	}
	if e, dirty := sh.Dirty.Find(h, key); dirty {
		// It is the newest that is published, so it says more than slots and counts do: a
		// damaged item cannot be that of a key that is gone. Of a key that is not gone it
		// does not say the expiry, which stands in the log.
		return flight.KeyState{}, e.Gone
	}
	return flight.KeyState{}, !sh.damaged && !sh.pebbled && !sh.Index.Slotless(h)
}

// A Probe is a look into the log and the base on behalf of an operation to be ordered.
// When it begins there is no write of the key in flight, so these two have all
// that were ordered; those ordered while it looks are told to it.
type Probe struct {
	Hash  layout.Hash
	Key   []byte
	value bool // the value is asked for, too
	told  bool
	state flight.KeyState // with told: after the newest write ordered since; value: a copy
	err   error           // what the disk said
}

// tellProbes tells those who look at e's key of e. Caller holds Mu.
func (o *Order) tellProbes(e *flight.Effect) {
	var value []byte // one copy for all: nobody changes it
	for _, p := range o.probes {
		if p.Hash == e.Hash && bytes.Equal(p.Key, e.Key) {
			p.told, p.state, p.err = true, flight.StateAfter(e), nil
			p.state.From = nil // it may be over by the time of asking
			if p.value {
				if value == nil {
					value = bytes.Clone(e.Value)
				}
				p.state.Value, p.state.Owned = value, true
			}
		}
	}
}

// DropProbe ends a probe. Caller holds Mu.
func (o *Order) DropProbe(p *Probe) {
	for i := range o.probes {
		if o.probes[i] == p {
			last := len(o.probes) - 1
			o.probes[i] = o.probes[last]
			o.probes[last] = nil
			o.probes = o.probes[:last]
			return
		}
	}
}

// An Ask tells the durable state of a key, the newest committed, with its value if
// that is asked for. It may wait for the disk; no lock is held.
type Ask func(sh *Shard, key []byte, value bool) (flight.KeyState, error)

// LockJudged returns the ordered state of a key, with the shard locked, so
// that a write ordered before unlocking is judged against exactly it. After
// an error the shard is not locked.
//
// Writes in flight and memory are asked first. Where memory does not hold the
// key and cannot prove its absence, disk decides; it is read outside the
// lock, under a probe that learns of the writes ordered meanwhile.
func (sh *Shard) LockJudged(h layout.Hash, key []byte, disk Ask) (flight.KeyState, error) {
	e := flight.Effect{Effect: base.Effect{Key: key, Kind: base.OpDelete}, Hash: h}
	effects := [1]*flight.Effect{&e}
	err := sh.LockEffects(effects[:], disk)
	return e.State, err
}

// LockEffects locks the shard and sets the state of each effect that is judged
// (Effect.Judged), all of them as of now. If the disk must be asked and disk is
// nil, it fails with ErrMustAsk. After an error the shard is not locked.
func (sh *Shard) LockEffects(effects []*flight.Effect, disk Ask) error {
	var probes map[*flight.Effect]*Probe // those whose keys only the disk knows
	for {
		sh.Mu.Lock()
		var fresh []*flight.Effect
		for _, e := range effects {
			if !e.Judged() {
				continue
			}
			if p := probes[e]; p != nil {
				// Whatever the disk said is older than what p was told.
				if p.err != nil {
					sh.endProbes(probes)
					sh.Mu.Unlock()
					return p.err
				}
				if e.State = p.state; p.told {
					e.State.From = sh.Inflight(e.Hash, e.Key)
				}
				continue
			}
			var sure bool
			if e.State, sure = sh.Judge(e.Hash, e.Key, e.NeedsValue()); !sure {
				fresh = append(fresh, e)
			}
		}
		if len(fresh) == 0 || disk == nil {
			sh.endProbes(probes)
			if len(fresh) == 0 {
				return nil
			}
			sh.Mu.Unlock()
			return base.ErrMustAsk
		}
		if probes == nil {
			probes = make(map[*flight.Effect]*Probe, len(fresh))
		}
		for _, e := range fresh {
			p := &Probe{Hash: e.Hash, Key: e.Key, value: e.NeedsValue()}
			probes[e] = p
			sh.probes = append(sh.probes, p)
		}
		sh.Mu.Unlock()
		for _, e := range fresh {
			state, err := disk(sh, e.Key, e.NeedsValue())
			sh.Mu.Lock()
			if p := probes[e]; !p.told {
				p.state, p.err = state, err
			}
			sh.Mu.Unlock()
		}
	}
}

// endProbes ends all of them. Caller holds Mu.
func (o *Order) endProbes(probes map[*flight.Effect]*Probe) {
	if len(probes) == 0 {
		return
	}
	ended := make(map[*Probe]struct{}, len(probes))
	for _, p := range probes {
		ended[p] = struct{}{}
	}
	o.probes = slices.DeleteFunc(o.probes, func(p *Probe) bool {
		_, over := ended[p]
		return over
	})
}

// Probing returns how many probes there are. Caller holds Mu.
func (o *Order) Probing() int { return len(o.probes) }

// Heard returns the state of the key after the newest write that p was told of, if
// there was one. Caller holds Mu, or has dropped p.
func (p *Probe) Heard() (state flight.KeyState, told bool) { return p.state, p.told }
