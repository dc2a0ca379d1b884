package seat

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

// A group of the model: its replicas have logs, terms and votes as those of Raft have, and an election or a message takes effect at once. The logs have configurations
// and markers alone, because nothing else matters to who makes up a group.

// An entry of the model's log.
type entry struct {
	term   uint64
	config *consensus.Config // nil: a marker, or a write
}

// A member is a replica of a group of the model.
type member struct {
	id     consensus.ReplicaID
	node   string
	term   uint64
	log    []entry // the index of an entry is its place, from 1
	pub    int     // how many entries are published
	config consensus.Config

	// Of a leader. One that was deposed leads by its own word until it hears of the later term.
	leads bool
	match map[consensus.ReplicaID]int
	heard map[consensus.ReplicaID]bool // what it thinks who is there
	fresh bool                         // its node has heard which map is the newest since it was elected
}

// A raft is a group of the model.
type raft struct {
	id      uint32
	rand    *rand.Rand
	members map[consensus.ReplicaID]*member // those that are on some node's disk
	alive   func(node string) bool

	committed int              // the highest index that was committed
	config    consensus.Config // the newest configuration that was committed
	fault     func(format string, args ...any)
	space     bool // it is of a space
	dropped   bool // which is dropped: whoever hears of that gives it up, and the others go on until they do
}

func (r *raft) up(id consensus.ReplicaID) *member {
	if m := r.members[id]; m != nil && r.alive(m.node) {
		return m
	}
	return nil
}

// sorted are the replicas by id.
func (r *raft) sorted() (list []*member) {
	for _, m := range r.members {
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b *member) int { return int(a.id) - int(b.id) })
	return list
}

// leader is who leads in the highest term and is there; nil: nobody.
func (r *raft) leader() (l *member) {
	for _, m := range r.sorted() {
		if m.leads && r.alive(m.node) && (l == nil || m.term > l.term) {
			l = m
		}
	}
	return l
}

// elect has a replica stand. Who of those that may vote for it does is up to chance, but if all is said.
func (r *raft) elect(m *member, all bool) bool {
	if !m.config.Voter(m.id) || !r.alive(m.node) {
		return false
	}
	last := func(o *member) (uint64, int) {
		if len(o.log) == 0 {
			return 0, 0
		}
		return o.log[len(o.log)-1].term, len(o.log)
	}
	term, length := last(m)
	votes := []*member{m}
	for _, i := range r.rand.Perm(len(m.config.Voters)) {
		v := r.up(m.config.Voters[i].ID)
		if v == nil || v == m || !all && len(votes) >= m.config.Majority() {
			continue
		}
		if t, n := last(v); t < term || t == term && n <= length {
			votes = append(votes, v)
		}
	}
	if len(votes) < m.config.Majority() {
		return false
	}
	var high uint64
	for _, v := range votes {
		high = max(high, v.term)
	}
	for _, v := range votes {
		v.term, v.leads = high+1, false
	}
	m.leads, m.fresh = true, false
	m.match, m.heard = map[consensus.ReplicaID]int{}, map[consensus.ReplicaID]bool{}
	for _, v := range votes {
		m.heard[v.id] = true
	}
	m.log = append(slices.Clip(m.log), entry{term: m.term})
	return true
}

// send brings entries of a leader to another replica: all, or some.
func (r *raft) send(l *member, to consensus.ReplicaID, all bool) {
	p := r.up(to)
	if l.heard[to] = p != nil; p == nil {
		return
	}
	if p.term > l.term {
		l.leads = false
		return
	}
	p.term, p.leads = l.term, false
	same := 0
	for same < min(len(p.log), len(l.log)) && p.log[same] == l.log[same] {
		same++
	}
	n := len(l.log)
	if !all && same < n {
		n = same + r.rand.IntN(n-same+1)
	}
	if n > same {
		if same < p.pub {
			r.fault("group %d: replica %d loses entry %d, which it has published", r.id, p.id, same+1)
		}
		p.log = slices.Clone(l.log[:n])
	}
	l.match[to] = n
	p.publish(min(l.pub, n))
}

func (m *member) publish(upTo int) {
	for ; m.pub < upTo; m.pub++ {
		if c := m.log[m.pub].config; c != nil {
			m.config = *c
			m.config.Index = uint64(m.pub + 1)
		}
	}
}

