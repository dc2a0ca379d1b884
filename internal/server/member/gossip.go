package member

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/feature"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/membership"
	"github.com/rdmakv/rdmakv/store"
)

// publishEvery is the shortest time between two tables that are gossiped, so
// that a burst of new regions is one advert. An advert must be everywhere within
// a second.
const publishEvery = 50 * time.Millisecond

// leaveLimit bounds how long a node that ends waits for others to hear of it.
const leaveLimit = 2 * time.Second

// Start begins to take part in gossip. The listeners are there; no connection is
// accepted yet. It does not wait for other nodes: one that is not there is tried again in
// the background.
func (c *Member) Start(ctx context.Context) error {
	var self cluster.Member
	self.Role = cluster.RoleServer
	self.Endpoints = c.fit(c.node.Endpoints(c.cfg.Hosts, ""))
	c.self(&self)
	members, err := membership.Start(ctx, membership.Config{
		NodeID: c.cfg.NodeID, Cluster: c.cfg.Name,
		Bind: c.cfg.Bind, Advertise: c.cfg.Advertise, Join: c.cfg.Join,
		Keys: c.cfg.Keys, Insecure: c.cfg.Insecure, Allow: c.cfg.Allow, Profile: membership.Profile(c.cfg.Profile),
		Self: self, Reads: uint8(c.Levels.Reads.Newest), Life: c.life(), ProofKey: c.proofKey(), Logger: c.logger, Transport: c.cfg.Transport,
	})
	if err != nil {
		return fmt.Errorf("server: gossip: %w", err)
	}
	c.members = members
	// Only now it is known under which address others reach this node.
	host, _, _ := net.SplitHostPort(c.Addr())
	endpoints := c.fit(c.node.Endpoints(c.cfg.Hosts, host))
	if len(endpoints) == 0 {
		return errors.New("server: no address to tell clients: every listener is on a wildcard address; say where they reach this node (advertise)")
	}
	if err := members.SetSelf(func(m *cluster.Member) { m.Endpoints = endpoints }); err != nil {
		return fmt.Errorf("server: gossip: %w", err)
	}
	if far := hidden(endpoints, host); len(far) > 0 {
		c.log.Warn(base.LogAlways, "clients and nodes on other machines cannot reach this node: it listens on its own loopback address alone; see listen and advertise", "told", fmt.Sprint(far))
	}
	c.look()
	c.log.Info("node of a cluster", "node", c.cfg.NodeID, "cluster", c.cfg.Name, "addr", c.Addr(),
		"join", c.cfg.Join, "endpoints", fmt.Sprint(endpoints))
	return nil
}

// life is this start of the node, as the other nodes are told of it.
func (c *Member) life() membership.Life {
	st := c.node.Store()
	life := membership.Life{Store: st.ID(), Incarnation: st.Incarnation(), Epoch: uint64(st.Epoch()), Began: st.Began()}
	if c.dir.Bare {
		life.Epoch = 0
	}
	return life
}

// proofKey is what nodes of the cluster know, and not every program that has a gossip
// key: it follows from the secret. nil without one.
func (c *Member) proofKey() []byte {
	if len(c.secret) == 0 {
		return nil
	}
	h := hmac.New(sha256.New, c.secret)
	h.Write([]byte("rdmakv: proof of a node"))
	return h.Sum(nil)
}

// settleLimit bounds how long a start waits to hear from another node.
const settleLimit = 10 * time.Second

