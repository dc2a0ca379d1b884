package membership

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// A table is a region table of another node, encoded: 37 bytes per region instead of
// three times as many. It is immutable.
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
		panic(err) // this node has encoded it itself
	}
	return out
}

// maxTables bounds the bytes of all tables held. The largest tables of
// cluster.MaxNodes nodes with one device take 19 MiB.
const maxTables = 64 << 20

// maxLead bounds how far a table may run ahead of its node's metadata, so that
// one forged table cannot lift the version out of the node's reach.
const maxLead = 1 << 16

// tables are the region tables: this node's own, and what happens to those of others,
// which each peer has. Members.mu guards them.
type tables struct {
	m       *Members
	own     *cluster.Table // published last, nil: none
	encoded *table         // as it is gossiped, nil if there is none or it has too many regions
	forged  bool           // our table was forged, and ours went above it: for refute
	came    uint64         // how many tables of others came since the start
	bytes   int            // of the tables of others
	news    bool           // a table came or went since the last view
}

// setLocked replaces the table of a peer; nil takes it away. It reports whether there
// was room.
func (ts *tables) setLocked(p *peer, t *table) bool {
	size := ts.bytes
	if p.table != nil {
		size -= len(p.table.bytes)
	}
	if t != nil {
		size += len(t.bytes)
		if size > maxTables {
			ts.m.stats.dropped.Add(1)
			return false
		}
	}
	ts.came++
	p.table, p.came, ts.bytes, ts.news = t, ts.came, size, true
	return true
}

// Table returns the newest table of a node that is known here. It is nil if there is
// none: the node is not known, or publishes nothing or too much (cluster.MaxGossip),
// or its table of its present incarnation has not come yet. It is decoded at each
// call.
func (m *Members) Table(node string) *cluster.Table {
	m.mu.Lock()
	if node == m.cfg.NodeID {
		defer m.mu.Unlock()
		if m.tables.own == nil {
			return nil
		}
		own := *m.tables.own
		return &own
	}
	var t *table
	if p := m.peers[node]; p != nil && p.table != nil && p.table.incarnation == p.Incarnation {
		t = p.table
	}
	m.mu.Unlock()
	return t.decode()
}

// Publish makes t the node's table, and tells the other nodes. Node and incarnation
// are filled in; the version becomes t's, or one above the last if that is not
// higher. The same regions again are no news. If a table has more than
// cluster.MaxGossip regions, others learn only the version and the number of regions.
// t belongs to the caller; what it refers to must not change any more. The error is
// ErrMalformed of package cluster.
func (m *Members) Publish(t *cluster.Table) error {
	next := *t
	m.mu.Lock()
	next.Node, next.Incarnation = m.cfg.NodeID, m.self.Incarnation
	if last := m.tables.own; last != nil {
		if slices.Equal(last.Devices, next.Devices) && slices.EqualFunc(last.Regions, next.Regions, func(a, b cluster.Region) bool { return a.Equal(&b) }) {
			m.mu.Unlock()
			return nil
		}
		next.Version = max(next.Version, last.Version+1)
	}
	next.Version = max(next.Version, 1)
	err := next.Check()
	if err == nil {
		err = m.tables.adoptLocked(&next)
	}
	advert := m.tables.ownAdvertLocked()
	m.mu.Unlock()
	if err == nil {
		m.tables.spread(advert)
	}
	return err
}

// adoptLocked makes a checked table our own.
func (ts *tables) adoptLocked(t *cluster.Table) error {
	ts.own, ts.encoded = t, nil
	if len(t.Regions) <= cluster.MaxGossip {
		ts.encoded = newTable(t)
	}
	ts.m.self.TableVersion, ts.m.self.TableDigest, ts.m.self.Regions = t.Version, t.Digest(), uint32(len(t.Regions))
	return ts.m.encodeSelfLocked() // no error: the numbers have fixed sizes
}

// ownAdvertLocked returns the message that carries our table; nil if none may.
func (ts *tables) ownAdvertLocked() []byte {
	if ts.encoded == nil {
		return nil
	}
	return append([]byte{byte(kindAdvert)}, ts.encoded.bytes...)
}

// spread tells others of our table: by an advert, if there is one, and by the
// metadata.
func (ts *tables) spread(advert []byte) {
	if advert != nil {
		ts.m.stats.made.Add(1)
		ts.pass(ts.m.cfg.NodeID, advert)
	}
	signal(ts.m.changed)
	signal(ts.m.dirty)
}

