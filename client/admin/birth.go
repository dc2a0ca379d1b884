package admin

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// The birth of a cluster's map.
//
//	ask     each node for the map in force, else for the one it has promised
//	choose  one of those, if there is any; else a new proposal
//	prepare at every node: it promises this map or none
//	commit  at every node, once all have promised
//
// Why a map that one node has committed can be finished by anybody: all had
// promised it. A promise is taken back (abandon) only after a node has refused
// the map, and then no node can have committed it.

// candidate is a node of the map to be.
type candidate struct {
	p         *peer.Peer
	shards    int
	view      *cluster.View // its own
	name      string
	committed *cluster.Map
	promised  *cluster.Map
	before    *cluster.Map // in force, with groups or without (upgrade.go)
	store     [16]byte     // with replicas
	zone      string       // as the caller says; "": nobody has one
}

func birth(ctx context.Context, f *route.Router, nodes []NodeWeight, o InitOptions) error {
	want := make([]cluster.MapNode, 0, len(nodes))
	named := make(map[string]bool)
	zones := make(map[string]string)
	for _, n := range nodes {
		named[n.ID] = true
		if n.Out {
			continue
		}
		want = append(want, cluster.MapNode{ID: n.ID, Weight: max(n.Weight, 1)})
		if n.Zone != "" {
			zones[n.ID] = n.Zone
		}
	}
	slices.SortFunc(want, func(a, b cluster.MapNode) int { return cmp.Compare(a.ID, b.ID) })
	if len(want) == 0 {
		return fmt.Errorf("%w: no nodes are named", client.ErrOptions)
	}
	if err := o.check(len(want), len(zones)); err != nil {
		return fmt.Errorf("%w: %w", client.ErrOptions, err)
	}
	if err := f.Refresh(ctx, nil); err != nil {
		return err
	}
	var all []*candidate
	for _, n := range want {
		p, err := f.Peer(n.ID)
		if err != nil {
			return err
		}
		all = append(all, &candidate{p: p, zone: zones[n.ID]})
	}
	if err := atEach(f, all, func(c *candidate) error { return c.ask(ctx) }); err != nil {
		return err
	}
	if !o.Adopt { // who is not named may come later
		if err := forgotten(f, all, named); err != nil {
			return err
		}
	}
	if o.Replicas > 1 || o.Adopt {
		if err := atEach(f, all, func(c *candidate) error { return c.askStore(ctx) }); err != nil {
			return err
		}
	}
	m, err := choose(all, want, o)
	if err != nil || m.Version > 1 { // a later one shows that the first was in force
		return err
	}
	if err := prepareAll(ctx, f, all, m); err != nil {
		return err
	}
	err = atEach(f, all, func(c *candidate) error { return c.step(ctx, wire.MapCommit, m, wire.MapCommitted) })
	if err != nil {
		return fmt.Errorf("all nodes have promised the map, and not all have confirmed that it is in force; run it again: %w", err)
	}
	return nil
}

// forgotten fails if a node that lives would never own a shard because the call does not
// name it. The view of every named node counts: gossip may not have told the
// others yet. A map that exists, or is promised, has been thought of before.
func forgotten(f *route.Router, all []*candidate, named map[string]bool) error {
	for _, c := range all {
		if c.committed != nil || c.promised != nil {
			return nil
		}
	}
	var left []string
	for _, n := range infoOf(f).Nodes {
		if (n.State == cluster.Alive.String() || n.State == cluster.Suspect.String()) && !named[n.ID] {
			left = append(left, n.ID)
		}
	}
	for _, c := range all {
		for _, n := range c.view.Members {
			if (n.State == cluster.Alive || n.State == cluster.Suspect) && !named[n.ID] {
				left = append(left, n.ID)
			}
		}
	}
	slices.Sort(left)
	left = slices.Compact(left)
	if len(left) == 0 {
		return nil
	}
	verb, them := "is", "it"
	if len(left) > 1 {
		verb, them = "are", "them"
	}
	return fmt.Errorf("%w: %s %s alive and would get nothing, for good: name %s too, or leave %s out (%s:0)", client.ErrOptions, strings.Join(left, ", "), verb, them, them, strings.Join(left, ":0 "))
}

// ask learns what a node has already.
func (c *candidate) ask(ctx context.Context) error {
	p := c.p.Begin(ctx)
	return c.p.Ask(&p, "cluster-init", nil, func(s *session.Session) error {
		n, err := s.FetchNews(&p)
		if err != nil {
			return err
		}
		c.shards, c.view, c.name, c.committed, c.promised = int(s.Welcome.Shards), n.View, n.View.Cluster, n.Map, nil
		if n.Map != nil {
			return nil
		}
		text, err := s.Document(&p, wire.DocumentPromise, nil, session.MaxNews)
		if errors.Is(err, client.ErrNoMap) {
			return nil
		}
		if err == nil {
			c.promised, err = cluster.ParseMap(text)
		}
		if err != nil {
			return s.BadNews(err)
		}
		return nil
	})
}

