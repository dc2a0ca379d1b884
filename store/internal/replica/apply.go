package replica

import (
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/entry"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/logged"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
)

// Apply takes in entries that are committed; see consensus.Machine. An error means that this
// replica cannot do what the others do: an entry of a newer program, or one that none has written.
func (r *Replica) Apply(entries []consensus.Entry) error {
	r.work.Lock()
	defer r.work.Unlock()
	for i := range entries {
		e := &entries[i]
		next := r.State() // nobody else changes it
		tell := func() {}
		if e.Index <= next.Applied {
			return fmt.Errorf("replica: entry %d is applied behind entry %d", e.Index, next.Applied)
		}
		switch e.Kind {
		case consensus.Change:
			next.Config = *e.Config
		case consensus.Write:
			var err error
			if tell, err = r.apply(e, &next.Turn); err != nil {
				return fmt.Errorf("replica: entry %d: %w", e.Index, err)
			}
		}
		next.Applied, next.Term = e.Index, e.Term
		r.published(&next, e.Kind == consensus.Change)
		if e.Kind == consensus.Change {
			r.c.Configured(next.Config)
		}
		r.c.Shown(e.Index)
		// Behind that: who is answered finds what he has written in what is published.
		tell()
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

// Due is Published, but not beyond a check that waits for the base to be at its place.
func (r *Replica) Due() (index uint64, configs []consensus.Config) {
	index, configs = r.Published()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.checks.hold != 0 {
		index = min(index, r.checks.hold)
	}
	return index, configs
}

// apply publishes an entry of a leader, and returns what is to be told of it.
func (r *Replica) apply(e *consensus.Entry, turn *entry.Turn) (tell func(), err error) {
	p, err := entry.Parse(e.Data, r.parsed)
	if err != nil {
		return nil, err
	}
	if p.Writes != nil {
		r.parsed = p.Writes
		defer clear(p.Writes) // they refer to the entry
	}
	switch counts := turn.Take(e.Index, &p); {
	case !counts:
		r.void(&p)
		return func() {}, nil
	case p.Kind == entry.Marker:
		next := turn.Next
		return func() { r.begin(e, &p, next) }, nil
	case p.Kind == entry.Check:
		id, index := p.ID, e.Index
		checkBegins(r, index) // before it is published: from then on rounds may take it in
		return func() { checkApplied(r, id, index) }, nil
	}
	for i := range p.Writes {
		if w := &p.Writes[i]; !r.mine[w.Shard] {
			return nil, fmt.Errorf("a write of shard %d, which is none of the group's: %w", w.Shard, entry.ErrMalformed)
		}
	}
	at, err := r.c.At(e.Index) // first: what was taken must be published
	if err != nil {
		return nil, err
	}
	writes, bytes, own := r.own(&p)
	if !own {
		writes = r.foreign(&p)
	}
	place(at, writes)
	r.c.Publish(writes)
	return func() {
		r.c.Done(writes, bytes)
		if own {
			r.signal() // there is room for another entry
		}
	}, nil
}

// void looks at an entry that does not count. If it is of the reign in which this replica orders, one
// before it was lost, and nothing behind it will count either: a new reign begins, whose marker
// says so to those who wait.
func (r *Replica) void(p *entry.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.role == leads && p.Kind == entry.Writes && p.Reign == r.reign && len(r.flying) > 0 && p.First > r.flying[0].first {
		r.falls()
		r.role, r.asked, r.cut = stands, false, nil
	}
}

// own takes the writes of an entry that counts off those that fly, if this process has proposed it.
// A marker ends what flew before, so what flies is of the reign in force, in which this process
// alone has proposed, and numbers tell.
func (r *Replica) own(p *entry.Entry) (writes []*flight.Flight, bytes int64, own bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.flying) == 0 || r.flying[0].first != p.First || r.flying[0].next != p.First+p.Numbers {
		return nil, 0, false
	}
	b := r.flying[0]
	rest := r.flying[:copy(r.flying, r.flying[1:])]
	r.flying[len(rest)] = batch{}
	r.flying, r.moved = rest, time.Now()
	return b.writes, b.bytes, true
}

// place says where the records of writes stand: in the entry's, behind each other.
func place(at log.Position, writes []*flight.Flight) {
	part := uint32(0)
	for _, f := range writes {
		f.At, f.Part = at, part
		for _, e := range f.Effects {
			if !e.Noop || e.Due != 0 {
				part++
			}
		}
	}
}

// foreign makes writes of what an entry says, and orders them here. What they refer to is the
// entry's, so it is good until Apply returns.
func (r *Replica) foreign(p *entry.Entry) []*flight.Flight {
	early := false
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
		for slot := range w.Forget {
			early = r.c.Results.Removed(f.Shard, slot) || early
		}
	}
	if early {
		r.c.Short() // before the base can lose them
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
// of this process, in the term in which it leads, it orders from here on, with next as its first
// number.
func (r *Replica) begin(e *consensus.Entry, p *entry.Entry, next uint64) {
	r.mu.Lock()
	mine := r.role != follows && p.Life == r.c.Life && p.Term == r.term && e.Term == r.term
	if r.role == leads {
		r.role = stands // nobody orders until all of this is through
	}
	why := r.notLeader()
	flew, waited, bytes := r.drain()
	writes := append(flew, waited...)
	r.mu.Unlock()

	if len(writes) > 0 {
		r.takeBack(writes, why)
	}
	if mine {
		r.c.Ready(p.Term)
	}
	r.mu.Lock()
	if mine && r.role == stands && r.term == p.Term {
		r.role, r.reign, r.next = leads, e.Index, next
	}
	r.mu.Unlock()
	if len(writes) > 0 {
		r.c.Void(writes, bytes)
	}
}

// drain takes all writes that are under way: those that were in entries, and those that are in none.
// bytes is what they were admitted with. Caller holds mu.
func (r *Replica) drain() (flew, waited []*flight.Flight, bytes int64) {
	for _, b := range r.flying {
		flew, bytes = append(flew, b.writes...), bytes+b.bytes
	}
	for _, f := range r.queue {
		waited, bytes = append(waited, f), bytes+f.Charge
	}
	clear(r.flying)
	clear(r.queue)
	r.flying, r.queue, r.cut = r.flying[:0], r.queue[:0], nil
	return flew, waited, bytes
}

// takeBack takes writes out of the shards and gives back what they hold. Nobody orders meanwhile,
// because the replica does not lead. The shards come first: who has ordered one of the writes holds
// the shard's lock until it is noted there.
func (r *Replica) takeBack(writes []*flight.Flight, why error) {
	for _, id := range r.c.Mine {
		sh := r.c.Shards[id]
		sh.Mu.Lock()
		sh.Void(why, sh.LeftToAsk)
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
		// Memory that was given with the write is free like all of it: the flight knows of it no more.
		f.Given, *f.Result = nil, base.Result{Err: why}
	}
}
