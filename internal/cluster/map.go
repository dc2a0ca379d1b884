package cluster

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// MaxShards is the largest number of shards that a cluster may be born with:
// a shard number has 12 bits in a bucket header.
const MaxShards = 1 << 12

// ShardOf returns the shard of a key among shards shards: xxhash64 of the
// key's HashPart, modulo shards.
//
// xxhash64 is unseeded on purpose. The index inside a shard uses a hash with
// a random seed that is different at each start (package layout); placement
// must be the same everywhere and for ever. A writer that aims at one shard can
// therefore make it hot, but cannot make its index degenerate.
//
// It panics if shards is not in 1..MaxShards: the number comes from a
// handshake or a store that has been validated before.
func ShardOf(key []byte, shards int) uint16 {
	if shards < 1 || shards > MaxShards {
		panic("cluster: number of shards out of range")
	}
	return uint16(xxhash.Sum64(HashPart(key)) % uint64(shards))
}

// HashPart returns the part of the key that decides its shard: what stands
// between the first '{' and the first '}' after it, if that is not empty, and
// else the whole key. This is the rule of Redis Cluster, so keys such as
// "{user:7}:name" and "{user:7}:mail" share a shard, and a batch over them can
// be atomic. The result aliases key.
func HashPart(key []byte) []byte {
	open := bytes.IndexByte(key, '{')
	if open < 0 {
		return key
	}
	length := bytes.IndexByte(key[open+1:], '}')
	if length <= 0 { // no closing brace, or an empty tag
		return key
	}
	return key[open+1 : open+1+length]
}

// A Map says which node owns which shard. It is binding: a node serves the shards
// that its durable map gives it, and no others, whichever nodes gossip reports as
// alive. It is immutable.
type Map struct {
	Cluster [16]byte  // random, drawn at the cluster's birth
	Name    string    // the cluster's name, for people
	Version uint64    // from 1
	Nodes   []MapNode // by ID, strictly rising
	Owner   []uint16  // by shard: index in Nodes; with Replication, the node whose replica leads where it can
	// Replication says which replicas there are; nil: each shard is at its owner alone.
	Replication *Replication
}

// A MapNode is a node that may own shards.
type MapNode struct {
	ID     string
	Weight uint32 // its share of the shards, relative to the others'; 1..MaxWeight
}

// MaxWeight bounds a node's weight.
const MaxWeight = 1 << 16

// Check holds a map to its rules. ErrMalformed.
func (m *Map) Check() error {
	if err := CheckName(m.Name); err != nil {
		return err
	}
	switch {
	case m.Cluster == [16]byte{}:
		return malformed("a shard map without a cluster")
	case m.Version == 0:
		return malformed("a shard map of version 0")
	case len(m.Owner) < 1 || len(m.Owner) > MaxShards:
		return malformed("a shard map of %d shards, 1 to %d are possible", len(m.Owner), MaxShards)
	case len(m.Nodes) < 1 || len(m.Nodes) > MaxNodes:
		return malformed("a shard map of %d nodes, 1 to %d are possible", len(m.Nodes), MaxNodes)
	}
	for i, n := range m.Nodes {
		if err := CheckNodeID(n.ID); err != nil {
			return err
		}
		if i > 0 && m.Nodes[i-1].ID >= n.ID {
			return malformed("node %q stands behind %q in a shard map", n.ID, m.Nodes[i-1].ID)
		}
		if n.Weight < 1 || n.Weight > MaxWeight {
			return malformed("node %q has weight %d, 1 to %d are possible", n.ID, n.Weight, MaxWeight)
		}
	}
	for shard, i := range m.Owner {
		if int(i) >= len(m.Nodes) {
			return malformed("shard %d belongs to node %d of %d", shard, i, len(m.Nodes))
		}
	}
	if m.Replication == nil {
		return nil
	}
	if lives := len(m.Replication.Lives); lives > MaxGenerations || lives != int(m.Generation()) {
		return malformed("a shard map of version %d, whose meta group was made anew %d times", m.Version, len(m.Replication.Lives))
	}
	return m.Replication.check(m)
}

// generationBits is how many low bits of a version count the maps of a generation.
const generationBits = 32

// Generation is how often the meta group had been made anew, without a majority of the one before, when the map was made. It stands in the upper half of the version: so every map of a later generation
// is above all of earlier ones, those included that the lost replicas may have agreed on and nobody here has heard of.
func (m *Map) Generation() uint32 { return uint32(m.Version >> generationBits) }

// BeginsGeneration says whether the map is the one that a meta group which was made anew begins with.
func (m *Map) BeginsGeneration() bool { return m.Generation() > 0 && uint32(m.Version) == 0 }

// NextGeneration is the version of the first map of the next generation; 0: there is none.
func (m *Map) NextGeneration() uint64 {
	if m.Generation() >= MaxGenerations {
		return 0
	}
	return uint64(m.Generation()+1) << generationBits
}

// OwnerOf returns the id of the node that owns a shard. It panics if there is
// no such shard: shards come from ShardOf with this map's own number.
func (m *Map) OwnerOf(shard uint16) string { return m.Nodes[m.Owner[shard]].ID }

// Has reports whether the node stands in the map.
func (m *Map) Has(node string) bool { return m.index(node) >= 0 }

// Owns reports whether the node owns the shard. It is false for a shard that
// the map does not have.
func (m *Map) Owns(node string, shard uint16) bool {
	return int(shard) < len(m.Owner) && m.OwnerOf(shard) == node
}

// Shards returns the shards of a node, rising; nil if it has none.
func (m *Map) Shards(node string) []uint16 {
	i := m.index(node)
	var shards []uint16
	for shard, owner := range m.Owner {
		if int(owner) == i {
			shards = append(shards, uint16(shard))
		}
	}
	return shards
}

