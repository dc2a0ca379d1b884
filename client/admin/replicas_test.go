package admin_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/internal/cluster"
)

// stored are three nodes that tell their stores.
func stored(t *testing.T) []*clienttest.Node {
	nodes := clienttest.Cluster(t, 3, false)
	for i, n := range nodes {
		n.Store = strings.Repeat(string(rune('1'+i)), 32)
	}
	return nodes
}

// TestClusterInitReplicasResumed: what was interrupted is finished with the map that was promised, whatever the proposal would be
// now; what was promised without replicas, or with others, is not what the command asks for, and stays.
func TestClusterInitReplicasResumed(t *testing.T) {
	in := []cluster.MapNode{{ID: "n1"}, {ID: "n2"}, {ID: "n3"}}
	want := cluster.Want{Replicas: 3, Groups: 4}
	for i := range in {
		want.Stores = append(want.Stores, [16]byte{0: byte(i + 1)}) // others than the nodes tell now: theirs is the last word
	}
	a, err := cluster.ProposeReplicas([16]byte{1}, "fakes", clienttest.ClusterShards, in, want)
	if err != nil {
		t.Fatal(err)
	}
	alone, err := cluster.Propose([16]byte{2}, "fakes", clienttest.ClusterShards, in)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		at   func([]*clienttest.Node)
		o    admin.InitOptions
		want error
	}{
		"one has promised":           {func(n []*clienttest.Node) { n[1].Promised = a }, admin.InitOptions{Replicas: 3, Groups: 4}, nil},
		"nothing is said of groups":  {func(n []*clienttest.Node) { n[1].Promised = a }, admin.InitOptions{Replicas: 3}, nil},
		"one has committed":          {func(n []*clienttest.Node) { n[0].Promised, n[1].Map, n[2].Promised = a, a, a }, admin.InitOptions{Replicas: 3, Groups: 4}, nil},
		"all but one have committed": {func(n []*clienttest.Node) { n[0].Map, n[1].Map, n[2].Promised = a, a, a }, admin.InitOptions{Replicas: 3, Groups: 4}, nil},
		"with other groups":          {func(n []*clienttest.Node) { n[1].Promised = a }, admin.InitOptions{Replicas: 3, Groups: 2}, admin.ErrOtherMap},
		"without replicas":           {func(n []*clienttest.Node) { n[1].Promised = a }, admin.InitOptions{}, admin.ErrOtherMap},
		"promised without replicas":  {func(n []*clienttest.Node) { n[1].Promised = alone }, admin.InitOptions{Replicas: 3}, admin.ErrOtherMap},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := stored(t)
			tc.at(nodes)
			_, err := admin.Of(dialFakes(t, nodes, nil)).ClusterInitWith(t.Context(), weights("n1", "n2", "n3"), tc.o)
			if !errors.Is(err, tc.want) {
				t.Fatal(err)
			}
			for _, n := range nodes {
				if tc.want == nil && (n.Map == nil || n.Map.Digest() != a.Digest()) {
					t.Errorf("%s has %v", n.ID, n.Map)
				}
				if tc.want != nil && len(n.Steps) > 0 {
					t.Errorf("%s was told %v", n.ID, n.Steps)
				}
			}
		})
	}
}

// TestClusterInitReplicasAlike: the same nodes get the same groups, in whatever order they are named and at whichever cluster; only
// what makes the cluster one differs.
func TestClusterInitReplicasAlike(t *testing.T) {
	var first *cluster.Map
	for _, order := range [][]string{{"n1", "n2", "n3"}, {"n3", "n1", "n2"}} {
		nodes := stored(t)
		if _, err := admin.Of(dialFakes(t, nodes, nil)).ClusterInitWith(t.Context(), weights(order...), admin.InitOptions{Replicas: 3}); err != nil {
			t.Fatal(err)
		}
		m := nodes[0].Map
		if first == nil {
			first = m
			continue
		}
		if m.Cluster == first.Cluster || !reflect.DeepEqual(m.Replication, first.Replication) || !slices.Equal(m.Owner, first.Owner) {
			t.Errorf("%+v\n%+v", m, first)
		}
	}
}

