package core

import (
	"maps"
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/log"
)

// Work is what a replica wants done.
type Work struct {
	Append *Append // nil: nothing. Appends are done in the order in which they were taken
	Apply  *Apply  // nil: nothing. The same of these, beside the appends
	Send   []*pb.Message
	Reads  []raft.ReadState
	Role   *Role // it changed
}

// An Append is what must be in the log before anybody hears of it. Its owner writes the
// entries and the state as one record of the log, waits until that is durable, tells the
// machine of a new term (Machine.Durable), and calls Appended.
type Append struct {
	Entries   []*pb.Entry
	State     log.State
	HasState  bool
	Snapshot  *pb.Snapshot // the machine is to adopt the state that it has received, and the log begins behind it
	Trim      uint64       // the entries up to here go; 0: none
	Adopting  *Adopting    // not nil: the machine is about to adopt this
	responses []*pb.Message
}

// Adopting is a snapshot that a machine is about to adopt. The log knows of it before, so that
// a start can tell a machine that is ahead of its log from a log that was set back.
type Adopting struct{ Index, Term uint64 }

// An Apply is entries that are committed. Its owner has the machine publish them and says
// which changes of configuration took effect, and calls Applied.
type Apply struct {
	Entries   []*pb.Entry
	Changes   []*pb.ConfChangeV2
	Config    *consensus.Config // behind the entries; nil: as before
	responses []*pb.Message
}

// A Role is who leads a group, as a replica sees it.
type Role struct {
	Term   uint64 // durable, if this replica leads
	Leader consensus.ReplicaID
	Leads  bool
}

// HasWork reports whether Take has something to say.
func (r *Replica) HasWork() bool {
	return len(r.out) > 0 || r.rn.HasReady() || r.roleChanged()
}

// Take returns what is to be done.
func (r *Replica) Take() (w Work, err error) {
	defer guard(&err)
	r.proposed = 0
	if r.rn.HasReady() {
		rd := r.rn.Ready()
		w.Reads = rd.ReadStates
		if rd.SoftState != nil {
			r.soft = *rd.SoftState
		}
		for _, m := range rd.Messages {
			switch m.GetTo() {
			case raft.LocalAppendThread:
				w.Append = r.append(m)
			case raft.LocalApplyThread:
				w.Apply = &Apply{Entries: m.GetEntries(), responses: m.GetResponses()}
				r.applying++
			default:
				r.send(m)
			}
		}
	}
	if r.roleChanged() {
		role := r.now()
		r.role, w.Role = role, &role
	}
	w.Send, r.out = r.out, nil
	return w, nil
}

// append makes an Append of what the library wants stored; nil: it can wait (R22).
func (r *Replica) append(m *pb.Message) *Append {
	a := &Append{Entries: m.GetEntries(), Snapshot: m.GetSnapshot(), responses: m.GetResponses()}
	if m.GetTerm() != 0 || m.GetVote() != 0 || m.GetCommit() != 0 {
		s := log.State{Term: m.GetTerm(), Vote: m.GetVote(), Commit: m.GetCommit()}
		a.HasState = s.Term != r.state.Term || s.Vote != r.state.Vote
		r.state, r.lazy = s, true
	}
	if !a.HasState && len(a.Entries) == 0 && a.Snapshot == nil && len(a.responses) == 0 {
		return nil
	}
	if a.Snapshot != nil {
		i := a.Snapshot.GetMetadata().GetIndex()
		r.open, r.last = nil, i
		r.state.Commit = max(r.state.Commit, i)
		r.lazy = true
	}
	r.note(a.Entries)
	if r.lazy && (a.HasState || len(a.Entries) > 0 || a.Snapshot != nil) {
		a.HasState = true
	}
	if a.HasState {
		a.State, r.lazy = r.state, false
	}
	return a
}

// Trim returns an append that takes the entries up to an index out of the log, because the
// machine has them durably. The commit index is in the same record if it was not appended
// yet, because a replica that has forgotten what was committed may stand with a
// configuration that is not in force any more (R22).
func (r *Replica) Trim(index uint64) *Append {
	a := &Append{Trim: index}
	if r.lazy {
		a.State, a.HasState, r.lazy = r.state, true, false
	}
	return a
}

