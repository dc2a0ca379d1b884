package membership

import (
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// callbacks is what memberlist calls, often under its own lock: nothing here blocks,
// and nothing here calls memberlist.
type callbacks struct{ m *Members }

// NodeMeta implements memberlist.Delegate.
func (c callbacks) NodeMeta(int) []byte { return *c.m.meta.Load() }

// NotifyMsg implements memberlist.Delegate.
func (c callbacks) NotifyMsg(b []byte) { c.m.in.receive(b, false) }

// GetBroadcasts implements memberlist.Delegate.
func (c callbacks) GetBroadcasts(overhead, limit int) [][]byte {
	return c.m.queue.GetBroadcasts(overhead, limit)
}

// LocalState implements memberlist.Delegate.
func (c callbacks) LocalState(join bool) []byte { return c.m.tables.localState(join) }

// MergeRemoteState implements memberlist.Delegate.
func (c callbacks) MergeRemoteState(b []byte, _ bool) { c.m.in.receive(b, true) }

// NotifyAlive implements memberlist.AliveDelegate. All news about a living node comes
// through here; an error keeps it out.
func (c callbacks) NotifyAlive(n *memberlist.Node) error {
	if err := cluster.CheckNodeID(n.Name); err != nil {
		return err
	}
	if n.Name == c.m.cfg.NodeID {
		return nil // ours, or memberlist will refute it
	}
	if len(n.Addr) != net.IPv4len && len(n.Addr) != net.IPv6len {
		// memberlist accepts any bytes as an address; a view must not have such an
		// address.
		c.m.stats.malformed.Add(1)
		return fmt.Errorf("an address of %d bytes", len(n.Addr))
	}
	if _, err := cluster.ParseMeta(n.Meta); err != nil {
		c.m.stats.malformed.Add(1)
		return err
	}
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if c.m.peers[n.Name] == nil && len(c.m.peers) >= cluster.MaxNodes-1 && !c.m.makeRoomLocked() {
		return fmt.Errorf("the cluster has %d nodes already, and more are not possible", cluster.MaxNodes)
	}
	return nil
}

// NotifyMerge implements memberlist.MergeDelegate.
func (c callbacks) NotifyMerge(nodes []*memberlist.Node) error {
	if len(nodes) > cluster.MaxNodes {
		c.m.stats.malformed.Add(1)
		return fmt.Errorf("%d nodes, at most %d", len(nodes), cluster.MaxNodes)
	}
	return nil
}

// NotifyJoin implements memberlist.EventDelegate.
func (c callbacks) NotifyJoin(n *memberlist.Node) { c.alive(n) }

// NotifyUpdate implements memberlist.EventDelegate.
func (c callbacks) NotifyUpdate(n *memberlist.Node) { c.alive(n) }

// NotifyLeave implements memberlist.EventDelegate: the node is dead, or has left on
// purpose. Only its goodbye tells which.
func (c callbacks) NotifyLeave(n *memberlist.Node) {
	m := c.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.peers[n.Name]; p != nil {
		p.State, p.Since, p.suspect = cluster.Dead, time.Now(), time.Time{}
		if p.bye != 0 && p.bye == p.Incarnation {
			p.State = cluster.Left
		}
		signal(m.dirty)
	}
}

// NotifyPingComplete implements memberlist.PingDelegate: a probe was answered by UDP.
func (c callbacks) NotifyPingComplete(n *memberlist.Node, _ time.Duration, _ []byte) {
	m := c.m
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.peers[n.Name]
	if p == nil {
		return
	}
	p.tcpOnly = false
	if p.State == cluster.Suspect {
		p.State, p.Since, p.suspect = cluster.Alive, time.Now(), time.Time{}
		signal(m.dirty)
	}
}

// AckPayload implements memberlist.PingDelegate.
func (c callbacks) AckPayload() []byte { return nil }

// NotifyConflict implements memberlist.ConflictDelegate.
func (c callbacks) NotifyConflict(known, other *memberlist.Node) {
	m := c.m
	m.stats.conflicts.Add(1)
	why := fmt.Sprintf("node id %s is at %s, and another at %s claims it", known.Name, known.Address(), other.Address())
	m.stats.mu.Lock()
	m.stats.lastConflict = Refused{time.Now(), other.Address(), why}
	m.stats.mu.Unlock()
	args := []any{"node", known.Name, "known at", known.Address(), "claimed at", other.Address()}
	if known.Name != m.cfg.NodeID {
		m.say(event{kind: sayTwin, msg: "two nodes of one id: the later one is not let in; if the node has moved, it will be once the old address is dead", args: args})
		m.referee.enter(claim{node: known.Name, known: known.Address(), other: other.Address()})
		return
	}
	m.say(event{kind: sayTwin, msg: "another node has our node id, or had it before we moved", args: args})
	select {
	case m.referee.twin <- claim{node: known.Name, known: known.Address(), other: other.Address()}:
	default:
	}
}

// alive notes a node that lives, with its metadata.
func (c callbacks) alive(n *memberlist.Node) {
	m := c.m
	if n.Name == m.cfg.NodeID {
		return
	}
	meta, err := cluster.ParseMeta(n.Meta)
	if err != nil {
		return // NotifyAlive let it not come this far
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.peers[n.Name]
	if p == nil {
		p = &peer{}
		m.peers[n.Name] = p
	}
	since := p.Since
	if p.State != cluster.Alive {
		since = time.Now()
	}
	if p.Incarnation != meta.Incarnation {
		p.bye, p.stale = 0, time.Time{}
		m.tables.setLocked(p, nil) // its rkeys are of another life
	}
	if meta.Regions > cluster.MaxGossip && p.table != nil && p.table.version <= meta.TableVersion {
		m.tables.setLocked(p, nil) // it has too many regions now, and gossips none
	}
	p.Member = meta
	p.Reads = max(n.DMax, 1) - 1
	p.ID, p.Gossip, p.State, p.Since, p.suspect = n.Name, n.Address(), cluster.Alive, since, time.Time{}
	p.node = memberlist.Node{Name: n.Name, Addr: n.Addr, Port: n.Port}
	if s := p.stated.take(meta.Incarnation); s != nil {
		m.referee.letInLocked(s)
	}
	signal(m.dirty)
}

// suspect notes that our own probe of a node failed. memberlist reports suspicion
// only in its log.
func (c callbacks) suspect(id string) {
	m := c.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.peers[id]; p != nil && (p.State == cluster.Alive || p.State == cluster.Suspect) {
		if p.State == cluster.Alive {
			p.State, p.Since = cluster.Suspect, time.Now()
		}
		p.suspect = time.Now()
		signal(m.dirty)
	}
}

// overTCP notes that our own probe of a node was answered by TCP alone. memberlist
// reports that only in its log.
func (c callbacks) overTCP(id string) {
	m := c.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.peers[id]; p != nil {
		p.tcpOnly = true
	}
}

// makeRoomLocked drops the node that has been gone for longest.
func (m *Members) makeRoomLocked() bool {
	oldest := ""
	for id, p := range m.peers {
		if (p.State == cluster.Left || p.State == cluster.Dead) && (oldest == "" || p.Since.Before(m.peers[oldest].Since)) {
			oldest = id
		}
	}
	if oldest == "" {
		return false
	}
	m.forgetLocked(oldest)
	return true
}

func (m *Members) forgetLocked(id string) {
	m.tables.setLocked(m.peers[id], nil)
	delete(m.peers, id)
}

// broadcast queues a message for gossip. It replaces an earlier message of the same
// name.
func (m *Members) broadcast(name string, b []byte) {
	if len(b) > maxPacket {
		panic(fmt.Sprintf("membership: a broadcast of %d bytes would stay in the queue for ever", len(b)))
	}
	m.queue.QueueBroadcast(&broadcast{name: name, bytes: b})
	if m.queue.NumQueued() > maxQueue {
		m.queue.Prune(maxQueue)
		m.say(event{level: slog.LevelDebug, kind: "prune", msg: "gossip: adverts were dropped, push/pull will mend it"})
	}
}

// maxQueue bounds the broadcasts that wait: an advert and a goodbye per node.
const maxQueue = 2 * cluster.MaxNodes

// A broadcast is a memberlist.NamedBroadcast.
type broadcast struct {
	name     string
	bytes    []byte
	finished chan struct{} // closed when it is sent no more; nil if no goroutine waits for that
}

func (b *broadcast) Name() string { return b.name }
func (b *broadcast) Invalidates(other memberlist.Broadcast) bool {
	o, ok := other.(memberlist.NamedBroadcast)
	return ok && o.Name() == b.name
}
func (b *broadcast) Message() []byte { return b.bytes }
func (b *broadcast) Finished() {
	if b.finished != nil {
		close(b.finished)
	}
}
