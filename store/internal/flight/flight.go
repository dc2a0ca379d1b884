// Package flight is a write on its way through the store: what it does to each of
// its keys (Effect), decided by the state that the keys have when it is ordered.
//
// Everything here is a pure function of the operation, of the ordered state of its
// keys, and of the server's time: there is no lock, no memory and no disk.
package flight

import (
	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
)

// A Flight is a write between Submit and Done. It belongs to the goroutine that
// orders it until it is queued, and to the pipeline from then on.
//
// A Flight that was judged elsewhere has its Shard and Effects, and neither Op, Result
// nor Done: it can be queued, appended and published, but not Reset or Evaluated.
type Flight struct {
	// Op is what is asked for. It is never changed, so that a Flight can be judged
	// anew any number of times (Reset).
	Op *base.Op
	// Result is what the caller is told. It is complete when Done is called.
	Result *base.Result
	// Done is called once, when the write is over, by whoever published it.
	Done func(*Flight)
	// Carrier is what the Flight is a part of: Done's way back to it.
	Carrier any

	// Due is set for the delete of a key whose time is over, by the expirer: the
	// second under which the key was listed.
	Due uint64
	// Reign is the one in which its shard's group has to order it, because it was decided on what was true in that; 0: any.
	Reign uint64
	// Forget names the results of requests that are to be removed; with OpForget.
	Forget []base.SlotKey
	// Charge is how many bytes it was admitted with, and Room what was set aside for it in
	// the log.
	Charge int64
	Room   int64
	// At is where its record stands in the log; 0: it has none. It is known when the frame
	// of the record has its position, before the write is published.
	At log.Position
	// Part is how many effects of other writes stand in front of it in the same record: an entry
	// of a group has many writes.
	Part uint32

	// Given is the memory in which the value of a put stands already; nil: none.
	Given *Given

	Shard   uint16
	Version layout.Version // the last that it was given
	Effects []*Effect      // one for each key
	Noop    bool           // nothing is changed
	Again   bool           // a retry: it takes the result of the first

	one  Effect // of a write of one key
	ones [1]*Effect
}

// Given is memory for an item of Size bytes that was reserved before its write: the value
// stands there. It stays the giver's until the write is ordered with it; then Taken is set, and it
// is the pipeline's, as memory is that was reserved for the write.
type Given struct {
	Place layout.Place
	Class uint8
	Size  int
	Taken bool
}

// Reset makes a flight ready to be ordered, for the first time or again. seed is
// that of the hash of keys.
func (f *Flight) Reset(seed uint64) {
	op := f.Op
	*f.Result = base.Result{}
	f.Shard, f.Version, f.At, f.Part, f.Noop, f.Again = op.Shard, 0, 0, 0, false, false
	switch op.Kind {
	case base.OpBatch:
		parts := make([]Effect, len(op.Parts))
		f.Effects = make([]*Effect, len(parts))
		for i := range parts {
			p, e := &op.Parts[i], &parts[i]
			e.Shard, e.Key, e.If, e.IfVersion, e.part = op.Shard, p.Key, p.If, p.IfVersion, true
			if p.Delete {
				e.Kind = base.OpDelete
			} else {
				e.Value, e.TTL = p.Value, p.TTL
			}
			e.Hash = layout.HashKey(seed, e.Key)
			f.Effects[i] = e
		}
	case base.OpForget:
		f.Effects, f.Noop = nil, true
	default:
		e := &f.one
		*e = Effect{If: op.If, IfVersion: op.IfVersion, TTL: op.TTL, Delta: op.Delta}
		e.Shard, e.Key, e.Kind, e.Due = op.Shard, op.Key, op.Kind, f.Due
		if op.Kind == base.OpPut {
			e.Value = op.Value
			if g := f.Given; g != nil && g.Size == e.ItemSize() {
				e.Place, e.Class, e.Size, e.Given = g.Place, g.Class, g.Size, true
			}
		}
		e.Hash = layout.HashKey(seed, e.Key)
		f.ones[0] = e
		f.Effects = f.ones[:]
	}
}

// Recorded says whether the result is to be recorded, for retries.
func (f *Flight) Recorded() bool { return f.Op != nil && f.Op.ID.Seq != 0 && !f.Again }

// Repeat makes a flight one that takes its result from an earlier one.
func (f *Flight) Repeat() {
	f.Again, f.Result.Err = true, nil
	f.noEffect()
}

func (f *Flight) noEffect() {
	f.Noop = true
	for _, e := range f.Effects {
		e.Noop = true
	}
}

// Versions is how many versions a flight takes. A version for each part of a batch,
// so that none is used twice. One that has no effect needs one.
func (f *Flight) Versions() layout.Version { return layout.Version(max(1, len(f.Effects))) }

// Number gives a flight its versions, from next on, and returns the next behind
// them. A batch has the last of its parts.
func (f *Flight) Number(next layout.Version) layout.Version {
	f.Version = next
	if !f.Noop {
		for _, e := range f.Effects {
			e.Version = next
			f.Version = next
			next++
		}
	} else {
		next++
	}
	f.told()
	return next
}

// NumberInGroup gives a flight of a replicated group its numbers, from next on, and returns the
// next behind them. It takes as many as it would take versions.
func (f *Flight) NumberInGroup(next uint64) uint64 {
	f.Version = layout.NumberedVersion(next, f.Shard)
	if f.Noop {
		next++
	} else {
		for _, e := range f.Effects {
			f.Version = layout.NumberedVersion(next, f.Shard)
			e.Version = f.Version
			next++
		}
	}
	f.told()
	return next
}

// told has the caller know the version.
func (f *Flight) told() {
	if f.Result != nil {
		f.Result.Version = f.Version
	}
}
