package replica

import (
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/entry"
	"github.com/rdmakv/rdmakv/store/internal/flight"
)

// What a replica does when it will hear of no entry any more that its writes are in:
//
//	Forget      another replica's state is about to take the place of its own
//	  ...       base, memory and results are those of that state (package store)
//	Installed   it goes on behind that
//
//	End         the engine has stopped it, for good or because of an error
//
// and what it does when it has heard of none for long, and may hear later:
//
//	giveUp      it has no majority, most likely

// Forget takes back what is under way, and believes nothing of what it has: another replica's state
// is about to take its place (consensus.Machine.Adopt). It is called like Apply, of a replica that
// does not lead. What is in an entry may be in that state: its callers are told that its outcome is
// not known, and learn it from whoever leads, because they ask again under the same name. What is in no
// entry was not done.
func (r *Replica) Forget() {
	r.work.Lock()
	defer r.work.Unlock()
	r.mu.Lock()
	r.forget()
}

// forget is Forget. Caller holds work and mu, of a replica that does not order, and has mu no more then.
func (r *Replica) forget() {
	why := r.notLeader()
	flew, waited, bytes := r.drain()
	r.mu.Unlock()
	if len(flew)+len(waited) == 0 {
		return
	}
	r.takeBack(append(flew, waited...), why)
	unknown(flew)
	r.c.Void(append(flew, waited...), bytes)
}

// Installed says that the store has a state, which was another replica's.
func (r *Replica) Installed(s entry.State) {
	r.mu.Lock()
	r.checks.overtaken(s.Applied)
	r.state, r.configs = s, nil
	r.mu.Unlock()
	r.c.Configured(s.Config)
	r.c.Shown(s.Applied)
}

// End answers what is under way, because the replica was stopped: nothing is applied any more, and it leads no more. What is in no
// entry fails with why, and Run ends. It is called when the engine calls the replica no more; calling it again does nothing.
func (r *Replica) End(why error) {
	r.work.Lock()
	defer r.work.Unlock()
	r.mu.Lock()
	r.role, r.leader = follows, 0
	select {
	case <-r.over:
	default:
		close(r.over)
	}
	r.checks.end(why)
	flew, waited, bytes := r.drain()
	r.mu.Unlock()
	writes := append(flew, waited...)
	if len(writes) == 0 {
		return
	}
	r.takeBack(writes, why)
	unknown(flew)
	r.c.Void(writes, bytes)
}

// patience is for how long what is under way may wait on; not above 0: no longer. waits: something is under way.
func (r *Replica) patience(now time.Time) (left time.Duration, waits bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.patienceLeft(now)
}

// patienceLeft is patience. Caller holds mu.
func (r *Replica) patienceLeft(now time.Time) (left time.Duration, waits bool) {
	switch {
	case len(r.flying)+len(r.queue) == 0:
		return 0, false
	case r.role != leads:
		return r.fell.Add(r.c.Patience).Sub(now), true
	case len(r.flying) > 0:
		return r.moved.Add(r.c.Stall).Sub(now), true
	}
	return 0, false
}

// giveUp answers what is under way, if the replica has ordered nothing for Patience and no marker has come, or if it orders and no entry of
// its own has come for Stall. While an entry is published it does nothing, and is to be called again. It is Forget's answer, and for
// Forget's reason: what is in an entry may be in the log of others, and be committed by them, so nobody says that it was not done. What is in
// no entry will be in none. An entry that comes after all is published as any other leader's; its result is loaded then, so a retry
// under the same name meets it wherever it is asked.
//
// A replica that orders begins a new reign for it, in its term: what was in entries before the new marker is applied before it, and what is
// ordered behind it is judged on that. If it went on in its old reign, a write would be judged without those that it gave up, and
// these would be published before it.
func (r *Replica) giveUp(now time.Time) {
	if left, waits := r.patience(now); !waits || left > 0 {
		return
	}
	if !r.work.TryLock() {
		return // something gets on
	}
	defer r.work.Unlock()
	r.mu.Lock()
	if left, waits := r.patienceLeft(now); !waits || left > 0 { // an entry has come
		r.mu.Unlock()
		return
	}
	if r.role == leads {
		r.falls()
		r.role, r.asked = stands, false
	}
	r.forget()
}

// unknown says of writes that they are in an entry which may be committed.
func unknown(writes []*flight.Flight) {
	for _, f := range writes {
		*f.Result = base.Result{Err: base.ErrOutcomeUnknown}
	}
}