// Served returns the shards that a node answers for, rising; nil if there are none: its own, or in a cluster with replicas those of
// the groups that have one there.
func (m *Map) Served(node string) []uint16 {
	if m.Replication == nil {
		return m.Shards(node)
	}
	i := m.index(node)
	var shards []uint16
	for shard, g := range m.Replication.Group {
		if i >= 0 && m.Replication.Groups[g].At(i) != 0 {
			shards = append(shards, uint16(shard))
		}
	}
	return shards
}

// StoreOf returns the store that a node of a cluster with replicas had when it came into the map. ok: there is such a node.
func (m *Map) StoreOf(node string) (store [16]byte, ok bool) {
	if i := m.index(node); i >= 0 && m.Replication != nil {
		return m.Replication.Stores[i], true
	}
	return store, false
}

// IndexOf returns the index of a node in Nodes; -1: it is not there.
func (m *Map) IndexOf(node string) int { return m.index(node) }

func (m *Map) index(node string) int {
	i, ok := slices.BinarySearchFunc(m.Nodes, node, func(n MapNode, id string) int { return cmp.Compare(n.ID, id) })
	if !ok {
		return -1
	}
	return i
}

// Digest returns the first 8 bytes of the SHA-256 of the map's encoding: two
// maps are the same if version and digest are.
func (m *Map) Digest() uint64 {
	sum := sha256.Sum256(AppendMap(nil, m))
	return le.Uint64(sum[:])
}

func (m *Map) identity() string { return fmt.Sprintf("%q (%x)", m.Name, m.Cluster[:4]) }

// String names the map in a log line.
func (m *Map) String() string {
	return fmt.Sprintf("shard map of cluster %s, version %d, digest %016x: %d shards on %d nodes", m.identity(), m.Version, m.Digest(), len(m.Owner), len(m.Nodes))
}

// A map of format 1 has no Replication, one of format 2 has one without a meta group, one of format 3 has one with it, one of format 4 has groups that were others, and one of format 5
// groups that began with what nodes had, or by a later map than the first.
const (
	mapFormat       = 1
	replicasFormat  = 2
	liveFormat      = 3
	recoveredFormat = 4
	bornFormat      = 5
)

// MaxMap bounds the bytes of an encoded map.
const MaxMap = 32 + MaxName + MaxNodes*(1+MaxName+4) + MaxShards*2 + maxReplication

// AppendMap appends a map, for the wire and for the disk; see appendReplication for what formats 2 to 5 have behind it:
//
//	┌format┬ 0 ┬nodes┬shards┬ 0 ┬version┬cluster┬name┐
//	└1     ┴1  ┴2    ┴2     ┴2  ┴8      ┴16     ┴1+n ┘
//	per node: ┌id ┬weight┐   per shard: ┌owner┐
//	          └1+n┴4     ┘              └2    ┘
//
// It panics if m.Check would fail on what decides the layout.
func AppendMap(dst []byte, m *Map) []byte {
	if len(m.Nodes) > MaxNodes || len(m.Owner) > MaxShards {
		panic(fmt.Sprintf("cluster: a map of %d nodes and %d shards", len(m.Nodes), len(m.Owner)))
	}
	dst = append(dst, byte(m.Form()), 0)
	dst = le.AppendUint16(dst, uint16(len(m.Nodes)))
	dst = le.AppendUint16(dst, uint16(len(m.Owner)))
	dst = append(dst, 0, 0)
	dst = le.AppendUint64(dst, m.Version)
	dst = append(dst, m.Cluster[:]...)
	dst = appendText(dst, m.Name)
	for _, n := range m.Nodes {
		dst = le.AppendUint32(appendText(dst, n.ID), n.Weight)
	}
	for _, i := range m.Owner {
		dst = le.AppendUint16(dst, i)
	}
	if m.Replication != nil {
		dst = appendReplication(dst, m.Replication)
	}
	return dst
}

// Form is the number of the format in which the map is encoded.
func (m *Map) Form() int {
	switch r := m.Replication; {
	case r == nil:
		return mapFormat
	case r.Born != 0:
		return bornFormat
	case r.recovered():
		return recoveredFormat
	case r.Meta != nil:
		return liveFormat
	}
	return replicasFormat
}

// ParseMap reads what AppendMap wrote, and checks it. ErrMalformed.
func ParseMap(b []byte) (*Map, error) {
	f := fields{b: b}
	format := uint8(mapFormat)
	if len(b) > 0 && b[0] >= replicasFormat && b[0] <= bornFormat {
		format = b[0]
	}
	f.format("a shard map", format)
	f.zero(1)
	nodes, shards := int(f.u16()), int(f.u16())
	f.zero(2)
	m := &Map{Version: f.u64()}
	copy(m.Cluster[:], f.take(16))
	m.Name = f.text()
	if nodes > MaxNodes || shards > MaxShards {
		f.fail(malformed("a shard map of %d nodes and %d shards, at most %d and %d", nodes, shards, MaxNodes, MaxShards))
	}
	if f.room(nodes, 1+4) {
		m.Nodes = make([]MapNode, 0, nodes)
	}
	for i := 0; i < nodes && f.err == nil; i++ {
		m.Nodes = append(m.Nodes, MapNode{ID: f.text(), Weight: f.u32()})
	}
	if f.room(shards, 2) {
		m.Owner = make([]uint16, 0, shards)
	}
	for i := 0; i < shards && f.err == nil; i++ {
		m.Owner = append(m.Owner, f.u16())
	}
	if format >= replicasFormat && f.err == nil {
		m.Replication = f.replication(nodes, shards, format)
	}
	if err := f.done(); err != nil {
		return nil, err
	}
	if err := m.Check(); err != nil {
		return nil, err
	}
	return m, nil
}
