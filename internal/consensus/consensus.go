package consensus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
)

// A GroupID names a group in a cluster. It is never used twice.
type GroupID uint32

// A ReplicaID names a replica of a group. It is never 0, and never used twice in a group,
// whichever node has the replica: a node that lost its log comes back under another one.
type ReplicaID uint64

// A Member is a replica and where it is.
type Member struct {
	ID   ReplicaID
	Node string
}

// A Config says who makes up a group. It is immutable.
type Config struct {
	Index    uint64   // of the entry that made it, or of the snapshot that the group started from
	Voters   []Member // by ID, rising
	Learners []Member // they get entries, and have no vote; by ID, rising
}

// MaxNode bounds the name of a node, in bytes.
const MaxNode = 255

// MaxMembers bounds the voters, and the learners, of a group.
const MaxMembers = 15

// Check holds a configuration to its rules. ErrConfig.
func (c *Config) Check() error {
	if len(c.Voters) == 0 || len(c.Voters) > MaxMembers || len(c.Learners) > MaxMembers {
		return fmt.Errorf("%w: %d voters and %d learners; 1 to %d and at most %d are possible", ErrConfig, len(c.Voters), len(c.Learners), MaxMembers, MaxMembers)
	}
	seen := map[string]ReplicaID{}
	for _, list := range [2][]Member{c.Voters, c.Learners} {
		for i, m := range list {
			switch {
			case m.ID == 0 || m.Node == "" || len(m.Node) > MaxNode:
				return fmt.Errorf("%w: replica %d at node %.40q; ids begin at 1, and names have 1 to %d bytes", ErrConfig, m.ID, m.Node, MaxNode)
			case i > 0 && list[i-1].ID >= m.ID:
				return fmt.Errorf("%w: replica %d stands behind replica %d", ErrConfig, m.ID, list[i-1].ID)
			}
			if other, ok := seen[m.Node]; ok {
				return fmt.Errorf("%w: replicas %d and %d at one node, %q", ErrConfig, other, m.ID, m.Node)
			}
			seen[m.Node] = m.ID
		}
	}
	for _, m := range c.Learners {
		if c.Voter(m.ID) {
			return fmt.Errorf("%w: replica %d is voter and learner", ErrConfig, m.ID)
		}
	}
	return nil
}

// Voter reports whether a replica is a voter.
func (c *Config) Voter(id ReplicaID) bool { return has(c.Voters, id) }

// Learner reports whether a replica is a learner.
func (c *Config) Learner(id ReplicaID) bool { return has(c.Learners, id) }

// Node returns the node of a replica; empty: it is none of the group's.
func (c *Config) Node(id ReplicaID) string {
	for _, list := range [2][]Member{c.Voters, c.Learners} {
		if i, ok := find(list, id); ok {
			return list[i].Node
		}
	}
	return ""
}

// Majority is how many voters are more than half of them.
func (c *Config) Majority() int { return len(c.Voters)/2 + 1 }

func find(list []Member, id ReplicaID) (int, bool) {
	return slices.BinarySearchFunc(list, id, func(m Member, id ReplicaID) int {
		switch {
		case m.ID < id:
			return -1
		case m.ID > id:
			return 1
		}
		return 0
	})
}

func has(list []Member, id ReplicaID) bool {
	_, ok := find(list, id)
	return ok
}

// A Kind says what an entry is.
type Kind uint8

const (
	Write  Kind = iota + 1 // Data is what a Machine has proposed
	Change                 // Config is what the group is made of from here on
	Empty                  // the engine's own: nothing to do
)

// An Entry is one of a group's log, as a machine applies it. Data is valid until Apply
// returns.
type Entry struct {
	Index, Term uint64
	Kind        Kind
	Data        []byte
	Config      *Config // of a Change. A change that was void (it was not the next one) is Empty
}

// The body of an entry's record in the node's log, for those who read the log beside the engine.
// An Empty one has none:
//
//	+------+---------------------------------------------------------+
//	| kind | data: of a Write what was proposed; of a Change what is |
//	|  8   | the engine's own                                        |
//	+------+---------------------------------------------------------+
const bodyHead = 1

// BodySize is how many bytes the body of an entry has.
func BodySize(k Kind, data int) int {
	if k == Empty {
		return 0
	}
	return bodyHead + data
}

// PutBody writes the body of an entry, which is not Empty, into b of BodySize bytes.
func PutBody(b []byte, k Kind, data []byte) {
	b[0] = byte(k)
	copy(b[bodyHead:], data)
}

