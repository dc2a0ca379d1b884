package replica

import (
	"fmt"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/internal/entry"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/logged"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Apply takes in entries that are committed; see consensus.Machine. An error means that this
// replica cannot do what the others do: an entry of a newer program, or one that none has written.
func (r *Replica) Apply(entries []consensus.Entry) error {
	for i := range entries {
		e := &entries[i]
		next := r.State() // nobody else changes it
		if e.Index <= next.Applied {
			return fmt.Errorf("replica: entry %d is applied behind entry %d", e.Index, next.Applied)
		}
		switch e.Kind {
		case consensus.Change:
			next.Config = *e.Config
		case consensus.Write:
			if err := r.apply(e, &next.Turn); err != nil {
				return fmt.Errorf("replica: entry %d: %w", e.Index, err)
			}
		}
		next.Applied, next.Term = e.Index, e.Term
		r.published(&next, e.Kind == consensus.Change)
	}
	return nil
}

// published says that everything up to a state is.
func (r *Replica) published(s *entry.State, change bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = *s
	if change {
		r.configs = append(r.configs, s.Config)
	}
}

// State returns up to where the replica has published.
func (r *Replica) State() entry.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// ID is the group's.
func (r *Replica) ID() consensus.GroupID { return r.c.Group }

// Stream is that of the group's entries in the log.
func (r *Replica) Stream() uint64 { return r.c.Stream }

// Shards are those of the group.
func (r *Replica) Shards() []uint16 { return r.c.Mine }

// Published returns the newest entry that is published, and the configurations that were applied
// and are not known to be in the base.
func (r *Replica) Published() (index uint64, configs []consensus.Config) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.Applied, r.configs[:len(r.configs):len(r.configs)]
}

// Saved says that the base has the group up to a state: the log needs the entries no more (R6).
func (r *Replica) Saved(s entry.State) {
	r.mu.Lock()
	for len(r.configs) > 0 && r.configs[0].Index <= s.Config.Index {
		r.configs = r.configs[1:]
	}
	r.mu.Unlock()
	r.c.Trim(s.Applied)
}

// apply applies an entry of a leader.
func (r *Replica) apply(e *consensus.Entry, turn *entry.Turn) error {
	p, err := entry.Parse(e.Data, r.parsed)
	if err != nil {
		return err
	}
	if p.Writes != nil {
		r.parsed = p.Writes
		defer clear(p.Writes) // they refer to the entry
	}
	for i := range p.Writes {
		if w := &p.Writes[i]; !r.mine(w.Shard) {
			return fmt.Errorf("a write of shard %d, which is none of the group's: %w", w.Shard, entry.ErrMalformed)
		}
	}
	if !turn.Take(e.Index, &p) {
		return nil // void
	}
	if p.Kind == entry.Marker {
		r.begin(e, &p, turn.Next)
		return nil
	}
	writes, bytes := r.own(&p)
	own := writes != nil
	if !own {
		writes = r.foreign(&p)
	}
	if err := r.place(e.Index, writes); err != nil {
		return err
	}
	r.c.Publish(writes)
	r.c.Done(writes, bytes)
	if own {
		r.mu.Lock()
		r.signal() // there is room for another entry
		r.mu.Unlock()
	}
	return nil
}

// mine says whether a shard is one of the group's.
func (r *Replica) mine(id uint16) bool {
	for _, m := range r.c.Mine {
		if m == id {
			return true
		}
	}
	return false
}

// own takes the writes of an entry that counts off those that fly; nil: this process has not
// proposed it. A marker ends what flew before, so what flies is of the reign in force, in which
// this process alone has proposed, and numbers tell.
func (r *Replica) own(p *entry.Entry) ([]*flight.Flight, int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.flying) == 0 || r.flying[0].first != p.First || r.flying[0].next != p.First+p.Numbers {
		return nil, 0
	}
	b := r.flying[0]
	rest := r.flying[:copy(r.flying, r.flying[1:])]
	r.flying[len(rest)] = batch{}
	r.flying = rest
	return b.writes, b.bytes
}

// place says where the records of writes stand: in the entry's, behind each other.
func (r *Replica) place(index uint64, writes []*flight.Flight) error {
	at, err := r.c.At(index)
	if err != nil {
		return err
	}
	part := uint32(0)
	for _, f := range writes {
		f.At, f.Part = at, part
		for _, e := range f.Effects {
			if !e.Noop || e.Due != 0 {
				part++
			}
		}
	}
	return nil
}

// foreign makes writes of what an entry says, and orders them here. What they refer to is the
// entry's, so it is good until Apply returns.
func (r *Replica) foreign(p *entry.Entry) []*flight.Flight {
	writes := make([]*flight.Flight, 0, len(p.Writes))
	for i := range p.Writes {
		w := &p.Writes[i]
		f := r.flightOf(w)
		writes = append(writes, f)
		sh := r.c.Shards[f.Shard]
		sh.Mu.Lock()
		sh.NoteOrdered(f)
		sh.Mu.Unlock()
		if slot, result, ok := w.Result(); ok {
			r.c.Results.Load(f.Shard, slot, result)
		}
	}
	return writes
}

// flightOf makes a write of a body, with memory for its items.
func (r *Replica) flightOf(w *logged.Write) *flight.Flight {
	f := &flight.Flight{Shard: w.Shard, Version: w.Version, Noop: true}
	for e := range w.Effects {
		x := &flight.Effect{Effect: e, Hash: layout.HashKey(r.c.Seed, e.Key)}
		f.Effects = append(f.Effects, x)
		if e.Noop {
			continue
		}
		f.Noop = false
		if x.Puts() {
			x.Size = x.ItemSize()
			x.Place, x.Class = r.c.Reserve(x.Size)
		}
	}
	return f
}

// begin begins a reign: what was ordered before and is not applied is void. If the marker is that
// of this process, in the term in which it stands, it orders from here on, with next as its first number.
func (r *Replica) begin(e *consensus.Entry, p *entry.Entry, next uint64) {
	r.mu.Lock()
	mine := r.role == stands && p.Life == r.c.Life && p.Term == r.term && e.Term == r.term
	if r.role == leads {
		r.role = follows // Follows comes, or has been late
	}
	why := r.notLeader()
	var writes []*flight.Flight
	var bytes int64
	for _, b := range r.flying {
		writes, bytes = append(writes, b.writes...), bytes+b.bytes
	}
	for _, f := range r.queue {
		writes, bytes = append(writes, f), bytes+f.Charge
	}
	clear(r.flying)
	clear(r.queue)
	r.flying, r.queue, r.cut = r.flying[:0], r.queue[:0], nil
	r.mu.Unlock()

	if len(writes) > 0 {
		r.void(writes, bytes, why)
	}
	if !mine {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.role == stands && r.term == p.Term {
		r.role, r.reign, r.next = leads, e.Index, next
	}
}

// void takes writes back. Nobody orders meanwhile, because the replica does not lead. Their shards
// come first: who has ordered one of them holds its lock until it is noted there.
func (r *Replica) void(writes []*flight.Flight, bytes int64, why error) {
	for _, id := range r.c.Mine {
		sh := r.c.Shards[id]
		sh.Mu.Lock()
		sh.Void(why)
		sh.Mu.Unlock()
	}
	for _, f := range writes {
		for _, x := range f.Effects {
			if x.Class != 0 {
				r.c.Free(x.Place, x.Class)
			}
			x.Class, x.Size, x.Given = 0, 0, false
		}
		if f.Recorded() {
			r.c.Results.Void(&f.Op.ID)
		}
		f.Result.Err = why
	}
	r.c.Void(writes, bytes)
}