// TestClusterInitReplicasRefused: the text of a node that is not fit for replicas is shown with its name, and all promises are taken back.
func TestClusterInitReplicasRefused(t *testing.T) {
	nodes := stored(t)
	nodes[1].Refuse = "replicas need sync: always"
	_, err := admin.Of(dialFakes(t, nodes, nil)).ClusterInitWith(t.Context(), weights("n1", "n2", "n3"), admin.InitOptions{Replicas: 3})
	partial := (*client.PartialError)(nil)
	if !errors.As(err, &partial) || len(partial.Failures) != 1 || partial.Failures[0].Node != "n2" ||
		!strings.Contains(err.Error(), "at n2") || !strings.Contains(err.Error(), "replicas need sync: always") {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if n.Map != nil || n.Promised != nil {
			t.Errorf("%s: %v, promised %v", n.ID, n.Map, n.Promised)
		}
	}
}

// TestClusterInitFounders: the groups of the map are told, each with its preferred leader first, and each node with what it leads.
func TestClusterInitFounders(t *testing.T) {
	nodes := stored(t)
	info, err := admin.Of(dialFakes(t, nodes, nil)).ClusterInitWith(t.Context(), weights("n1", "n2", "n3"), admin.InitOptions{Replicas: 3, Groups: 4})
	if err != nil || len(info.Founders) != 4 {
		t.Fatalf("%+v, %v", info, err)
	}
	leads, shards := map[string]int{}, 0
	for i, g := range info.Founders {
		if g.ID != uint32(i+1) || len(g.Replicas) != 3 || g.Leader != "" || g.Term != 0 || info.Owners[g.Shards[0]] != g.Replicas[0].Node {
			t.Errorf("%+v", g)
		}
		leads[g.Replicas[0].Node]++
		shards += len(g.Shards)
	}
	for _, n := range info.Nodes {
		if n.Leads != leads[n.ID] || n.Leads == 0 {
			t.Errorf("%s leads %d groups, by the groups %d", n.ID, n.Leads, leads[n.ID])
		}
	}
	if shards != info.Shards {
		t.Errorf("%d shards of %d are in groups", shards, info.Shards)
	}
}

