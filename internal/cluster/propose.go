package cluster

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Propose draws up the first map of a cluster: version 1, the same for the
// same nodes in whatever order they are named, on every machine.
//
// Each node gets its fair share, shards times its weight over the sum of the
// weights, rounded down or up (largest remainder, then the lower id); with
// equal weights no two nodes differ by more than one shard. *Which* shards it
// gets, rendezvous hashing says: every pair of shard and node has a score,
// xxhash64 of both, and the pairs are granted from the highest score down, as
// long as the shard is free and the node below its share. So a map with one
// node more or less differs in few shards, and weights need no logarithm: a
// share is a bound, in whole numbers.
//
// A weight of 0 stands for 1. ErrMalformed for bad or repeated ids, for no
// nodes, and for more nodes than shards: the number of shards is fixed at
// birth, so such a cluster would have idle nodes for ever.
func Propose(id [16]byte, name string, shards int, nodes []MapNode) (*Map, error) {
	if len(nodes) > shards {
		return nil, malformed("%d nodes for %d shards: a node without a shard would be idle; the number of shards is fixed at the store's creation", len(nodes), shards)
	}
	return propose(id, name, shards, nodes)
}

// propose is Propose that allows nodes without a shard.
func propose(id [16]byte, name string, shards int, nodes []MapNode) (*Map, error) {
	m := &Map{Cluster: id, Name: name, Version: 1, Nodes: slices.Clone(nodes)}
	for i := range m.Nodes {
		m.Nodes[i].Weight = max(1, m.Nodes[i].Weight)
	}
	slices.SortFunc(m.Nodes, func(a, b MapNode) int { return cmp.Compare(a.ID, b.ID) })
	if shards < 1 || shards > MaxShards {
		return nil, malformed("%d shards, 1 to %d are possible", shards, MaxShards)
	}
	for i := 1; i < len(m.Nodes); i++ {
		if m.Nodes[i].ID == m.Nodes[i-1].ID {
			return nil, malformed("node %q is named twice", clip(m.Nodes[i].ID))
		}
	}
	m.Owner = make([]uint16, shards)
	if err := m.Check(); err != nil {
		return nil, err
	}
	m.grant(shares(shards, m.Nodes))
	return m, nil
}

// shares returns how many shards each node gets; their sum is shards.
func shares(shards int, nodes []MapNode) []int {
	var sum uint64
	for _, n := range nodes {
		sum += uint64(n.Weight)
	}
	out := make([]int, len(nodes))
	byRest := make([]int, len(nodes))
	left := shards
	for i, n := range nodes {
		out[i] = int(uint64(shards) * uint64(n.Weight) / sum)
		left -= out[i]
		byRest[i] = i
	}
	slices.SortStableFunc(byRest, func(a, b int) int {
		rest := func(i int) uint64 { return uint64(shards) * uint64(nodes[i].Weight) % sum }
		return cmp.Compare(rest(b), rest(a))
	})
	for _, i := range byRest[:left] {
		out[i]++
	}
	return out
}

// A bid is a shard that a node holds for the time being.
type bid struct {
	score uint64
	shard uint16
}

func (b bid) less(o bid) bool {
	return b.score < o.score || b.score == o.score && b.shard > o.shard
}

// bids is a heap with the weakest bid on top.
type bids []bid

func (b bids) Len() int           { return len(b) }
func (b bids) Less(i, j int) bool { return b[i].less(b[j]) }
func (b bids) Swap(i, j int)      { b[i], b[j] = b[j], b[i] }
func (b *bids) Push(x any)        { *b = append(*b, x.(bid)) }
func (b *bids) Pop() any {
	last := len(*b) - 1
	x := (*b)[last]
	*b = (*b)[:last]
	return x
}

// grant fills Owner. It reaches the pairing of the comment above without
// sorting all pairs: each shard offers itself to its best node, a node that is
// over its share lets its weakest shard go, and that shard goes on to its next
// best. The weakest shard of a node only gets stronger, so the order of the
// offers does not matter.
func (m *Map) grant(share []int) {
	held := make([]bids, len(m.Nodes))
	last := make([]offer, len(m.Owner)) // by shard
	for i := range last {
		last[i] = offer{score: ^uint64(0), node: -1}
	}
	for shard := range m.Owner {
		for s := uint16(shard); ; {
			last[s] = m.next(s, last[s])
			node := last[s].node
			heap.Push(&held[node], bid{last[s].score, s})
			m.Owner[s] = uint16(node)
			if len(held[node]) <= share[node] {
				break
			}
			s = heap.Pop(&held[node]).(bid).shard
		}
	}
}

// An offer is a shard's place in its ranking of the nodes: by score, falling,
// then by index.
type offer struct {
	score uint64
	node  int
}

func (o offer) before(p offer) bool {
	return o.score > p.score || o.score == p.score && o.node < p.node
}

// next returns the offer that follows o in the ranking of a shard. There always
// is one, because the shares add up to the number of shards.
func (m *Map) next(shard uint16, o offer) offer {
	best := offer{node: len(m.Nodes)}
	for i, n := range m.Nodes {
		if p := (offer{score(shard, n.ID), i}); o.before(p) && p.before(best) {
			best = p
		}
	}
	return best
}

// score is the rendezvous score of a shard and a node: xxhash64 of the shard's
// two bytes and the node's id.
func score(shard uint16, node string) uint64 {
	var buf [2 + MaxName]byte
	le.PutUint16(buf[:], shard)
	n := copy(buf[2:], node)
	return xxhash.Sum64(buf[:2+n])
}