// commit publishes at a leader what a majority has.
func (r *raft) commit(l *member) {
	for l.leads {
		n := 0 // that a majority has
		var have []int
		for _, v := range l.config.Voters {
			if v.ID == l.id {
				have = append(have, len(l.log))
			} else {
				have = append(have, l.match[v.ID])
			}
		}
		slices.Sort(have)
		n = have[len(have)-l.config.Majority()]
		if n <= l.pub || l.log[n-1].term != l.term {
			return
		}
		// A configuration counts from its entry on, so what follows it is counted anew.
		for i := l.pub; i < n; i++ {
			if l.log[i].config != nil {
				n = i + 1
			}
		}
		l.publish(n)
		r.note(l)
		l.leads = l.config.Voter(l.id) // one that was elected by an older configuration may find that it has no vote
	}
}

// note holds what was committed against what was committed before.
func (r *raft) note(l *member) {
	if l.pub <= r.committed {
		return
	}
	r.committed = l.pub
	if l.config.Index <= r.config.Index {
		return
	}
	if d := differ(&r.config, &l.config); d != 1 {
		r.fault("group %d: the configuration changes by %d members:\n%+v\n%+v", r.id, d, r.config, l.config)
	}
	r.config = l.config
	for _, v := range r.config.Voters {
		if r.members[v.ID] == nil && !r.dropped {
			r.fault("group %d: replica %d at %s votes, and its node has given it up", r.id, v.ID, v.Node)
		}
	}
}

// differ is by how many members two configurations differ.
func differ(a, b *consensus.Config) (n int) {
	role := func(c *consensus.Config, id consensus.ReplicaID) int {
		switch {
		case c.Voter(id):
			return 2
		case c.Learner(id):
			return 1
		}
		return 0
	}
	seen := map[consensus.ReplicaID]bool{}
	for _, list := range [][]consensus.Member{a.Voters, a.Learners, b.Voters, b.Learners} {
		for _, m := range list {
			if !seen[m.ID] && role(a, m.ID) != role(b, m.ID) {
				n++
			}
			seen[m.ID] = true
		}
	}
	return n
}

// changing says whether a change of the configuration is under way at a leader, or what the reigns before it have left is not known to be committed.
func (m *member) changing() bool {
	if m.pub == 0 || m.log[m.pub-1].term != m.term {
		return true
	}
	return slices.ContainsFunc(m.log[m.pub:], func(e entry) bool { return e.config != nil })
}

// status is what a replica says of itself.
func (m *member) status(group uint32) *consensus.Status {
	st := &consensus.Status{Group: consensus.GroupID(group), ID: m.id, Term: m.term, Leads: m.leads, Config: m.config,
		Last: uint64(len(m.log)), Committed: uint64(m.pub), Applied: uint64(m.pub)}
	if !m.leads {
		return st
	}
	for i, list := range [][]consensus.Member{m.config.Voters, m.config.Learners} {
		for _, p := range list {
			if p.ID != m.id {
				st.Peers = append(st.Peers, consensus.Peer{Member: p, Learner: i == 1, Match: uint64(m.match[p.ID]), Active: m.heard[p.ID]})
			}
		}
	}
	return st
}

// spare is how many more voters of a configuration a leader hears than it needs.
func (m *member) spare(c *consensus.Config) int {
	there := -c.Majority()
	for _, v := range c.Voters {
		if v.ID == m.id || m.heard[v.ID] {
			there++
		}
	}
	return there
}

// obey does what Next says.
func (r *raft) obey(l *member, do Doing) {
	switch do.Act {
	case Nothing:
		return
	case Transfer:
		to := r.up(do.Replica)
		if to == nil || to == l || r.rand.IntN(4) == 0 {
			return
		}
		r.send(l, do.Replica, true)
		if l.leads && to.term == l.term && r.elect(to, true) {
			r.send(to, l.id, true)
		}
		return
	}
	c := do.Config
	if err := c.Check(); err != nil {
		r.fault("group %d: %v: %v", r.id, do.Act, err)
	}
	if d := differ(&l.config, &c); d != 1 || !c.Voter(l.id) {
		r.fault("group %d: %v %d of leader %d changes %d members:\n%+v\n%+v", r.id, do.Act, do.Replica, l.id, d, l.config, c)
	}
	if (do.Act == Promote || do.Act == Demote) && l.spare(&c) < min(0, l.spare(&l.config)) {
		r.fault("group %d: %v %d leaves no majority that the leader hears", r.id, do.Act, do.Replica)
	}
	l.log = append(slices.Clip(l.log), entry{l.term, &c})
}

func (r *raft) String() string {
	s := fmt.Sprintf("group %d, committed %d, %+v\n", r.id, r.committed, r.config)
	for _, m := range r.sorted() {
		s += fmt.Sprintf("  %d at %s (there: %v): term %d, log %d, published %d, leads %v, fresh %v, %+v, match %v, heard %v\n",
			m.id, m.node, r.alive(m.node), m.term, len(m.log), m.pub, m.leads, m.fresh, m.config, m.match, m.heard)
	}
	return s
}