// askStore learns which store a node has.
func (c *candidate) askStore(ctx context.Context) error {
	_, err := c.status(ctx)
	return err
}

// status is what a node says of itself, its store among that.
func (c *candidate) status(ctx context.Context) (st wire.NodeStatus, err error) {
	text, err := do(ctx, c.p, Status, "")
	if err != nil {
		return st, err
	}
	if err := json.Unmarshal(text, &st); err != nil {
		return st, fmt.Errorf("%w: the status of node %q: %w", client.ErrProtocol, c.p.Node, err)
	}
	id, err := hex.DecodeString(st.Store)
	if err != nil || len(id) != len(c.store) || [16]byte(id) == [16]byte{} {
		return st, fmt.Errorf("%w: node %q does not tell its store (%q): a cluster with replicas needs nodes of this version", client.ErrUnsupported, c.p.Node, wire.CleanText([]byte(st.Store)))
	}
	c.store = [16]byte(id)
	return st, nil
}

// propose draws up a new map.
func propose(all []*candidate, want []cluster.MapNode, o InitOptions) (m *cluster.Map, err error) {
	var id [16]byte
	rand.Read(id[:])
	if o.Adopt {
		alone := &cluster.Map{Cluster: id, Name: all[0].name, Nodes: want, Owner: make([]uint16, all[0].shards)}
		with := cluster.Want{Groups: cmp.Or(o.Groups, min(adoptGroups, all[0].shards)), Stores: [][16]byte{all[0].store}, Zones: []string{all[0].zone}}
		m, err = cluster.ProposeAdopting(alone, with)
	} else if o.Replicas > 1 {
		with := cluster.Want{Replicas: o.Replicas, Groups: o.Groups}
		for _, c := range all { // in the order of want
			with.Stores = append(with.Stores, c.store)
			if c.zone != "" {
				with.Zones = append(with.Zones, c.zone)
			}
		}
		m, err = cluster.ProposeReplicas(id, all[0].name, all[0].shards, want, with)
	} else {
		m, err = cluster.Propose(id, all[0].name, all[0].shards, want)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", client.ErrOptions, err)
	}
	return m, nil
}

// adoptGroups is how many groups the shards of one node become where nobody says: two for each of the three nodes that it is to become at least.
const adoptGroups = 3 * cluster.GroupsOfNode

// check finds what no nodes could agree on, before any is asked; in is how many get shards, zoned how many of those have
// a zone.
func (o *InitOptions) check(in, zoned int) error {
	switch {
	case o.Replicas < 0 || o.Replicas > cluster.MaxReplicas || o.Replicas > 1 && o.Replicas%2 == 0:
		return fmt.Errorf("%d replicas: 1, 3, 5 or 7 are possible, because an even number bears no more losses than one less", o.Replicas)
	case o.Replicas > in:
		return fmt.Errorf("%d replicas on %d nodes: each replica of a group is on a node of its own", o.Replicas, in)
	case o.Groups < 0 || o.Groups > cluster.MaxGroups:
		return fmt.Errorf("%d groups: 1 to %d are possible", o.Groups, cluster.MaxGroups)
	case o.Adopt && (in != 1 || o.Replicas > 1):
		return fmt.Errorf("%d nodes and %d replicas: a cluster begins with the keys of one node, and gets others, and more replicas, when it is there", in, max(o.Replicas, 1))
	case o.Adopt:
		return nil
	case o.Replicas < 2 && o.Groups != 0:
		return fmt.Errorf("%d groups: a cluster without replicas has no groups", o.Groups)
	case o.Replicas < 2 && zoned != 0:
		return errors.New("zones: a cluster without replicas has none to keep apart")
	case zoned != 0 && zoned != in:
		return fmt.Errorf("%d of %d nodes have a zone: either all have one or none has, because those without would count as one zone", zoned, in)
	}
	return nil
}

// isLike says whether a map is what the options ask for.
func (o *InitOptions) isLike(m *cluster.Map) bool {
	if m.Replication == nil || o.Adopt || m.Replication.Adopts && o.Replicas < 2 {
		return o.Replicas < 2 && o.Adopt == (m.Replication != nil && m.Replication.Adopts) && (o.Groups == 0 || o.Groups == len(m.Replication.Groups))
	}
	return replicasOfEach(m) == o.Replicas && (o.Groups == 0 || o.Groups == len(m.Replication.Groups))
}