// Appended tells that an append is durable, and that the machine knows of its term.
func (r *Replica) Appended(a *Append) (err error) {
	defer guard(&err)
	if a.HasState {
		r.word = max(r.word, a.State.Term)
	}
	if a.Snapshot != nil {
		r.published = max(r.published, a.Snapshot.GetMetadata().GetIndex())
	}
	if err := r.respond(a.responses); err != nil {
		return err
	}
	held := r.held
	r.held = nil
	for _, m := range held {
		r.send(m)
	}
	return nil
}

// Applied tells that the machine has published the entries of an Apply.
func (r *Replica) Applied(a *Apply) (err error) {
	defer guard(&err)
	r.applying--
	if n := len(a.Entries); n > 0 {
		r.published = max(r.published, a.Entries[n-1].GetIndex())
	}
	k := 0
	for k < len(r.open) && r.open[k] <= r.published {
		k++
	}
	r.open = r.open[k:]
	for _, cc := range a.Changes {
		r.rn.ApplyConfChange(cc)
	}
	if err := r.respond(a.responses); err != nil {
		return err
	}
	if m := r.snapshot; m != nil && r.applying == 0 {
		r.snapshot = nil
		return r.step(m)
	}
	return nil
}

// SnapshotWaits reports whether a snapshot was stepped and waits for Applied (R23).
func (r *Replica) SnapshotWaits() bool { return r.snapshot != nil }

// respond gives responses to whom they are for.
func (r *Replica) respond(list []*pb.Message) error {
	for _, m := range list {
		if m.GetTo() != r.id {
			r.send(m)
		} else if err := r.step(m); err != nil {
			return err
		}
	}
	return nil
}

// send lets a message leave, or holds it (R1).
func (r *Replica) send(m *pb.Message) {
	promises := m.GetType() != pb.MsgPreVote && (m.GetType() != pb.MsgPreVoteResp || m.GetReject())
	if promises && m.GetTerm() > r.word {
		if m.GetTerm() >= r.Term() && len(r.held) < maxHeld {
			r.held = append(r.held, m)
		}
		return
	}
	switch m.GetType() {
	case pb.MsgApp:
		if len(m.GetEntries()) == 0 && m.GetCommit() > r.clamp() {
			r.late[m.GetTo()] = m // Tick sends it
			return
		}
		delete(r.late, m.GetTo()) // the newer message says all that it would have said
		r.clampCommit(m)
	case pb.MsgHeartbeat:
		r.clampCommit(m)
		r.tell(m)
	}
	r.out = append(r.out, m)
}

// tell says in a heartbeat up to where this leader has published. The commit index of a heartbeat does not say it: it is never above what its
// receiver has. The library does not look at the index of a heartbeat. Before an entry of its own term is committed a leader says nothing, because
// its commit index may be older than what an earlier one has told.
func (r *Replica) tell(m *pb.Message) {
	if shown := min(r.state.Commit, r.clamp()); r.Leads() && r.newest == r.state.Term && shown >= r.began {
		m.Index = &shown
	}
}

// clampCommit holds back a commit index (R7).
func (r *Replica) clampCommit(m *pb.Message) {
	if c := r.clamp(); m.GetCommit() > c {
		m.Commit = &c
	}
}

// release sends what was held back to tell of a commit index: the library sends it when the
// entry is committed, and without this the clamp would leave nothing of it, so that the
// others would hear of the commit with the next heartbeat only. It waits for a tick, because
// most often entries follow before, which say it too, and two messages to each of the others,
// with nothing in them, are as much work as two with entries.
func (r *Replica) release() {
	for _, to := range slices.Sorted(maps.Keys(r.late)) {
		m := r.late[to]
		delete(r.late, to)
		if m.GetTerm() == r.Term() {
			r.clampCommit(m)
			r.out = append(r.out, m)
		}
	}
}

// now is the role as it may be told: a leader's term is durable.
func (r *Replica) now() Role {
	leads := r.Leads() && r.word >= r.state.Term
	role := Role{Term: r.state.Term, Leader: consensus.ReplicaID(r.soft.Lead), Leads: leads}
	if !leads && r.soft.Lead == r.id {
		role.Leader = 0
	}
	return role
}

// Role is the role as it was taken last.
func (r *Replica) Role() Role { return r.role }

func (r *Replica) roleChanged() bool { return r.now() != r.role }
