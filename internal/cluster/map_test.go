package cluster

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Each node gets its share by weight, rounded down or up; the map is the same
// in whatever order the nodes are named; and one node more takes shards from
// the others without moving any between them, except where a share shrank.
func TestProposeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 20).Draw(t, "nodes")
		shards := rapid.IntRange(n+1, 256).Draw(t, "shards")
		equal := rapid.Bool().Draw(t, "equal")
		var nodes []MapNode
		var sum uint64
		for i := range n {
			weight := uint32(1)
			if !equal {
				weight = rapid.Uint32Range(1, 100).Draw(t, "weight")
			}
			sum += uint64(weight)
			nodes = append(nodes, MapNode{fmt.Sprintf("n%d", i), weight})
		}
		m, err := Propose(sampleID, "c", shards, nodes)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Check(); err != nil {
			t.Fatal(err)
		}
		for _, node := range m.Nodes {
			share := float64(shards) * float64(node.Weight) / float64(sum)
			if got := float64(len(m.Shards(node.ID))); got <= share-1 || got >= share+1 {
				t.Fatalf("%v shards of %d for weight %d of %d", got, shards, node.Weight, sum)
			}
		}
		other, err := Propose(sampleID, "c", shards, rapid.Permutation(nodes).Draw(t, "order"))
		if err != nil || other.Digest() != m.Digest() {
			t.Fatalf("%v: another map in another order", err)
		}
		if again, err := ParseMap(AppendMap(nil, m)); err != nil || !reflect.DeepEqual(again, m) {
			t.Fatalf("%v: %+v", err, again)
		}
	})
}

// A proposal for one node more leaves most shards where they were: the ideal
// is shards/nodes moves; rounding and ranking may cost as many again.
func TestProposeIsStable(t *testing.T) {
	var nodes []MapNode
	for i := range 10 {
		nodes = append(nodes, MapNode{ID: fmt.Sprintf("node-%d", i)})
	}
	before, err := Propose(sampleID, "c", 4096, nodes)
	if err != nil {
		t.Fatal(err)
	}
	after, err := Propose(sampleID, "c", 4096, append(nodes, MapNode{ID: "node-a"}))
	if err != nil {
		t.Fatal(err)
	}
	moved := 0
	for shard := range before.Owner {
		if before.OwnerOf(uint16(shard)) != after.OwnerOf(uint16(shard)) {
			moved++
		}
	}
	if ideal := 4096 / 11; moved > 2*ideal {
		t.Errorf("%d of 4096 shards moved for the eleventh node; %d would do", moved, ideal)
	}
}

func TestProposeAtFullSize(t *testing.T) {
	var nodes []MapNode
	for i := range MaxNodes {
		nodes = append(nodes, MapNode{ID: fmt.Sprintf("%s-%d", strings.Repeat("n", 50), i), Weight: uint32(1 + i%7)})
	}
	m, err := Propose(sampleID, "c", MaxShards, nodes)
	if err != nil {
		t.Fatal(err)
	}
	b := AppendMap(nil, m)
	if len(b) > MaxMap {
		t.Errorf("%d bytes, at most %d", len(b), MaxMap)
	}
	if _, err := ParseMap(b); err != nil {
		t.Error(err)
	}
}

func TestCheckChange(t *testing.T) {
	edit := func(f func(*Map)) *Map {
		m := *sampleMap()
		f(&m)
		return &m
	}
	first := sampleMap()
	for name, tc := range map[string]struct {
		previous, next *Map
		want           error
	}{
		"first":         {nil, first, nil},
		"again":         {first, sampleMap(), nil},
		"none":          {first, nil, ErrNoMap},
		"late first":    {nil, edit(func(m *Map) { m.Version = 2 }), ErrNotYet},
		"malformed":     {nil, edit(func(m *Map) { m.Name = "" }), ErrMalformed},
		"other cluster": {first, edit(func(m *Map) { m.Cluster[3]++ }), ErrOtherCluster},
		"other name":    {first, edit(func(m *Map) { m.Name = "other" }), ErrOtherCluster},
		"other map":     {first, edit(func(m *Map) { m.Owner = append([]uint16{(m.Owner[0] + 1) % 3}, m.Owner[1:]...) }), ErrOtherMap},
		"older":         {edit(func(m *Map) { m.Version = 3 }), first, ErrOtherMap},
		"newer":         {first, edit(func(m *Map) { m.Version = 2 }), ErrNotYet},
	} {
		if err := CheckChange(tc.previous, tc.next); !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

func TestMapAnswers(t *testing.T) {
	m := sampleMap()
	total := 0
	for _, n := range m.Nodes {
		for _, shard := range m.Shards(n.ID) {
			total++
			if !m.Owns(n.ID, shard) || m.OwnerOf(shard) != n.ID {
				t.Errorf("shard %d is not node %s's", shard, n.ID)
			}
		}
	}
	if total != len(m.Owner) {
		t.Errorf("%d shards of %d", total, len(m.Owner))
	}
	if m.Has("nobody") || m.Shards("nobody") != nil || m.Owns("node-a", 99) || !m.Has("node-b") {
		t.Error("a stranger owns something")
	}
}

func TestMetaIsBounded(t *testing.T) {
	m := sampleMember()
	for len(m.Endpoints) < MaxEndpoints {
		m.Endpoints = append(m.Endpoints, Endpoint{"iwarp", "10.0.0.9:7400"})
	}
	if b, err := AppendMeta(nil, &m); err != nil || len(b) > MaxMeta {
		t.Fatalf("%d bytes: %v", len(b), err)
	}
	m.Endpoints[0].Addr = strings.Repeat("x", MaxAddr)
	if b, err := AppendMeta(nil, &m); !errors.Is(err, ErrMalformed) || len(b) != 0 {
		t.Errorf("%d bytes: %v", len(b), err)
	}
	for _, bad := range []Endpoint{{"", "a"}, {"iwarp", ""}, {"iw arp", "a"}, {"iwarp", "a\n"}, {"0123456789012345", "a"}, {"iwarp", strings.Repeat("x", MaxAddr+1)}} {
		m := sampleMember()
		m.Endpoints = []Endpoint{bad}
		if _, err := AppendMeta(nil, &m); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func BenchmarkPropose(b *testing.B) {
	var nodes []MapNode
	for i := range 1000 {
		nodes = append(nodes, MapNode{ID: fmt.Sprintf("node-%d", i)})
	}
	for b.Loop() {
		if _, err := Propose(sampleID, "c", MaxShards, nodes); err != nil {
			b.Fatal(err)
		}
	}
}