// ParseBody says what a body is; data aliases it. ErrEntry.
func ParseBody(body []byte) (k Kind, data []byte, err error) {
	if len(body) == 0 {
		return Empty, nil, nil
	}
	switch k = Kind(body[0]); k {
	case Write, Change:
		return k, body[bodyHead:], nil
	}
	return 0, nil, fmt.Errorf("%w: kind %d", ErrEntry, body[0])
}

// A State is up to where a machine has the entries, durably.
type State struct {
	Applied uint64 // the index of the newest entry; that of the base, of a machine that has only that
	Term    uint64 // of that entry
	Config  Config // as it was then
}

// A Machine is what a replica's entries are for: the store of a group. The engine calls
// Apply, Snapshot and Adopt of one machine by one goroutine at a time; beside them Durable
// by one at a time, and Leads and Follows by one at a time. These three must not block. Leads
// and Follows, of any replica, may come in the goroutine of a caller of the engine: who calls
// it holds no lock that they take. An error of State, Apply or Adopt fences the replica: the engine stops it, and says so. Of
// a replica that led and is stopped or fenced the last call is Follows.
type Machine interface {
	// State returns what the machine durably has. The entries behind it are applied
	// again. It is called before all others.
	State() (State, error)
	// Apply takes in entries that are committed, in the order of their indexes, and has
	// published them when it returns (R7): readers see them. They need not be durable.
	// A Change is alone in its call; when Apply returns, what tells readers of the
	// configuration's number tells it (R12). Void is what the machine judges so; the
	// engine knows nothing of it.
	Apply(entries []Entry) error
	// Durable tells that a term is in the synced log: the word rises to it (R10). The
	// engine sends neither a vote nor anything else of the term before it returns.
	Durable(term uint64)
	// Leads tells that this replica was elected in a term, which is durable. What a
	// machine proposes from now on until Follows is proposed in this term or in none.
	Leads(term uint64)
	// Follows tells that it does not lead any more; leader is who does, 0 if that is not
	// known, and term the newest term that it knows of.
	Follows(term uint64, leader ReplicaID)
	// Snapshot returns the machine's state between two Apply (R8). The caller reads it
	// beside further Apply, and closes it.
	Snapshot(ctx context.Context) (Snapshot, error)
	// Receive reads a snapshot of another replica to its end, and leaves the machine as it
	// is. It runs beside Apply.
	Receive(ctx context.Context, s State, r io.Reader) (Received, error)
	// Adopt makes the state that was received the machine's, in one durable step; the
	// entries up to it are never applied. A crash leaves the old state or the new one.
	Adopt(Received) error
}

// A Snapshot is the state of a machine at one index.
type Snapshot interface {
	State() State
	io.Reader
	io.Closer
}

// A Received snapshot is at its receiver, whole, and not in force. Close drops it, unless it was
// adopted.
type Received interface {
	State() State
	io.Closer
}

// A Status is what an engine knows of a replica, at one moment.
type Status struct {
	Group     GroupID
	ID        ReplicaID
	Term      uint64 // durable
	Leader    ReplicaID
	Leads     bool
	Config    Config // in force here
	Last      uint64 // index of the newest entry of the log
	LastTerm  uint64 // its term; 0: there is none, or it is trimmed and nothing is behind it
	Committed uint64
	Applied   uint64 // published by the machine
	First     uint64 // index of the oldest entry that is not trimmed
	Full      bool   // the disk of this node takes no puts, or did not a short while ago
	Shown     uint64 // the highest index up to which leaders have told, since the start of the replica, that they have published; 0: none has told
	Peers     []Peer // of a leader
	Fenced    error
}

// A Peer is what a leader knows of another replica.
type Peer struct {
	Member
	Learner  bool
	Match    uint64 // the index up to which it has the leader's entries, durably
	Snapshot bool   // it is being sent a snapshot
	Active   bool   // it was heard of within an election timeout and two heartbeats
	Room     bool   // its node has said last that its disk takes puts
}

// MaxEntry bounds an entry, in bytes.
const MaxEntry = 2 << 20

