package client

import "time"

// A NodeState is how things stand with one server now.
type NodeState struct {
	Connected bool // there is a session
	// Leased: what is READ is believed; LeaseLeft is for how long yet, if nothing
	// renews it. A client that reads nothing lets its lease run out. Without leases
	// (ServerInfo.LeaseOff) there is no end to it, and LeaseLeft is 0.
	Leased    bool
	LeaseLeft time.Duration

	Credits      int // requests that the server would take at once
	Inflight     int // requests under way
	Waiting      int // calls that wait for a credit, a slot or space for READs
	CachedPlaces int // remembered places of items
	CacheBytes   int // memory that they take
	ViewVersion  uint64
	Incarnation  uint64
	Regions      int // regions that can be READ
}

// State returns how things stand with this node, without asking it.
func (n *Node) State() NodeState { return n.p.state() }

// Latencies returns how long calls at this node took.
func (n *Node) Latencies() Latencies { return n.p.latencies() }

func (c *peer) state() NodeState {
	s := c.current.Load()
	if s == nil || s.isDown() {
		return NodeState{}
	}
	st := NodeState{
		Connected: true, ViewVersion: s.view.Load().Version, Incarnation: s.incarnation,
		Regions: len(s.view.Load().Regions), CachedPlaces: s.cache.len(), CacheBytes: s.cache.size(),
	}
	deadline := s.lease.current.Load().deadline
	if s.lease.off {
		st.Leased = true
	} else if left := deadline - s.now(); left > 0 {
		st.Leased, st.LeaseLeft = true, time.Duration(left)
	}
	slots, waitSlots := s.rq.turns.state()
	credits, waitCredits := s.rq.credits.state()
	_, waitReads := s.reads.state()
	st.Credits, st.Inflight = credits, c.cfg.MaxInflight-slots
	st.Waiting = waitSlots + waitCredits + waitReads
	return st
}