// TestClusterInitZones: replicas of a group are in different zones as far as there are enough. A zone for some nodes only would put
// the others together, and one without replicas does nothing: both are mistakes.
func TestClusterInitZones(t *testing.T) {
	in := func(zones ...string) (list []admin.NodeWeight) {
		for i, z := range zones {
			list = append(list, admin.NodeWeight{ID: "n" + string(rune('1'+i)), Zone: z})
		}
		return list
	}
	fakes := func() []*clienttest.Node {
		nodes := clienttest.Cluster(t, 6, false)
		for i, n := range nodes {
			n.Store = strings.Repeat(string(rune('1'+i)), 32)
		}
		return nodes
	}
	nodes := fakes()
	want := in("x", "x", "y", "y", "z", "z")
	slices.Reverse(want) // zones go with their nodes, not with their places
	info, err := admin.Of(dialFakes(t, nodes, nil)).ClusterInitWith(t.Context(), want, admin.InitOptions{Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range info.Founders {
		zones := map[byte]bool{}
		for _, p := range g.Replicas {
			zones[(p.Node[1]-'1')/2] = true
		}
		if len(zones) != 3 {
			t.Errorf("group %d: %+v", g.ID, g.Replicas)
		}
	}
	for name, tc := range map[string]struct {
		nodes []admin.NodeWeight
		o     admin.InitOptions
		want  string
	}{
		"for some only":    {in("x", "x", "y", "y", "z", ""), admin.InitOptions{Replicas: 3}, "5 of 6"},
		"without replicas": {in("x", "x", "y", "y", "z", "z"), admin.InitOptions{}, "zones"},
	} {
		nodes := fakes()
		if _, err := admin.Of(dialFakes(t, nodes, nil)).ClusterInitWith(t.Context(), tc.nodes, tc.o); !errors.Is(err, client.ErrOptions) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestClusterInitReplicas: the map of a cluster with replicas names the stores of the nodes; again changes nothing, also without a
// word about groups, and other replicas are too late. A node that does not tell its store is too old.
func TestClusterInitReplicas(t *testing.T) {
	nodes := clienttest.Cluster(t, 3, false)
	c := dialFakes(t, nodes, nil)
	with := admin.InitOptions{Replicas: 3, Groups: 4}
	for _, store := range []string{"", "00", strings.Repeat("0", 32), "x" + strings.Repeat("1", 31)} {
		nodes[0].Store, nodes[1].Store, nodes[2].Store = strings.Repeat("1", 32), store, strings.Repeat("3", 32)
		if _, err := admin.Of(c).ClusterInitWith(t.Context(), weights("n1", "n2", "n3"), with); !errors.Is(err, client.ErrUnsupported) || !strings.Contains(err.Error(), "n2") {
			t.Errorf("store %q: %v", store, err)
		}
	}
	nodes[1].Store = strings.Repeat("2", 32)
	for _, bad := range []struct {
		o    admin.InitOptions
		want string
	}{
		{admin.InitOptions{Replicas: 2}, "even number"},
		{admin.InitOptions{Replicas: 5}, "5 replicas on 3 nodes"},
		{admin.InitOptions{Replicas: 9}, "1, 3, 5 or 7"},
		{admin.InitOptions{Replicas: -1}, "1, 3, 5 or 7"},
		{admin.InitOptions{Replicas: 3, Groups: clienttest.ClusterShards + 1}, "9 groups of 8 shards"},
		{admin.InitOptions{Replicas: 3, Groups: 5000}, "1 to 256"},
		{admin.InitOptions{Replicas: 3, Groups: -1}, "1 to 256"},
		{admin.InitOptions{Groups: 2}, "without replicas"},
		{admin.InitOptions{Replicas: 1, Groups: 2}, "without replicas"},
	} {
		if _, err := admin.Of(c).ClusterInitWith(t.Context(), weights("n1", "n2", "n3"), bad.o); !errors.Is(err, client.ErrOptions) || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%+v: %v, want %q", bad.o, err, bad.want)
		}
	}
	info, err := admin.Of(c).ClusterInitWith(t.Context(), weights("n3", "n1", "n2"), with)
	if err != nil || info.Replicas != 3 || info.Groups != 4 {
		t.Fatalf("%+v, %v", info, err)
	}
	for i, n := range nodes {
		r := n.Map.Replication
		if want := byte(0x11 * (i + 1)); r == nil || r.Stores[i][0] != want || n.Map.Digest() != nodes[0].Map.Digest() {
			t.Errorf("%s: %+v", n.ID, n.Map)
		}
	}
	for _, same := range []admin.InitOptions{with, {Replicas: 3}} {
		if again, err := admin.Of(c).ClusterInitWith(t.Context(), weights("n1", "n2", "n3"), same); err != nil || again.MapDigest != info.MapDigest {
			t.Errorf("again with %+v: %v", same, err)
		}
	}
	for _, other := range []admin.InitOptions{{}, {Replicas: 1}, {Replicas: 3, Groups: 8}} {
		if _, err := admin.Of(c).ClusterInitWith(t.Context(), weights("n1", "n2", "n3"), other); !errors.Is(err, admin.ErrOtherMap) || !strings.Contains(err.Error(), "4 groups of 3 replicas") {
			t.Errorf("with %+v: %v", other, err)
		}
	}
}
