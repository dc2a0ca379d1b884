package membership

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// A table is a region table, encoded: 37 bytes per region instead of three
// times as many. Immutable.
type table struct {
	node                         string
	incarnation, version, digest uint64
	regions                      uint32
	bytes                        []byte
}

func newTable(t *cluster.Table) *table {
	return &table{t.Node, t.Incarnation, t.Version, t.Digest(), uint32(len(t.Regions)), cluster.AppendTable(nil, t)}
}

func (t *table) decode() *cluster.Table {
	if t == nil {
		return nil
	}
	out, err := cluster.ParseTable(t.bytes)
	if err != nil {
		panic(err) // we have encoded it ourselves
	}
	return out
}

// maxTables bounds the bytes of all tables held: a thousand nodes of a
// thousand regions take 37 MB.
const maxTables = 256 << 20

// maxLead bounds how far an advert may run ahead of its node's metadata, so
// that one forged advert cannot lift the version out of the node's reach.
const maxLead = 1 << 16

// setTableLocked replaces the table of a peer; nil takes it away. It reports
// whether there was room.
func (m *Members) setTableLocked(p *peer, t *table) bool {
	size := m.tableBytes
	if p.table != nil {
		size -= len(p.table.bytes)
	}
	if t != nil {
		size += len(t.bytes)
		if size > maxTables {
			m.stats.dropped.Add(1)
			return false
		}
	}
	p.table, m.tableBytes, m.tableNews = t, size, true
	return true
}

// Table returns the newest table of a node that is known here, nil if there is
// none: of a node that is not, that publishes nothing, or whose table of its
// present incarnation has not come yet. It is decoded at each call.
func (m *Members) Table(node string) *cluster.Table {
	m.mu.Lock()
	t := m.own
	if node != m.cfg.NodeID {
		t = nil
		if p := m.peers[node]; p != nil && p.table != nil && p.table.incarnation == p.Incarnation {
			t = p.table
		}
	}
	m.mu.Unlock()
	return t.decode()
}

// Publish makes t the node's table, and tells everybody. Node and incarnation
// are filled in; the version becomes t's, or one above the last if that is not
// higher. The same regions again are no news. t belongs to the caller; what it
// refers to must not change any more. ErrMalformed of package cluster.
func (m *Members) Publish(t *cluster.Table) error {
	next := *t
	m.mu.Lock()
	next.Node, next.Incarnation = m.cfg.NodeID, m.self.Incarnation
	if last, _ := m.history.Last(); last != nil {
		if slices.Equal(last.Devices, next.Devices) && slices.EqualFunc(last.Regions, next.Regions, func(a, b cluster.Region) bool { return a.Equal(&b) }) {
			m.mu.Unlock()
			return nil
		}
		next.Version = max(next.Version, last.Version+1)
	}
	next.Version = max(next.Version, 1)
	err := next.Check()
	var advert []byte
	if err == nil {
		advert, err = m.adoptLocked(&next)
	}
	m.mu.Unlock()
	if err != nil {
		return err
	}
	m.spread(advert)
	m.hurry(advert)
	return nil
}

// adoptLocked makes a checked table our own and returns its advert.
func (m *Members) adoptLocked(t *cluster.Table) ([]byte, error) {
	m.history.Add(t)
	m.own = newTable(t)
	m.self.TableVersion, m.self.TableDigest, m.self.Regions = t.Version, m.own.digest, m.own.regions
	if err := m.encodeSelfLocked(); err != nil {
		return nil, err // cannot be: the numbers have fixed sizes
	}
	return cluster.AppendDelta([]byte{byte(kindAdvert)}, m.history.Delta(maxAdvert-1)), nil
}

func (m *Members) spread(advert []byte) {
	m.stats.made.Add(1)
	m.broadcast("table "+m.cfg.NodeID, advert)
	signal(m.changed)
	signal(m.dirty)
}

// askSpread, times the number of nodes, is the time over which they ask a node
// for its table when its advert was too large a change: that node can answer
// some hundred a second.
const askSpread = 2 * time.Millisecond

// hurryNodes is to how many nodes an advert goes at once, when it is new.
const hurryNodes = 5

// hurry sends an advert on without waiting for the next round of gossip: to a
// few nodes, each of which does the same. Where that does not reach, the
// rounds do.
func (m *Members) hurry(advert []byte) {
	if m.list == nil {
		return // published before there is anybody to tell
	}
	var to [hurryNodes]memberlist.Node
	n := 0
	m.mu.Lock()
	for _, p := range m.peers { // in random order
		if p.State == cluster.Alive {
			to[n] = p.node
			if n++; n == hurryNodes {
				break
			}
		}
	}
	m.mu.Unlock()
	for i := range n {
		_ = m.list.SendBestEffort(&to[i], advert)
	}
}

// advert handles a delta of a table that came by gossip; b is the message.
func (m *Members) advert(d *cluster.Delta, b []byte) {
	if m.learn(d, b) {
		m.hurry(b)
	}
}

