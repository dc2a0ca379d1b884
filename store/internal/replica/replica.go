package replica

import (
	"fmt"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/entry"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/logged"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
)

// Config is what a Replica works on. Its functions are called with no lock held; Propose is called
// by one goroutine at a time.
type Config struct {
	// Group is which, Stream where its entries stand in the log.
	Group  consensus.GroupID
	Stream uint64
	// Life tells this process from those that were this replica before, at random; not 0.
	Life uint64
	// Shards are all shards of the store, by their ids; Mine those of the group.
	Shards []*shard.Shard
	Mine   []uint16
	Seed   uint64 // of the hash of keys
	// Propose is consensus.Engine.Propose for the group. ErrBusy: it is called again.
	Propose func(term uint64, data []byte) error
	// Trim is consensus.Engine.Trim for the group: the base has the entries up to an index.
	Trim func(upTo uint64)
	// At tells where the record of an entry stands in the log.
	At func(index uint64) (log.Position, error)
	// Reserve takes memory for an item of an entry, without waiting. Class 0: there is none, and
	// the key goes without a slot.
	Reserve func(size int) (place layout.Place, class uint8)
	// Free gives back memory that was reserved for a write that is void.
	Free    func(place layout.Place, class uint8)
	Results *dedup.Table
	// Short makes durable that results were forgotten before their time (dedup.Table.Short). It waits for the disk.
	Short func()
	// Publish makes writes visible, in their order (R7).
	Publish func(writes []*flight.Flight)
	// Ready is told that this replica leads in a term and has published the marker that this process has proposed, before anything is ordered behind it (R11).
	Ready func(term uint64)
	// Configured is told of the configuration in force here: of one that an entry has made before Apply returns (R12), and of that of a state that
	// was installed.
	Configured func(consensus.Config)
	// Shown is told up to which entry the store's memory shows what entries do: of each entry before its writes are answered, and of what was
	// there at the start or was installed.
	Shown func(index uint64)
	// Check is told of a check that is applied, and that Due goes to from now on: whoever is told calls CheckStands when the base is there, and
	// CheckOver in any case. It waits for nothing. nil: the replica has no base that could be compared.
	Check func(index uint64)
	// Done is told of writes that were published. Those with a Done are answered by it; bytes is what
	// they were admitted with.
	Done func(writes []*flight.Flight, bytes int64)
	// Void is told of writes that were not done, with Result.Err set, and answers them.
	Void func(writes []*flight.Flight, bytes int64)
	// MostEntry is the largest entry that the engine takes; default consensus.MaxEntry. MostBytes is
	// where an entry is cut; one write alone may exceed it. Default 1 MiB.
	MostEntry, MostBytes int64
	// MostFlying is how many entries are on their way at once. Default 4.
	MostFlying int
	// Pause is after what time an entry is proposed again that the engine had no room for. Default 10 ms.
	Pause time.Duration
	// Patience is for how long writes wait for a marker when this replica orders no more, and Stall for how long they wait for an
	// entry while it orders (package doc). Defaults 2 s and 10 s.
	Patience, Stall time.Duration
}

// defaultPatience is five times the longest election. Groups that have a majority elect and publish a marker in less; if it were an
// election, writes would be answered "unknown" over each fail-over, although their own leader could say soon what became of them.
const defaultPatience = 2 * time.Second

// defaultStall is longer, because who leads hears a majority: most likely disks are slow, and what waits will be done.
const defaultStall = 10 * time.Second

// A role is what a replica may do.
type role uint8

const (
	follows role = iota
	stands       // it was elected, and its marker is not applied: it orders nothing
	leads        // it orders
)

// A batch is the writes of an entry that was cut, and is not applied.
type batch struct {
	first, next uint64
	writes      []*flight.Flight
	bytes       int64 // admitted
	cost        int64 // that the entry has at most, without its head
}

// A Replica is a replica of a group of shards. It is safe for concurrent use, but Apply is called by
// one goroutine at a time, and so are Leads and Follows.
type Replica struct {
	c    Config
	mine map[uint16]bool // shards

	// work is held while entries are published, and while writes are taken back: taking back empties the overlays of shards, in
	// which publishing looks for its own. It is taken before all other locks.
	work sync.Mutex

	mu     sync.Mutex // taken under locks of shards
	role   role
	term   uint64              // with stands and leads
	leader consensus.ReplicaID // with follows: who leads, or 0
	heard  uint64              // the newest term that the engine told of
	asked  bool                // the marker of the term is proposed
	reign  uint64              // that writes are ordered in; with leads
	next   uint64              // number of the next write that is ordered; with leads
	queue  []*flight.Flight    // ordered, in no entry yet
	flying []batch             // in entries, oldest first: of one reign
	cut    []byte              // the newest of flying, as an entry that is not proposed; nil: it is
	fell   time.Time           // when it ceased to order what is under way; with stands and follows
	moved  time.Time           // when the oldest of flying became that; with leads

	state   entry.State        // that is published
	configs []consensus.Config // applied, and not known to be in the base

	checks checks
	counts Counts

	wake chan struct{} // capacity 1
	over chan struct{} // closed by End

	parsed []logged.Write // of the last entry, to be used again; Apply's
}

