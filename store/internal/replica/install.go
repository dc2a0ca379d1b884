package replica

import (
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

// Forget takes back what is under way, and believes nothing of what it has: another replica's state
// is about to take its place (consensus.Machine.Adopt). It is called like Apply, of a replica that
// does not lead. What is in an entry may be in that state: its callers are told that its outcome is
// not known, and learn it from whoever leads, because they ask again under the same name. What is in no
// entry was not done.
func (r *Replica) Forget() {
	r.mu.Lock()
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
	r.state, r.configs = s, nil
	r.mu.Unlock()
	r.c.Configured(s.Config)
}

// End answers what is under way, because the replica was stopped: nothing is applied any more, and it leads no more. What is in no
// entry fails with why. It is called when the engine calls the replica no more.
func (r *Replica) End(why error) {
	r.mu.Lock()
	r.role, r.leader = follows, 0
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

// unknown says of writes that they are in an entry which may be committed.
func unknown(writes []*flight.Flight) {
	for _, f := range writes {
		*f.Result = base.Result{Err: base.ErrOutcomeUnknown}
	}
}