// hurryNodes is to how many nodes a new message goes at once.
const hurryNodes = 5

// pass tells others of a table of a node; b is the advert. A small one goes to a few
// nodes at once and into the rounds of gossip, a large one to a few nodes over the
// reliable channel. Each of them passes it on in the same way if it is new there, so
// that all but a few nodes in a thousand have it: those learn of it from the
// metadata, and get it with a push/pull.
func (ts *tables) pass(node string, b []byte) {
	if len(b) <= maxPacket {
		ts.m.broadcast("table "+node, b)
		ts.m.hurry(b)
		return
	}
	for _, to := range ts.m.some(node) {
		ts.m.out.post(sending{to, b})
	}
}

// hurry sends a small message on without waiting for the next round of gossip: to a
// few nodes, each of which does the same. The rounds bring it to the nodes that it
// does not reach so.
func (m *Members) hurry(b []byte) {
	if m.list == nil {
		return // before there is any other node
	}
	for _, to := range m.some("") {
		_ = m.list.SendBestEffort(&to, b)
	}
}

// some returns up to hurryNodes living members, chosen at random, without the node
// named except.
func (m *Members) some(except string) []memberlist.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []memberlist.Node
	for id, p := range m.peers { // in random order
		if p.State == cluster.Alive && id != except {
			if out = append(out, p.node); len(out) == hurryNodes {
				break
			}
		}
	}
	return out
}

// advert handles a table that came by gossip; b is the message. A table that is new
// here is new to others.
func (ts *tables) advert(t *cluster.Table, b []byte) {
	if ts.offer(t) {
		ts.m.stats.fresh.Add(1)
		ts.pass(t.Node, b)
	} else {
		ts.m.stats.old.Add(1)
	}
}

// forgedLocked answers news of a table of this node that this node never made. A
// node that has accepted it would not accept the real one, so the real one gets a
// higher version.
func (ts *tables) forgedLocked(incarnation, version, digest uint64) {
	if ts.own == nil || incarnation != ts.own.Incarnation || version < ts.own.Version ||
		version == ts.own.Version && digest == ts.m.self.TableDigest {
		return
	}
	if version > ts.own.Version+2*maxLead {
		ts.m.stats.malformed.Add(1) // every node refuses a version that far ahead
		return
	}
	next := *ts.own
	next.Version = version + 1
	if ts.adoptLocked(&next) != nil {
		return
	}
	ts.m.stats.refuted.Add(1)
	ts.m.say(event{kind: sayForged, msg: "gossip tells of a region table of ours that we never made: somebody with the gossip key forges, or an old process of this node is alive", args: []any{"version", version}})
	ts.forged = true
}

// refute spreads our table, if it had to go above a forged one.
func (ts *tables) refute() {
	ts.m.mu.Lock()
	forged, advert := ts.forged, ts.ownAdvertLocked()
	ts.forged = false
	ts.m.mu.Unlock()
	if forged {
		ts.spread(advert)
	}
}

