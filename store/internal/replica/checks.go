package replica

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/entry"
)

// How replicas are compared. The leader puts a check entry into the group's log, and each replica looks at what
// its base has at that place:
//
//	leader   Check ──▶ entry ──▶ all replicas
//	each     Apply: Due goes no further than the entry (hold) ──▶ Config.Check
//	         the base is there ──▶ Stands: Due goes on ──▶ the base of that moment is read ──▶ Over
//
// The base has the entries up to one, and nothing else (package checkpoint). So what it has while Due holds it at the
// entry is what the group had there, and all replicas must have the same, because each has applied the same entries
// (R3, R9). If Due went on, replicas would be compared at different places, and differ.
//
// One check at a time is under way in a replica; one that comes meanwhile fails here. What came of them is kept in memory
// alone, for the last mostChecks.

// mostChecks bounds the checks of which a replica knows what came of them.
const mostChecks = 8

// A CheckState says how far a replica is with a check.
type CheckState uint8

const (
	CheckUnknown CheckState = iota // this process has not seen it, or has forgotten it
	CheckBehind                    // the entry is not applied here yet
	CheckWaits                     // the base is not there yet
	CheckReads                     // the base is read
	CheckDone                      //
	CheckFailed                    // see Err
)

// A Digest stands for all that a group has at one entry: its keys with values, versions and expiries, the results of requests, and
// the state behind the entry. Two replicas with one digest have the same.
type Digest struct {
	Sum     [32]byte // SHA-256
	Keys    uint64
	Results uint64
}

// A Check is what a replica knows of a check.
type Check struct {
	Index  uint64 // of its entry
	State  CheckState
	Digest Digest // with CheckDone
	Err    error  // with CheckFailed
}

var (
	// ErrChecking: a check of the group is under way. Ask again when it is over.
	ErrChecking error = checkingError{}
	// ErrOvertaken: the replica has got another one's state, which is behind the check.
	ErrOvertaken = errors.New("replica: another replica's state has taken the place of what was to be checked: check again")
)

// A checkingError is a base.ErrOverloaded that says of what there is too much.
type checkingError struct{}

func (checkingError) Error() string {
	return "replica: a check of the group is under way: ask again when it is over"
}

func (checkingError) Is(target error) bool { return target == base.ErrOverloaded }

// checks are those of a replica. The lock is the replica's.
type checks struct {
	hold uint64  // Due goes to this entry; 0: to whatever is published
	all  []Check // oldest first

	// Of the one that this replica, which leads, was asked for.
	id     uint64 // 0: none
	sent   bool   // it is proposed
	answer chan checkAnswer
}

// A checkAnswer is what the caller of Check gets.
type checkAnswer struct {
	index uint64
	err   error
}

// Check puts a check entry into the group's log, and returns its index when it is applied here.
//
// Errors: *NotLeaderError, ErrChecking, ctx's. After all of them but ErrChecking the entry may be applied still, which does no harm.
func (r *Replica) Check(ctx context.Context) (index uint64, err error) {
	r.mu.Lock()
	switch k := &r.checks; {
	case r.role != leads:
		defer r.mu.Unlock()
		return 0, r.notLeader()
	case k.id != 0 || k.busy():
		r.mu.Unlock()
		return 0, ErrChecking
	}
	id, answer := max(1, rand.Uint64()), make(chan checkAnswer, 1)
	r.checks.id, r.checks.sent, r.checks.answer = id, false, answer
	r.signal()
	r.mu.Unlock()
	select {
	case a := <-answer:
		return a.index, a.err
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.checks.id == id {
		r.checks.id = 0
	}
	return 0, ctx.Err()
}

// CheckAt says what the replica knows of the check at an index.
func (r *Replica) CheckAt(index uint64) Check {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.checks.at(index); c != nil {
		return *c
	}
	if index > r.state.Applied {
		return Check{Index: index, State: CheckBehind}
	}
	return Check{Index: index}
}

// CheckStands says that whoever was told of a check has what the base has at its place. From now on Due goes on.
func (r *Replica) CheckStands(index uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.checks.at(index); c != nil && c.State == CheckWaits {
		c.State, r.checks.hold = CheckReads, 0
	}
}

// CheckOver says what came of a check: err is why it has no digest.
func (r *Replica) CheckOver(index uint64, d Digest, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.checks.at(index)
	if c == nil || c.over() { // it was overtaken
		return
	}
	if c.State == CheckWaits {
		r.checks.hold = 0
	}
	r.counts.checked(err)
	if c.State, c.Digest = CheckDone, d; err != nil {
		c.State, c.Digest, c.Err = CheckFailed, Digest{}, err
	}
}

// checkBegins notes a check whose entry is about to be published.
func checkBegins(r *Replica, index uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k, c := &r.checks, Check{Index: index, State: CheckWaits}
	switch {
	case r.c.Check == nil:
		c.State, c.Err = CheckFailed, errors.New("replica: it has no base")
	case k.busy():
		c.State, c.Err = CheckFailed, ErrChecking
	default:
		k.hold = index
	}
	if len(k.all) == mostChecks {
		oldest := slices.IndexFunc(k.all, func(c Check) bool { return c.over() }) // at most one is not
		k.all = slices.Delete(k.all, oldest, oldest+1)
	}
	k.all = append(k.all, c)
}

// checkApplied tells of a check whose entry is published.
func checkApplied(r *Replica, id, index uint64) {
	r.mu.Lock()
	if r.checks.id == id {
		r.checks.answer <- checkAnswer{index: index}
		r.checks.id = 0
	}
	c := r.checks.at(index)
	waits := c != nil && c.State == CheckWaits
	r.mu.Unlock()
	if waits {
		r.c.Check(index)
	}
}

// over says whether it has ended.
func (c *Check) over() bool { return c.State == CheckDone || c.State == CheckFailed }

// at is the check at an index; nil: it is not known.
func (k *checks) at(index uint64) *Check {
	for i := range k.all {
		if k.all[i].Index == index {
			return &k.all[i]
		}
	}
	return nil
}

// busy says whether a check is under way.
func (k *checks) busy() bool {
	return slices.ContainsFunc(k.all, func(c Check) bool { return !c.over() })
}

// proposal is the check entry that is to be proposed; nil: there is none.
func (k *checks) proposal() []byte {
	if k.id == 0 || k.sent {
		return nil
	}
	return entry.AppendCheck(nil, k.id)
}

// lost answers whoever waits for a check: the replica orders no more.
func (k *checks) lost(why error) {
	if k.id != 0 {
		k.answer <- checkAnswer{err: why}
		k.id = 0
	}
}

// end ends what is under way, because the replica was stopped: nobody looks at the base any more, and the last checkpoint is to go to its end.
func (k *checks) end(why error) {
	k.lost(why)
	if c := k.at(k.hold); c != nil {
		c.State, c.Err = CheckFailed, why
	}
	k.hold = 0
}

// overtaken ends the check that waits for the base to be at a place that it has been led past.
func (k *checks) overtaken(applied uint64) {
	if k.hold == 0 || k.hold > applied {
		return
	}
	c := k.at(k.hold)
	c.State, c.Err, k.hold = CheckFailed, ErrOvertaken, 0
}
