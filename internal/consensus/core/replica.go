package core

import (
	"errors"
	"fmt"
	"log/slog"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/log"
)

// Config is what a Replica is made of.
type Config struct {
	ID      consensus.ReplicaID
	Storage Storage
	State   consensus.State // of the machine
	Limits  Limits
	Logger  *slog.Logger // nil: nothing is logged
}

// maxHeld bounds the messages that wait for the word. A replica that is not ill holds a few
// for each of the others; what has no room is lost, as on a network.
const maxHeld = 256

// A Replica is one replica of a group. It is not safe for concurrent use.
type Replica struct {
	id   uint64
	rn   *raft.RawNode
	disk Storage

	word  uint64        // the highest term that is durable, and told to the machine
	state log.State     // what was handed out to be appended last
	lazy  bool          // state has a commit index that was not
	held  []*pb.Message // R1: their terms are above the word

	published uint64   // by the machine
	open      []uint64 // indexes of writes above published, rising
	last      uint64   // index of the newest entry
	applying  int      // batches at the machine
	snapshot  *pb.Message
	late      map[uint64]*pb.Message // empty MsgApps that tell of a commit index above the clamp, by receiver
	reads     uint64                 // questions of ReadIndex, in all terms
	proposed  uint64                 // entries that were proposed since the last Take
	newest    uint64                 // the newest term of which the log has entries
	began     uint64                 // index of the first of those; 0: there are none
	shown     uint64                 // what leaders have told in MsgHeartbeat.Index (tell)

	soft raft.SoftState // as of the last Take, like state
	out  []*pb.Message
	role Role // as it was taken last
}

// New returns a replica whose log and machine are as cfg says.
func New(cfg Config) (r *Replica, err error) {
	defer guard(&err)
	l := cfg.Limits.WithDefaults()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	rn, err := raft.NewRawNode(&raft.Config{
		ID: uint64(cfg.ID), Storage: cfg.Storage, Applied: cfg.State.Applied,
		ElectionTick: l.ElectionTicks, HeartbeatTick: l.HeartbeatTicks,
		MaxSizePerMsg: l.Message, MaxInflightMsgs: maxInflight, MaxInflightBytes: l.Inflight,
		MaxUncommittedEntriesSize: l.Uncommitted, MaxCommittedSizePerReady: l.Applying,
		AsyncStorageWrites: true, CheckQuorum: true, PreVote: true, StepDownOnRemoval: true,
		DisableProposalForwarding: true, Logger: &logger{cfg.Logger},
	})
	if err != nil {
		return nil, fmt.Errorf("consensus: %w", err)
	}
	r = &Replica{id: uint64(cfg.ID), rn: rn, disk: cfg.Storage, published: cfg.State.Applied, late: map[uint64]*pb.Message{}}
	s, _, err := cfg.Storage.InitialState()
	if err != nil {
		return nil, err
	}
	r.state = log.State{Term: s.GetTerm(), Vote: s.GetVote(), Commit: s.GetCommit()}
	r.word = r.state.Term
	if err := r.scan(cfg.State.Applied); err != nil {
		return nil, err
	}
	return r, nil
}

// scan notes the writes that the log has above applied.
func (r *Replica) scan(applied uint64) error {
	last, err := r.disk.LastIndex()
	if err != nil {
		return err
	}
	for i := applied + 1; i <= last; {
		entries, err := r.disk.Entries(i, last+1, 1<<20)
		if err != nil {
			return err
		}
		r.note(entries)
		i += uint64(len(entries))
	}
	r.last = max(last, applied)
	return nil
}

// note takes in entries that are about to be appended, or are there.
func (r *Replica) note(entries []*pb.Entry) {
	if len(entries) == 0 {
		return
	}
	first := entries[0].GetIndex()
	for len(r.open) > 0 && r.open[len(r.open)-1] >= first {
		r.open = r.open[:len(r.open)-1]
	}
	for _, e := range entries {
		if isWrite(e) && e.GetIndex() > r.published {
			r.open = append(r.open, e.GetIndex())
		}
		r.last = e.GetIndex()
		if e.GetTerm() > r.newest {
			r.newest, r.began = e.GetTerm(), e.GetIndex()
		}
	}
}

// isWrite says whether an entry is a machine's. The library's own are empty.
func isWrite(e *pb.Entry) bool { return e.GetType() == pb.EntryNormal && len(e.GetData()) > 0 }

// clamp is the highest commit index that may leave (R7).
func (r *Replica) clamp() uint64 {
	if len(r.open) > 0 {
		return r.open[0] - 1
	}
	return r.last
}

// Tick tells that a tick of time has passed.
func (r *Replica) Tick() (err error) {
	defer guard(&err)
	r.rn.Tick()
	r.release()
	return nil
}

// Pause is a tick in which no time passes: what waits for a tick leaves.
func (r *Replica) Pause() { r.release() }