// An Engine runs the replicas of a node. It is safe for concurrent use.
type Engine interface {
	// Create gives a replica that never was its log, durably, so that Start finds it.
	// State is the machine's: the state that all replicas of the group start from, or
	// nothing for one that gets it from the others. It may be called again until Start was.
	Create(g GroupID, id ReplicaID, s State) error
	// Start starts a replica. ErrNoLog: its log is gone, or lacks entries that the machine
	// does not have; such a replica must never start, because it has forgotten what it
	// promised (R18, R19).
	Start(ctx context.Context, g GroupID, id ReplicaID, m Machine) error
	// Propose queues an entry of a leader. What comes of it the machine hears: it is
	// applied, or another entry is, or the replica follows. Data is the engine's until
	// then. ErrNotLeader, ErrBusy, ErrTooLarge: nothing was queued.
	Propose(g GroupID, term uint64, data []byte) error
	// Barrier returns when this replica, which leads, has published all that was
	// committed at the call, and a majority has confirmed that it led then (ReadIndex).
	// ErrNotLeader: it does not lead, or no majority has confirmed it for some seconds.
	Barrier(ctx context.Context, g GroupID) error
	// Change makes a configuration of c.Voters and c.Learners, which differ by one member
	// from the one that the group has since entry expect. It returns when this replica,
	// which leads, has applied it. ErrChanged: the group has another one, or a change of
	// it is under way. ErrConfig: the group cannot go there in one step, or its leader
	// would take itself out. ErrUnknown, or an error of ctx: it may still happen.
	Change(ctx context.Context, g GroupID, c Config, expect uint64) error
	// Transfer asks another voter to stand, once it has all entries. It returns when this
	// replica follows. ErrTransfer: it leads still.
	Transfer(ctx context.Context, g GroupID, to ReplicaID) error
	// Trim tells that the machine durably has the entries up to an index (R6). What others
	// still need is kept.
	Trim(g GroupID, upTo uint64) error
	// Status tells of a replica, as of its last turn.
	Status(g GroupID) (Status, error)
	// Stop stops a replica; forget: its log is dropped, and its id is never used again.
	// The machine is not called any more when Stop returns.
	Stop(g GroupID, forget bool) error
}

// A Salvager gets out of a replica what a group that has lost its majority for good is to go on with. An Engine may be one.
type Salvager interface {
	// Salvage has a machine apply all entries that a replica's log has, also those of which nobody knows whether they are committed, and returns the index of
	// the newest one. A write that was acknowledged may be among them: a majority had it, and this replica may not have heard of that. The replica does not run,
	// and must never be started again once Salvage was called, because it has applied what others may replace. Salvage may be called again after an error.
	//
	// Errors: ErrNoLog, ErrClosed, ctx's, and those of the log and of the machine.
	Salvage(ctx context.Context, g GroupID, id ReplicaID, m Machine) (last uint64, err error)
}

// Errors. They are wrapped with what they are about.
var (
	// ErrConfig: a configuration breaks a rule; nothing was done.
	ErrConfig = errors.New("consensus: no possible configuration")
	// ErrNoGroup: this node has no replica of the group.
	ErrNoGroup = errors.New("consensus: no replica of the group here")
	// ErrNotLeader: this replica does not lead its group, or not in that term.
	ErrNotLeader = errors.New("consensus: the replica does not lead its group")
	// ErrBusy: so much is under way that nothing more is taken; ask again later.
	ErrBusy = errors.New("consensus: too much is under way")
	// ErrTooLarge: an entry of more than MaxEntry bytes.
	ErrTooLarge = errors.New("consensus: the entry is too large")
	// ErrChanged: the group's configuration is not the one that was expected.
	ErrChanged = errors.New("consensus: the group has another configuration")
	// ErrUnknown: the change may still happen; look at the configuration.
	ErrUnknown = errors.New("consensus: the outcome of a change is not known")
	// ErrTransfer: the other voter has not taken over; this replica may lead still.
	ErrTransfer = errors.New("consensus: the other voter did not take over")
	// ErrNotTaken: a snapshot was not adopted; its replica has heard of a newer leader, or
	// has caught up by itself.
	ErrNotTaken = errors.New("consensus: the snapshot was not adopted")
	// ErrSlow: a snapshot was given up by its receiver, because too little of it came.
	ErrSlow = errors.New("consensus: the snapshot comes too slowly")
	// ErrFenced: the replica was stopped by an error, and takes part in nothing.
	ErrFenced = errors.New("consensus: the replica is fenced")
	// ErrClosed: the engine is closed, or the replica was stopped.
	ErrClosed = errors.New("consensus: closed")
	// ErrNoLog: the replica's machine has taken part in its group, and its log is not
	// there, or not all of it. It has forgotten what it promised, so it must not start
	// (R18).
	ErrNoLog = errors.New("consensus: the log of a replica that took part is gone")
	// ErrEntry: an entry in the log that this program does not know; a newer one wrote it.
	ErrEntry = errors.New("consensus: an entry of a newer program: use that one")
	// ErrMessage: a message of a peer that no replica of ours sends.
	ErrMessage = errors.New("consensus: malformed message")
)