// New returns a replica that has applied a group's entries up to a state.
func New(c Config, at entry.State) *Replica {
	if c.MostEntry == 0 {
		c.MostEntry = consensus.MaxEntry
	}
	if c.MostBytes == 0 {
		c.MostBytes = 1 << 20
	}
	c.MostBytes = min(c.MostBytes, c.MostEntry-entry.Head)
	if c.MostFlying == 0 {
		c.MostFlying = 4
	}
	if c.Pause == 0 {
		c.Pause = 10 * time.Millisecond
	}
	if c.Ready == nil {
		c.Ready = func(uint64) {}
	}
	if c.Configured == nil {
		c.Configured = func(consensus.Config) {}
	}
	if c.Shown == nil {
		c.Shown = func(uint64) {}
	}
	if c.Patience == 0 {
		c.Patience = defaultPatience
	}
	if c.Stall == 0 {
		c.Stall = defaultStall
	}
	if c.Life == 0 {
		panic("replica: a life of 0")
	}
	r := &Replica{c: c, mine: map[uint16]bool{}, wake: make(chan struct{}, 1), over: make(chan struct{}), state: at}
	for _, id := range c.Mine {
		r.mine[id] = true
	}
	return r
}

// Push numbers a write that was judged, and queues it; it implements pipeline.Pusher. The caller
// holds the lock of the shard, which is one of the group's. ErrNotLeader, ErrEpochs, and ErrTooLarge
// for what fits into no entry.
func (r *Replica) Push(f *flight.Flight) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.role != leads || f.Reign != 0 && f.Reign != r.reign {
		return r.notLeader()
	}
	if entry.Cost(f) > r.c.MostEntry-entry.Head {
		return fmt.Errorf("%w: a write to a replicated group has at most %d bytes", base.ErrTooLarge, r.c.MostEntry-entry.Head)
	}
	if r.next > layout.MaxNumber || uint64(f.Versions()) > layout.MaxNumber-r.next {
		return base.ErrEpochs
	}
	r.next = f.NumberInGroup(r.next)
	r.queue = append(r.queue, f)
	r.signal()
	return nil
}

// NotLeader says that this replica does not lead, and who may.
func (r *Replica) NotLeader() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.notLeader()
}

// notLeader says who may know more. Caller holds mu.
func (r *Replica) notLeader() error {
	e := &NotLeaderError{Group: r.c.Group, Term: r.heard}
	if r.role == follows {
		e.Leader = r.leader
	}
	return e
}

// A NotLeaderError says that another replica leads, and which, if that is known: a hint.
// errors.Is(e, base.ErrNotLeader) holds.
type NotLeaderError struct {
	Group  consensus.GroupID
	Term   uint64              // the newest that the replica knows of; 0: of none
	Leader consensus.ReplicaID // 0: not known, or there is none
}

// Error names the leader, if it is known.
func (e *NotLeaderError) Error() string {
	if e.Leader == 0 {
		return base.ErrNotLeader.Error()
	}
	return fmt.Sprintf("%v (replica %d)", base.ErrNotLeader, e.Leader)
}

// Is makes errors.Is(e, base.ErrNotLeader) hold.
func (e *NotLeaderError) Is(target error) bool { return target == base.ErrNotLeader }

// Ready reports whether the replica leads and orders, and since which entry.
func (r *Replica) Ready() (reign uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reign, r.role == leads
}

// Leads says that this replica was elected in a term; see consensus.Machine.
func (r *Replica) Leads(term uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.falls()
	r.counts.hears(r.heard, term)
	r.counts.Elected++
	r.role, r.term, r.asked, r.heard = stands, term, false, term
	r.checks.lost(r.notLeader())
	r.signal()
}

// Follows says that it does not lead; see consensus.Machine. What is under way stays so for a while: the next
// leader's marker says what became of it. If none comes, Run answers it.
func (r *Replica) Follows(term uint64, leader consensus.ReplicaID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.falls()
	r.counts.hears(r.heard, term)
	r.role, r.leader, r.heard, r.cut = follows, leader, term, nil
	r.checks.lost(r.notLeader())
}

// falls notes that the replica is about to order no more, if it does, and has Run look at what is under way. Caller holds mu.
func (r *Replica) falls() {
	if r.role == leads {
		r.fell = time.Now()
		r.signal()
	}
}

// signal wakes Run.
func (r *Replica) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Counts are what a replica has done, since it was made.
//
// They are counted under the lock of the replica, where what they count happens, so they cost a write nothing that it does not pay already.
type Counts struct {
	// Elected is how often it was elected, and Terms how often it has heard of a later term: of an election, most often. Where Terms rise and
	// Elected stands still at all replicas, nobody gets a majority.
	Elected, Terms uint64
	// Entries are those of writes that it has proposed as the leader and that its engine has taken, and Bytes theirs. One that is proposed
	// again, because a reign began, counts again.
	Entries, Bytes uint64
	// Checks are those that came to a digest here, and Failed those that did not (CheckAt says why).
	Checks, Failed uint64
}

// hears counts a term.
func (c *Counts) hears(before, now uint64) {
	if now > before {
		c.Terms++
	}
}

// checked counts the end of a check.
func (c *Counts) checked(err error) {
	if err != nil {
		c.Failed++
	} else {
		c.Checks++
	}
}

// CountsOf returns those of a replica, as of now. It is safe for concurrent use.
func CountsOf(r *Replica) Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts
}