// learn takes a delta and passes it on, if it is new.
func (m *Members) learn(d *cluster.Delta, b []byte) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d.Node == m.cfg.NodeID {
		m.forgedLocked(d.Incarnation, d.To, d.Digest)
		return false
	}
	p := m.peers[d.Node]
	switch {
	case p == nil || p.Incarnation != d.Incarnation:
		m.stats.old.Add(1) // of a node, or a life of it, that we know nothing of, or nothing any more
		return false
	case d.To > p.TableVersion+maxLead:
		m.stats.malformed.Add(1)
		return false
	case d.To <= p.heard || p.table != nil && p.table.version >= d.To:
		m.stats.old.Add(1)
		return false
	}
	p.heard = d.To
	m.stats.fresh.Add(1)
	next, err := p.table.decode().Apply(d)
	switch {
	case err == nil:
		m.setTableLocked(p, newTable(next))
		signal(m.dirty)
	case errors.Is(err, cluster.ErrGap):
		// No other advert will mend that: ask soon, but not all nodes at once.
		m.stats.gap.Add(1)
		m.wantLocked(p, d.To, "", rand.N(time.Duration(1+m.count.Load())*askSpread))
	}
	// New to us, so new to others. The queue has a lock of its own, innermost.
	m.broadcast("table "+d.Node, b)
	return true
}

// forgedLocked answers word of a table of ours that we never made: whoever
// believes it would not believe ours. Ours goes above it.
func (m *Members) forgedLocked(incarnation, version, digest uint64) {
	if m.own == nil || incarnation != m.own.incarnation || version < m.own.version ||
		version == m.own.version && digest == m.own.digest {
		return
	}
	if version > m.own.version+2*maxLead {
		m.stats.malformed.Add(1) // nobody believes that one
		return
	}
	last, _ := m.history.Last()
	next := *last
	next.Version = version + 1
	advert, err := m.adoptLocked(&next)
	if err != nil {
		return
	}
	m.stats.refuted.Add(1)
	m.say(event{kind: sayForged, msg: "gossip tells of a region table of ours that we never made: somebody with the gossip key forges, or an old process of this node is alive", args: []any{"version", version}})
	m.spread(advert)
}

// bye handles a goodbye.
func (m *Members) bye(g goodbye, b []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stoodDownLocked(g.node, g.incarnation) {
		m.broadcast("bye "+g.node, b)
	}
	p := m.peers[g.node]
	if p == nil || p.Incarnation != g.incarnation || p.bye == g.incarnation || g.incarnation == 0 {
		return
	}
	p.bye = g.incarnation
	if p.State == cluster.Dead {
		p.State = cluster.Left
		signal(m.dirty)
	}
	m.broadcast("bye "+g.node, b)
}

// localState is our part of a push/pull. For who joins, with tables.
func (m *Members) localState(join bool) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := state{from: m.cfg.NodeID}
	room := maxJoin
	add := func(t *table) {
		if t == nil || len(s.digests) == cluster.MaxNodes {
			return
		}
		s.digests = append(s.digests, digest{cluster.Hash(t.node), t.incarnation, t.version, t.digest})
		if join && room >= len(t.bytes) {
			room -= len(t.bytes)
			s.tables = append(s.tables, t.bytes)
		}
	}
	add(m.own)
	for _, p := range m.peers {
		if p.State == cluster.Alive || p.State == cluster.Suspect {
			add(p.table)
		}
	}
	self := m.stateSelfLocked()
	s.lives = append(s.lives, &self)
	for _, l := range m.lives {
		if len(s.lives) < cluster.MaxNodes {
			s.lives = append(s.lives, l)
		}
	}
	return s.append(nil)
}

// merge handles another node's part of a push/pull.
func (m *Members) merge(s *state) {
	for _, b := range s.tables {
		if t, err := cluster.ParseTable(b); err == nil {
			m.offer(t)
		} else {
			m.stats.malformed.Add(1)
		}
	}
	for _, l := range s.lives {
		m.learnLife(l, s.from)
	}
	self := cluster.Hash(m.cfg.NodeID)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range s.digests {
		if d.node == self {
			m.forgedLocked(d.incarnation, d.version, d.digest)
			continue
		}
		p := m.peers[m.byHash[d.node]]
		if p == nil || p.Incarnation != d.incarnation || d.version > p.TableVersion+maxLead {
			continue
		}
		if t := p.table; t == nil || t.version < d.version || d.version == p.TableVersion && d.digest == p.TableDigest && m.needsLocked(p) {
			m.wantLocked(p, d.version, s.from, 0)
		}
	}
}

// offer takes a whole table that came from somebody, if it is of use.
func (m *Members) offer(t *cluster.Table) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.peers[t.Node]
	if p == nil || p.Incarnation != t.Incarnation || t.Version > p.TableVersion+maxLead {
		return false
	}
	next := newTable(t)
	if old := p.table; old != nil {
		mends := next.version == p.TableVersion && next.digest == p.TableDigest && m.needsLocked(p)
		if next.version <= old.version && !mends {
			return false
		}
	}
	if !m.setTableLocked(p, next) {
		return false
	}
	p.heard = max(p.heard, next.version)
	signal(m.dirty)
	return true
}

// needsLocked reports whether the table we hold of a node is not what its
// metadata says.
func (m *Members) needsLocked(p *peer) bool {
	if p.TableVersion == 0 || p.State == cluster.Left || p.State == cluster.Dead {
		return false
	}
	t := p.table
	return t == nil || t.version < p.TableVersion || t.version == p.TableVersion && t.digest != p.TableDigest
}

// wantLocked notes that a table should be asked for, after a while in which an
// advert may still bring it. from told of it; "" if it is the node itself.
func (m *Members) wantLocked(p *peer, version uint64, from string, after time.Duration) {
	if p.want == nil {
		p.want = &wanted{next: time.Now().Add(after)}
	}
	p.want.version = max(p.want.version, version)
	if from != "" {
		p.want.teller = from
	}
	signal(m.dirty)
}
