package base

import (
	"slices"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// An Owner says whose the keys of a shard are.
type Owner uint8

const (
	NoMap  Owner = iota // nobody's yet: the cluster has no shard map
	Ours                // this node's
	Others              // another node's
)

// Ownership is which shards are this node's. Every request with a key asks for it, in
// each space of the node; the shard map alone decides it, and nothing that gossip says.
// A nil Ownership is that of a server that is alone: every shard is its own. The zero
// value has no map yet. Safe for concurrent use.
type Ownership struct {
	now atomic.Pointer[Shards]
	// Awaited is the map that the node has promised while another one is in force, by which its shards get groups; nil: there is none. Other nodes may have it in force by now.
	Awaited atomic.Pointer[cluster.Map]
}

// Awaits says whether another node may have a map in force by now that has such a group, and this one has not yet.
func (o *Ownership) Awaits(group uint32) bool {
	if o == nil {
		return false
	}
	m := o.Awaited.Load()
	return m != nil && slices.ContainsFunc(m.Replication.Groups, func(g cluster.Group) bool { return g.ID == group })
}

// Of says whose a shard is; with Ours and Others, under which map.
func (o *Ownership) Of(shard uint16) (Owner, *Shards) {
	if o == nil {
		return Ours, nil
	}
	s := o.now.Load()
	switch {
	case s == nil:
		return NoMap, nil
	case s.Mine(shard):
		return Ours, s
	}
	return Others, s
}

// Mapped says whether it is known whose the shards are.
func (o *Ownership) Mapped() bool { return o == nil || o.now.Load() != nil }

// Shards is the ownership under the map in force; nil: there is no map, or the server
// is alone.
func (o *Ownership) Shards() *Shards {
	if o == nil {
		return nil
	}
	return o.now.Load()
}

// Set puts a map in force for the node of that id. The map is not changed afterwards.
func (o *Ownership) Set(m *cluster.Map, node string) {
	s := &Shards{Map: m, Digest: m.Digest(), mine: make([]bool, len(m.Owner))}
	if r := m.Replication; r != nil {
		s.groups = make(map[uint32][]uint16, len(r.Groups))
		for i := range r.Groups {
			s.groups[r.Groups[i].ID] = r.ShardsOf(i)
		}
	}
	for _, shard := range m.Served(node) {
		s.mine[shard] = true
	}
	o.now.Store(s)
}

// Shards are the shards of a node under one map. Immutable.
type Shards struct {
	Map    *cluster.Map
	Digest uint64 // of Map
	mine   []bool // by shard
	groups map[uint32][]uint16
}

// Replicated says whether the shards belong to groups of replicas: the node answers for those of which it has one, and only while that one leads.
func (s *Shards) Replicated() bool { return s.Map.Replication != nil }

// Group is the id of the group of a shard, which the map has; it is replicated.
func (s *Shards) Group(shard uint16) uint32 {
	r := s.Map.Replication
	return r.Groups[r.Group[shard]].ID
}

// Of returns the shards of a group, rising; nil: the map has no such group. The caller does not change them.
func (s *Shards) Of(group uint32) []uint16 { return s.groups[group] }

// Mine says whether a shard is the node's; one that the map has not is nobody's.
func (s *Shards) Mine(shard uint16) bool { return int(shard) < len(s.mine) && s.mine[shard] }