// bye handles a goodbye.
func (m *Members) bye(g goodbye, b []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.referee.stoodDownLocked(g.node, g.incarnation) {
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

// localState is our part of a push/pull: tables, more of them for a node that
// joins, and lives.
func (ts *tables) localState(join bool) []byte {
	room := maxPush
	if join {
		room = maxJoin
	}
	s := state{from: ts.m.cfg.NodeID}
	var others []arrival
	ts.m.mu.Lock()
	if ts.encoded != nil {
		room -= s.add(ts.encoded)
	}
	for _, p := range ts.m.peers {
		if p.table != nil && (p.State == cluster.Alive || p.State == cluster.Suspect) {
			others = append(others, arrival{p.table, p.came})
		}
	}
	self := ts.m.referee.stateSelfLocked()
	s.lives = append(s.lives, &self)
	for _, l := range ts.m.referee.lives {
		if len(s.lives) < cluster.MaxNodes {
			s.lives = append(s.lives, l)
		}
	}
	ts.m.mu.Unlock()
	s.fill(others, room)
	return s.append(nil)
}

// An arrival is a table and when it came.
type arrival struct {
	*table
	came uint64
}

// fill puts tables into a state until room bytes are taken: into one half of the room
// those that came last, because a node may have missed them, and into the other half
// any, so that every table comes with some push/pull however many there are.
func (s *state) fill(tables []arrival, room int) {
	slices.SortFunc(tables, func(a, b arrival) int { return cmp.Compare(b.came, a.came) })
	taken, newest := 0, room/2
	for _, t := range tables {
		if len(t.bytes) > newest {
			break
		}
		newest -= s.add(t.table)
		taken++
	}
	room -= room/2 - newest
	rest := tables[taken:]
	rand.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	for _, t := range rest {
		if len(t.bytes) <= room {
			room -= s.add(t.table)
		}
	}
}

// add puts a table and its digest into a state, and returns its size.
func (s *state) add(t *table) int {
	s.digests = append(s.digests, digest{cluster.Hash(t.node), t.incarnation, t.version, t.digest})
	s.tables = append(s.tables, t.bytes)
	return len(t.bytes)
}

// merge handles another node's part of a push/pull. Of its digests only that of our
// own table counts: the table may have been forged.
func (ts *tables) merge(s *state) {
	for _, b := range s.tables {
		if t, err := cluster.ParseTable(b); err == nil {
			ts.offer(t)
		} else {
			ts.m.stats.malformed.Add(1)
		}
	}
	for _, l := range s.lives {
		ts.m.referee.learnLife(l, s.from)
	}
	self := cluster.Hash(ts.m.cfg.NodeID)
	ts.m.mu.Lock()
	defer ts.m.mu.Unlock()
	for _, d := range s.digests {
		if d.node == self {
			ts.forgedLocked(d.incarnation, d.version, d.digest)
		}
	}
}

// offer takes a table that came from another node, if it is of use, and reports
// whether it was.
func (ts *tables) offer(t *cluster.Table) bool {
	ts.m.mu.Lock()
	defer ts.m.mu.Unlock()
	if t.Node == ts.m.cfg.NodeID {
		ts.forgedLocked(t.Incarnation, t.Version, t.Digest())
		return false
	}
	p := ts.m.peers[t.Node]
	switch {
	case p == nil || p.Incarnation != t.Incarnation: // of a node, or a life of it, that is not known here
		return false
	case t.Version > p.TableVersion+maxLead:
		ts.m.stats.malformed.Add(1)
		return false
	case p.Regions > cluster.MaxGossip && t.Version <= p.TableVersion:
		return false
	}
	next := newTable(t)
	if old := p.table; old != nil && next.version <= old.version {
		// The metadata says which of two tables of one version is the node's.
		if next.version != p.TableVersion || next.digest != p.TableDigest || !p.needsTable() {
			return false
		}
	}
	if !ts.setLocked(p, next) {
		return false
	}
	signal(ts.m.dirty)
	return true
}

// needsTable reports whether the table that is held of a node differs from what its
// metadata says.
func (p *peer) needsTable() bool {
	if p.TableVersion == 0 || p.Regions > cluster.MaxGossip || p.State == cluster.Left || p.State == cluster.Dead {
		return false
	}
	t := p.table
	return t == nil || t.version < p.TableVersion || t.version == p.TableVersion && t.digest != p.TableDigest
}

// mendRate is how many bytes of tables add a second to the patience of mend, which
// moves all of them: maxMend at most.
const (
	mendRate = 32 << 10
	maxMend  = 5 * time.Minute
)

// mend does a push/pull with the node whose table has differed from its metadata for
// longest, if that is long: no advert and no other push/pull has brought it.
func (j *joiner) mend() {
	if addr := j.mendNow(time.Now()); addr != "" {
		j.m.stats.mended.Add(1)
		_ = j.dial(j.m.ctx, addr)
	}
}

// mendNow returns the gossip address of the node to mend with, or "" if there is
// none. That node's turn comes again after all others.
func (j *joiner) mendNow(now time.Time) string {
	j.m.mu.Lock()
	defer j.m.mu.Unlock()
	var worst *peer
	for _, p := range j.m.peers {
		if !p.needsTable() {
			p.stale = time.Time{}
		} else if p.stale.IsZero() {
			p.stale = now
		}
		if !p.stale.IsZero() && (worst == nil || p.stale.Before(worst.stale)) {
			worst = p
		}
	}
	patience := min(2*j.m.time.rejoin+time.Duration(j.m.tables.bytes)*time.Second/mendRate, maxMend)
	if worst == nil || now.Sub(worst.stale) < patience {
		return ""
	}
	worst.stale = now
	return worst.Gossip
}