// Step takes in a message of another replica. It was checked (Check); the sender is who it
// says. MsgSnap is stepped when the machine has received the state.
func (r *Replica) Step(m *pb.Message) (err error) {
	defer guard(&err)
	if m.GetType() == pb.MsgSnap && r.applying > 0 {
		r.snapshot = m // R23
		return nil
	}
	if m.GetType() == pb.MsgHeartbeat && m.GetTerm() >= r.Term() {
		r.shown = max(r.shown, m.GetIndex())
	}
	return r.step(m)
}

// step gives a message to the library; what it ignores is no error.
func (r *Replica) step(m *pb.Message) error {
	switch err := r.rn.Step(m); {
	case err == nil, errors.Is(err, raft.ErrStepPeerNotFound), errors.Is(err, raft.ErrProposalDropped):
		return nil
	default:
		return err
	}
}

// Propose appends an entry to the log of this replica, which leads. ErrNotLeader and
// ErrBusy say that it is not in the log.
func (r *Replica) Propose(data []byte) (err error) {
	defer guard(&err)
	if !r.Leads() {
		return consensus.ErrNotLeader
	}
	_, err = r.proposal(r.rn.Propose(data))
	return err
}

// proposal takes in what came of a proposal, and returns the index of its entry.
func (r *Replica) proposal(err error) (uint64, error) {
	switch {
	case err == nil:
		r.proposed++
		return r.last + r.proposed, nil
	case errors.Is(err, raft.ErrProposalDropped):
		return 0, consensus.ErrBusy
	}
	return 0, err
}

// ProposeChange appends a change of configuration and returns the index of its entry. The
// library puts an empty entry in its place if another change may be under way: what came of
// it shows when the entry is applied.
func (r *Replica) ProposeChange(cc *pb.ConfChangeV2) (index uint64, err error) {
	defer guard(&err)
	if !r.Leads() {
		return 0, consensus.ErrNotLeader
	}
	return r.proposal(r.rn.ProposeConfChange(cc))
}

// ReadIndex asks which index was committed at the call, confirmed by a majority that has
// heard of no newer leader. The answer is one of Work.Reads with this name, or never comes.
func (r *Replica) ReadIndex(name []byte) (err error) {
	defer guard(&err)
	r.reads++
	r.rn.ReadIndex(name)
	return nil
}

// Transfer asks a voter to stand once it has all entries.
func (r *Replica) Transfer(to consensus.ReplicaID) (err error) {
	defer guard(&err)
	r.rn.TransferLeader(uint64(to))
	return nil
}

// Campaign has this replica stand at once.
func (r *Replica) Campaign() (err error) {
	defer guard(&err)
	return r.rn.Campaign()
}

// Unreachable tells that what was sent to a replica last may be lost.
func (r *Replica) Unreachable(id consensus.ReplicaID) (err error) {
	defer guard(&err)
	r.rn.ReportUnreachable(uint64(id))
	return nil
}

// Sent tells what came of a snapshot for a replica. It must follow each MsgSnap.
func (r *Replica) Sent(id consensus.ReplicaID, ok bool) (err error) {
	defer guard(&err)
	s := raft.SnapshotFinish
	if !ok {
		s = raft.SnapshotFailure
	}
	r.rn.ReportSnapshot(uint64(id), s)
	return nil
}

// Stands reports whether this replica asks for votes, as far as it knew at the last Take.
func (r *Replica) Stands() bool { return r.soft.RaftState == raft.StateCandidate }

// Leads reports whether this replica leads, as far as it knew at the last Take.
func (r *Replica) Leads() bool { return r.soft.RaftState == raft.StateLeader }

// Term is the newest term that this replica knew of at the last Take; it may not be durable.
func (r *Replica) Term() uint64 { return r.state.Term }

// Word is the newest term that is durable.
func (r *Replica) Word() uint64 { return r.word }

// Last is the index of the newest entry.
func (r *Replica) Last() uint64 { return r.last }

// Committed is the commit index of the last Take.
func (r *Replica) Committed() uint64 { return r.state.Commit }

// Shown is the highest index up to which leaders have told, since New, that they have published; 0: none has told. A replica that has published as much
// has what its group had shown when the leader was heard.
func (r *Replica) Shown() uint64 { return r.shown }

// Peers appends what a leader knows of the other replicas.
func (r *Replica) Peers(list []consensus.Peer) []consensus.Peer {
	if !r.Leads() {
		return list
	}
	r.rn.WithProgress(func(id uint64, kind raft.ProgressType, p tracker.Progress) {
		if id != r.id {
			list = append(list, consensus.Peer{
				Member: consensus.Member{ID: consensus.ReplicaID(id)}, Learner: kind == raft.ProgressTypeLearner,
				Match: p.Match, Snapshot: p.State == tracker.StateSnapshot, Active: p.RecentActive,
			})
		}
	})
	return list
}

// Best is the voter that has most of a leader's entries; 0: none was heard of lately.
func (r *Replica) Best() (best consensus.ReplicaID) {
	match := uint64(0)
	for _, p := range r.Peers(nil) {
		if !p.Learner && p.Active && !p.Snapshot && p.Match >= match {
			best, match = p.ID, p.Match
		}
	}
	return best
}