// Settle waits, at a node that has shards, until one of the others has been
// asked whether this node may serve them: whether another process of it is alive,
// or has seen it further on than its disk is. If no other node is there it does
// not wait, because after an outage one of them has to be the first.
func (c *Member) Settle(ctx context.Context) error {
	if !c.owned.Mapped() {
		return nil
	}
	limit := time.NewTimer(settleLimit)
	defer limit.Stop()
	select {
	case <-c.members.Settled():
	case <-c.members.Failed():
	case <-limit.C:
		c.log.Warn(base.LogAlways, "no other node of the cluster answers yet; this one serves its shards without having asked whether another process does", "join", c.cfg.Join)
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := c.members.Err(); err != nil {
		c.noteRefused(err)
		return fmt.Errorf("server: gossip: %w", err)
	}
	return nil
}

// noteRefused has the data directory say that it must not be served, so that the
// next start is refused too, when the nodes that proved it may be gone.
func (c *Member) noteRefused(err error) {
	var why *membership.StandDown
	if !errors.As(err, &why) {
		return
	}
	c.refuse(store.Refusal{Cause: why.Error(), Other: why.Other.Incarnation, Epoch: uint16(min(why.Other.Epoch, math.MaxUint16))})
}

// refuse has the data directory say why it must not be served.
func (c *Member) refuse(why store.Refusal) {
	err := c.node.Store().Refuse(why)
	if err != nil {
		c.log.Error(base.LogAlways, "this node must not be served, and its data directory does not say so: do not start it again", "err", err)
	}
}

// MustNotServe reports whether an error of Start, or Err, says that the data
// directory must not be served: another process is this node, or was, further on; or its cluster is at a feature level that this program does not read.
// Starting again does not help.
func MustNotServe(err error) bool {
	return errors.Is(err, store.ErrRefused) || errors.Is(err, membership.ErrDuplicateID) || errors.Is(err, membership.ErrRolledBack) || errors.Is(err, feature.ErrUnread)
}

// self writes what this node says of itself and may change.
func (c *Member) self(m *cluster.Member) {
	m.Incarnation = c.node.Store().Incarnation()
	if own := c.owned.Shards(); own != nil {
		m.MapVersion, m.MapDigest = own.Map.Version, own.Digest
	}
}

// Addr is where others gossip with this node; "" before gossip begins, and on a server
// that is alone.
func (c *Member) Addr() string {
	if c == nil || c.members == nil {
		return ""
	}
	if m := c.members.View().Member(c.cfg.NodeID); m != nil {
		return m.Gossip
	}
	return ""
}

// hidden are the endpoints on loopback addresses, of a node whose gossip goes
// further than that.
func hidden(list []cluster.Endpoint, gossip string) (out []cluster.Endpoint) {
	if loopback(gossip) {
		return nil
	}
	for _, e := range list {
		if host, _, err := net.SplitHostPort(e.Addr); err == nil && loopback(host) {
			out = append(out, e)
		}
	}
	return out
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// fit leaves out endpoints at the end for which there is no room in what gossip
// says of a node.
func (c *Member) fit(list []cluster.Endpoint) []cluster.Endpoint {
	for n := len(list); ; n-- {
		_, err := cluster.AppendMeta(nil, &cluster.Member{ID: c.cfg.NodeID, Role: cluster.RoleServer, Endpoints: list[:n]})
		if err == nil || n == 0 {
			if n < len(list) {
				c.log.Warn(base.LogAlways, "clients are not told of every address: there is no room in gossip for all (advertise names those that count)", "left_out", fmt.Sprint(list[n:]))
			}
			return list[:n]
		}
	}
}

// Run tells the other nodes of regions, and clients of the other nodes, until
// ctx ends. It is started when the node serves.
func (c *Member) Run(ctx context.Context) {
	c.publish()
	rest := time.NewTimer(0)
	defer rest.Stop()
	wake, failed := c.wake, c.members.Failed()
	for {
		changed := c.members.Changed()
		c.look() // after the channel: a change in between closes it
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-failed:
			// Another process is this node, or was after what is on its disk. Two of
			// them would both serve its shards.
			c.node.StandDown(fmt.Errorf("server: gossip: %w", c.members.Err()))
			c.noteRefused(c.members.Err())
			return
		case why := <-c.older:
			c.node.StandDown(fmt.Errorf("server: %w", why))
			c.refuse(why.refusal())
			return
		case <-wake:
			c.publish()
			wake = nil
			rest.Reset(publishEvery)
		case <-rest.C:
			wake = c.wake
		}
	}
}

// RegionsChanged has Run gossip the region table anew. It does not wait.
func (c *Member) RegionsChanged() {
	select {
	case c.wake <- struct{}{}:
	default: // Run has yet to look
	}
}

// publish gossips the region table as it is now. Tables of spaces are not
// told to other nodes.
func (c *Member) publish() {
	t := c.node.RegionTable(c.cfg.NodeID)
	if t == nil {
		return
	}
	if err := c.members.Publish(t); err != nil {
		c.log.Warn(base.LogAlways, "the region table cannot be gossiped", "regions", len(t.Regions), "err", err)
	}
}

// look takes the view of the cluster as it is now. Clients are told if it says
// anything about their way that is new.
func (c *Member) look() {
	next := c.members.View()
	last := c.shown.Load()
	if last != nil && last.view == next {
		return
	}
	c.shown.Store(&shownView{view: next})
	if list := c.Outside(); len(list) > 0 && !c.outside {
		c.outside = true
		c.log.Error(base.LogAlways, OutsideText, "have_one", list)
	}
	if last != nil && !sameWay(last.view, next) {
		c.node.Bump()
	}
}

// sameWay reports whether two views lead a client the same way. Versions of
// tables, and which nodes are suspected for the moment, change far more often and do not
// matter to it.
func sameWay(a, b *cluster.View) bool {
	there := func(s cluster.State) bool { return s == cluster.Alive || s == cluster.Suspect }
	return slices.EqualFunc(a.Members, b.Members, func(x, y cluster.Member) bool {
		return x.ID == y.ID && there(x.State) == there(y.State) && x.Incarnation == y.Incarnation &&
			x.MapVersion == y.MapVersion && x.MapDigest == y.MapDigest && slices.Equal(x.Endpoints, y.Endpoints)
	})
}

// Leave says goodbye to the other nodes. Nothing is said after it.
func (c *Member) Leave() {
	if c == nil || c.members == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveLimit)
	defer cancel()
	if err := c.members.Leave(ctx); err != nil {
		c.log.Info("no other node is known to have heard that this one ends; whoever has not will call it dead", "err", err)
	}
}

// Stop ends gossip at once.
func (c *Member) Stop() {
	if c == nil || c.members == nil {
		return
	}
	if err := c.members.Close(); err != nil {
		c.log.Warn(base.LogAlways, "gossip ended with an error", "err", err)
	}
}