// choose says which map it will be.
func choose(all []*candidate, want []cluster.MapNode, o InitOptions) (*cluster.Map, error) {
	for _, c := range all[1:] {
		if c.shards != all[0].shards || c.name != all[0].name {
			return nil, fmt.Errorf("%w: node %q has %d shards in cluster %q, node %q %d in %q", client.ErrOtherCluster,
				all[0].p.Node, all[0].shards, all[0].name, c.p.Node, c.shards, c.name)
		}
	}
	var m *cluster.Map
	for _, c := range all {
		switch {
		case c.committed == nil:
		case m != nil && m.Cluster == c.committed.Cluster && m.Version != c.committed.Version:
			if c.committed.Version > m.Version { // it has changed since its birth, and not all have heard of that yet
				m = c.committed
			}
		case m != nil && m.Digest() != c.committed.Digest():
			return nil, fmt.Errorf("%w: nodes have committed %v and %v", ErrOtherMap, m, c.committed)
		default:
			m = c.committed
		}
	}
	if m == nil { // of several that were begun, each run takes the same
		for _, c := range all {
			if c.promised != nil && (m == nil || c.promised.Digest() < m.Digest()) {
				m = c.promised
			}
		}
	}
	if m == nil {
		return propose(all, want, o)
	}
	if !o.isLike(m) {
		return nil, fmt.Errorf("%w: %v, %s; to finish it, ask for that", ErrOtherMap, m, replicasOf(m))
	}
	if o.Adopt && m.Version > 1 && m.Has(want[0].ID) {
		return m, nil // others have come since
	}
	if !slices.Equal(m.Nodes, want) {
		return nil, fmt.Errorf("%w: %v, of nodes %s; to finish it, name those", ErrOtherMap, m, nodeList(m.Nodes))
	}
	return m, nil
}

// replicasOf says what replicas a map has.
func replicasOf(m *cluster.Map) string {
	if m.Replication == nil {
		return "without replicas"
	}
	if m.Replication.Adopts && m.Version == m.Replication.Born {
		return fmt.Sprintf("with %d groups that begin with what nodes have", len(m.Replication.Groups))
	}
	return fmt.Sprintf("with %d groups of %d replicas", len(m.Replication.Groups), replicasOfEach(m))
}

func nodeList(nodes []cluster.MapNode) string {
	var list []string
	for _, n := range nodes {
		id := n.ID
		if n.Weight != 1 {
			id = fmt.Sprintf("%s:%d", id, n.Weight)
		}
		list = append(list, id)
	}
	return strings.Join(list, " ")
}

// prepareAll has every node promise m. If one refuses, the others' promises are
// taken back; if one did not answer they stay, for another run.
func prepareAll(ctx context.Context, f *route.Router, all []*candidate, m *cluster.Map) error {
	err := atEach(f, all, func(c *candidate) error { return c.step(ctx, wire.MapPrepare, m, wire.MapPromised) })
	if err == nil || !errors.Is(err, errRefusedMap) {
		return err
	}
	for _, c := range all {
		if c.committed != nil { // all had promised: it will be finished
			return err
		}
	}
	back := atEach(f, all, func(c *candidate) error { return c.step(ctx, wire.MapAbandon, m, wire.MapNone) })
	if back != nil && !errors.Is(back, errRefusedMap) {
		return fmt.Errorf("%w (not all promises could be taken back: run it again)", err)
	}
	return err
}

// errRefusedMap: a node has said no.
var errRefusedMap = errors.New("the node refuses the shard map")

// maxMapAnswer bounds the answer to a step, in bytes.
const maxMapAnswer = 4096

// step does one step at one node, which then has the map in state want, or a
// later one.
func (c *candidate) step(ctx context.Context, step wire.DocumentKind, m *cluster.Map, want wire.MapState) error {
	text, digest := cluster.AppendMap(nil, m), m.Digest()
	p := c.p.Begin(ctx)
	return c.p.Ask(&p, "shard-map "+step.String(), nil, func(s *session.Session) error { // each step may be done twice
		answer, err := s.Document(&p, step, text, maxMapAnswer)
		if err != nil {
			return err
		}
		r, err := wire.ParseMapAnswer(answer)
		switch {
		case err != nil:
			return s.BadNews(fmt.Errorf("%w: %w", cluster.ErrMalformed, err))
		case step == wire.MapAbandon && (r.State == wire.MapNone || r.Digest != digest):
			return nil
		case step != wire.MapAbandon && r.State >= want && r.Digest == digest:
			return nil
		}
		return fmt.Errorf("%w (it has state %q): %s", errRefusedMap, r.State, cmp.Or(wire.CleanText(r.Text), "it does not say why"))
	})
}

// atEach does one step at all nodes, side by side.
func atEach(f *route.Router, all []*candidate, do func(*candidate) error) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, c := range all {
		wg.Go(func() { errs[i] = do(c) })
	}
	wg.Wait()
	e := &client.PartialError{Total: len(all)}
	for i, err := range errs {
		if err != nil {
			e.Failures = append(e.Failures, client.Failure{Index: -1, Node: all[i].p.Node, Err: err})
		}
	}
	if e.Failures == nil {
		return nil
	}
	return e
}
