package membership

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// refuseKey stands beside the refusals of the door: memberlist finds it.
const refuseKey refusal = 4

// Stats counts what happened since Start.
type Stats struct {
	Members    map[cluster.State]int // ourselves included
	Health     int                   // memberlist's: 0 is well, above it suspects itself of being slow
	TCPOnly    []string              // nodes that answer our probes by TCP, and not by UDP
	Tables     int                   // region tables held of others
	TableBytes int                   // that those take, encoded
	Queued     int                   // broadcasts that wait to be sent

	AdvertsMade, AdvertsNew, AdvertsOld uint64 // tables: ours; of others, new and passed on; of others, known before
	Refuted                             uint64 // tables in this node's name that it never made
	Mended                              uint64 // push/pulls begun because a table was missing
	Malformed                           uint64 // messages that broke a rule
	Dropped                             uint64 // messages for which there was no room

	WrongKey, WrongCluster, NotAllowed, Busy uint64 // gossip of others that was turned away
	LastRefused                              Refused
	Conflicts                                uint64     // messages about two nodes with one id
	Unproved                                 uint64     // claims and statements that lack the proof of the cluster's secret
	Open                                     []Conflict // seen lately, by node
	LastConflict                             Refused

	// JoinErrors is why a seed was not reached at the last attempt, by the
	// address in Join; empty for one that was.
	JoinErrors map[string]string
}

// Refused is the last case of something that went wrong between two nodes.
type Refused struct {
	Time time.Time
	Addr string
	Why  string
}

// counters are the parts of Stats that callbacks change.
type counters struct {
	made, fresh, old, refuted, mended              atomic.Uint64
	malformed, dropped                             atomic.Uint64
	key, label, address, busy, conflicts, unproved atomic.Uint64

	mu           sync.Mutex // innermost
	lastRefused  Refused
	lastConflict Refused
	join         map[string]string
}

// refuse counts a refusal by its reason and records it as the last one.
func (c *counters) refuse(r refusal, addr string) {
	why := ""
	switch r {
	case refuseKey:
		c.key.Add(1)
		why = "another gossip key"
	case refuseLabel:
		c.label.Add(1)
		why = "another cluster.name"
	case refuseAddress:
		c.address.Add(1)
		why = "outside gossip.allow"
	case refuseBusy:
		c.busy.Add(1)
		why = "too many connections"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastRefused = Refused{time.Now(), clean(addr), why}
}

// joined records why a seed was not reached; "" says that it was.
func (c *counters) joined(seed, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.join == nil {
		c.join = map[string]string{}
	}
	if why == "" {
		delete(c.join, seed)
		return
	}
	c.join[seed] = why
}

// Stats returns the counters.
func (m *Members) Stats() Stats {
	c := &m.stats
	s := Stats{
		Members: map[cluster.State]int{},
		Health:  m.list.GetHealthScore(), Queued: m.queue.NumQueued(),
		AdvertsMade: c.made.Load(), AdvertsNew: c.fresh.Load(), AdvertsOld: c.old.Load(),
		Refuted: c.refuted.Load(), Mended: c.mended.Load(),
		Malformed: c.malformed.Load(), Dropped: c.dropped.Load(),
		WrongKey: c.key.Load(), WrongCluster: c.label.Load(), NotAllowed: c.address.Load(), Busy: c.busy.Load(),
		Conflicts: c.conflicts.Load(), Unproved: c.unproved.Load(), JoinErrors: map[string]string{},
	}
	for _, p := range m.View().Members {
		s.Members[p.State]++
	}
	c.mu.Lock()
	s.LastRefused, s.LastConflict = c.lastRefused, c.lastConflict
	for seed, why := range c.join {
		s.JoinErrors[seed] = why
	}
	c.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, p := range m.peers {
		if p.table != nil {
			s.Tables++
		}
		if p.tcpOnly && (p.State == cluster.Alive || p.State == cluster.Suspect) {
			s.TCPOnly = append(s.TCPOnly, id)
		}
	}
	slices.Sort(s.TCPOnly)
	s.TableBytes = m.tables.bytes
	m.referee.conflictsLocked(time.Now())
	for _, c := range m.referee.conflicts {
		s.Open = append(s.Open, *c)
	}
	slices.SortFunc(s.Open, func(a, b Conflict) int { return cmp.Or(cmp.Compare(a.Node, b.Node), a.First.Compare(b.First)) })
	return s
}
