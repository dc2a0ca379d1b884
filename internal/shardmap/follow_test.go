package shardmap

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/shardmap/format"
	"github.com/rdmakv/rdmakv/internal/wholefile"
)

// replicasOf makes the first map of a cluster with one replica of each of two groups, at the nodes a, b and c.
func replicasOf(t testing.TB, c byte) *cluster.Map {
	t.Helper()
	want := cluster.Want{Replicas: 1, Groups: 2}
	var nodes []cluster.MapNode
	for _, n := range []string{"a", "b", "c"} {
		nodes = append(nodes, cluster.MapNode{ID: n, Weight: 1})
		want.Stores = append(want.Stores, [16]byte{n[0]})
	}
	m, err := cluster.ProposeReplicas([16]byte{c, 1}, "red", 8, nodes, want)
	if err != nil {
		t.Fatal(err)
	}
	return fixed(m)
}

// fixed takes out of a map what only one with a meta group has, so that it is changed by hand more easily.
func fixed(m *cluster.Map) *cluster.Map {
	r := m.Replication
	r.Meta, r.Zones = nil, nil
	for i := range r.Groups {
		r.Groups[i].Top = 0
	}
	return m
}

// versionOf is a later map, with the given nodes; the replicas are at the first of them, under ids that rise.
func versionOf(m *cluster.Map, version uint64, nodes ...string) *cluster.Map {
	next, r := *m, *m.Replication
	next.Version, next.Nodes, next.Owner, next.Replication = version, nil, make([]uint16, len(m.Owner)), &r
	r.Stores, r.Groups = nil, slices.Clone(r.Groups)
	for _, n := range nodes {
		next.Nodes = append(next.Nodes, cluster.MapNode{ID: n, Weight: 1})
		r.Stores = append(r.Stores, [16]byte{n[0]})
	}
	for i := range r.Groups {
		r.Groups[i].Replicas = []cluster.Replica{{Node: 0, ID: 10 * version}}
	}
	return &next
}

// stands is the state of a book in words, with the version.
func stands(b *Book) string {
	switch m := b.Map(); {
	case m != nil && b.Promised() != nil:
		return "both"
	case m != nil && b.Left():
		return fmt.Sprintf("left %x.%d", m.Cluster[0], m.Version)
	case m != nil:
		return fmt.Sprintf("in force %x.%d", m.Cluster[0], m.Version)
	case b.Promised() != nil:
		return fmt.Sprintf("promised %x.%d", b.Promised().Cluster[0], b.Promised().Version)
	}
	return "none"
}

// TestFollow is the table of what Follow does in each state, and the other steps behind it.
func TestFollow(t *testing.T) {
	first, other := replicasOf(t, 1), replicasOf(t, 2)
	v2, v3, v4 := versionOf(first, 2, "a", "b", "c"), versionOf(first, 3, "b", "c"), versionOf(first, 4, "a", "c")
	shards := versionOf(first, 5, "a", "b")
	shards.Replication.Group = slices.Clone(shards.Replication.Group)
	shards.Replication.Group[0] ^= 1
	nine, err := cluster.ProposeReplicas([16]byte{1, 1}, "red", 9, first.Nodes, cluster.Want{Replicas: 1, Groups: 2, Stores: first.Replication.Stores})
	fixed(nine)
	if err != nil {
		t.Fatal(err)
	}
	nine.Version = 2
	blue := versionOf(first, 2, "a", "b")
	blue.Name = "blue"
	alone := *mapOf(t, 1, "red", 8, "a", "b")
	alone.Version = 2
	full := errors.New("it holds keys")
	for _, tc := range []struct {
		name   string
		before []*cluster.Map // prepared and committed, if the first version; or followed
		m      *cluster.Map
		full   bool // the node is not empty
		err    error
		after  string
	}{
		{"comes in", nil, v2, false, nil, "in force 1.2"},
		{"comes in, with keys", nil, v2, true, full, "none"},
		{"comes in where it is not", nil, v3, false, ErrNotIn, "none"},
		{"none", nil, nil, false, cluster.ErrNoMap, "none"},
		{"a first map", nil, first, false, ErrNotPromised, "none"},
		{"malformed", nil, &cluster.Map{Name: "red", Version: 2}, false, cluster.ErrMalformed, "none"},
		{"without replicas", nil, &alone, false, cluster.ErrNotYet, "none"},
		{"of other shards", nil, nine, false, ErrShards, "none"},
		{"of another name", nil, blue, false, cluster.ErrOtherCluster, "none"},
		{"the next", []*cluster.Map{first}, v2, true, nil, "in force 1.2"},
		{"the same", []*cluster.Map{first}, first, true, nil, "in force 1.1"},
		{"the same later one", []*cluster.Map{first, v2}, v2, true, nil, "in force 1.2"},
		{"the one but next", []*cluster.Map{first}, v4, true, nil, "in force 1.4"},
		{"an older one", []*cluster.Map{first, v4}, v2, true, cluster.ErrOtherMap, "in force 1.4"},
		{"another of the version", []*cluster.Map{first, v2}, versionOf(first, 2, "a", "b"), true, cluster.ErrOtherMap, "in force 1.2"},
		{"another cluster's", []*cluster.Map{first}, versionOf(other, 2, "a", "b"), true, cluster.ErrOtherCluster, "in force 1.1"},
		{"with other shards of groups", []*cluster.Map{first}, shards, true, cluster.ErrFixed, "in force 1.1"},
		{"leaves", []*cluster.Map{first, v2}, v3, true, nil, "left 1.3"},
		{"has left", []*cluster.Map{first, v3}, v3, true, nil, "left 1.3"},
		{"stays away", []*cluster.Map{first, v3}, versionOf(first, 4, "b", "d"), true, nil, "left 1.4"},
		{"an older one, where it was", []*cluster.Map{first, v3}, v2, true, cluster.ErrOtherMap, "left 1.3"},
		{"comes back", []*cluster.Map{first, v3}, v4, false, nil, "in force 1.4"},
		{"comes back, with keys", []*cluster.Map{first, v3}, v4, true, full, "left 1.3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fs := newDisk(t)
			holds := error(nil)
			suits := 0
			opt := Options{
				FS: fs, Dir: dir, Node: "a", Name: "red", Shards: 8, Empty: func(context.Context) error { return holds },
				Suits: func(context.Context, *cluster.Map) error { suits++; return nil },
			}
			b, err := Open(opt)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range tc.before {
				if m.Version == 1 {
					err = errors.Join(b.Prepare(t.Context(), m), b.Commit(m))
				} else {
					err = b.Follow(t.Context(), m)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			before := stands(b)
			if tc.full {
				holds = full
			}
			suits = 0
			if err := b.Follow(t.Context(), tc.m); !errors.Is(err, tc.err) || (err != nil) != (tc.err != nil) {
				t.Errorf("%v, want %v", err, tc.err)
			}
			if got := stands(b); got != tc.after {
				t.Errorf("then %s, want %s", got, tc.after)
			}
			if comes := (before == "none" || b.Map() != nil && before[:4] == "left" && !b.Left()) && tc.err == nil; comes != (suits == 1) {
				t.Errorf("asked %d times whether the node suits", suits)
			}
			opt.FS = fs.CrashClone(vfs.CrashCloneCfg{})
			if b, err = Open(opt); err != nil {
				t.Fatal(err)
			}
			if got := stands(b); got != tc.after {
				t.Errorf("after a crash %s, want %s", got, tc.after)
			}
		})
	}
}

// TestFollowOverPromises: a later map of the cluster that a node has promised to come into takes the place of the commit; another cluster's does not.
func TestFollowOverPromises(t *testing.T) {
	first, other := replicasOf(t, 1), replicasOf(t, 2)
	for _, tc := range []struct {
		m     *cluster.Map
		err   error
		after string
	}{
		{versionOf(first, 2, "a", "b"), nil, "in force 1.2"},
		{versionOf(first, 3, "b", "c"), nil, "left 1.3"},
		{versionOf(other, 2, "a", "b"), cluster.ErrOtherMap, "promised 1.1"},
		{first, ErrNotPromised, "promised 1.1"},
	} {
		fs := newDisk(t)
		b := open(t, fs)
		if err := b.Prepare(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		if err := b.Follow(t.Context(), tc.m); !errors.Is(err, tc.err) || stands(b) != tc.after {
			t.Errorf("%v: %v, then %s; want %v, %s", tc.m, err, stands(b), tc.err, tc.after)
		}
		if got := stands(open(t, fs.CrashClone(vfs.CrashCloneCfg{}))); got != tc.after {
			t.Errorf("%v: after a crash %s, want %s", tc.m, got, tc.after)
		}
	}
}

// TestStepsBehindFollow: the steps of a first map change nothing where a later one is in force, and Change follows.
func TestStepsBehindFollow(t *testing.T) {
	first := replicasOf(t, 1)
	v2, v3 := versionOf(first, 2, "a", "b", "c"), versionOf(first, 3, "b", "c")
	b := open(t, newDisk(t))
	if err := b.Change(t.Context(), nil, first); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		got   error
		want  error
		after string
	}{
		{"a later one is not prepared", b.Prepare(t.Context(), v2), cluster.ErrOtherMap, "in force 1.1"},
		{"nor committed", b.Commit(v2), cluster.ErrOtherMap, "in force 1.1"},
		{"change of another", b.Change(t.Context(), v2, v3), cluster.ErrOtherMap, "in force 1.1"},
	} {
		if !errors.Is(tc.got, tc.want) || stands(b) != tc.after {
			t.Errorf("%s: %v, %s", tc.name, tc.got, stands(b))
		}
	}
	if err := b.Change(t.Context(), first, v2); err != nil || stands(b) != "in force 1.2" {
		t.Errorf("change: %v, %s", err, stands(b))
	}
	if err := b.Prepare(t.Context(), first); !errors.Is(err, cluster.ErrOtherMap) {
		t.Errorf("the first one again: %v", err)
	}
	if err := b.Abandon(v2); !errors.Is(err, ErrCommitted) {
		t.Errorf("abandon: %v", err)
	}
	if err := b.Change(t.Context(), v2, v3); err != nil || !b.Left() {
		t.Errorf("%v, %s", err, stands(b))
	}
	if err := errors.Join(b.Prepare(t.Context(), v3), b.Commit(v3)); err != nil || !b.Left() {
		t.Errorf("the one in force again: %v", err)
	}
}

// TestLeftOnDisk: a first map, or one that is promised, has the node; else the directory is another node's.
func TestLeftOnDisk(t *testing.T) {
	first := replicasOf(t, 1)
	for _, tc := range []struct {
		state format.State
		m     *cluster.Map
		err   error
	}{
		{format.Committed, versionOf(first, 2, "b", "c"), nil},
		{format.Promised, versionOf(first, 2, "b", "c"), ErrNotIn},
		{format.Committed, versionOf(first, 1, "b", "c"), ErrNotIn},
		{format.Committed, mapOf(t, 1, "red", 8, "b"), ErrNotIn},
	} {
		fs := newDisk(t)
		if err := wholefile.Replace(fs, dir, format.MapFile, format.AppendMap(nil, tc.state, tc.m)); err != nil {
			t.Fatal(err)
		}
		b, err := Open(Options{FS: fs, Dir: dir, Node: "a", Name: "red", Shards: 8})
		if !errors.Is(err, tc.err) || err == nil && !b.Left() {
			t.Errorf("%v in state %d: %v", tc.m, tc.state, err)
		}
	}
}

// TestFollowCrashes follows maps at random, while the disk fails now and then, and has the machine crash in each operation of the disk. What is there again is
// the map from before or the one that was asked for, and no version that was once answered for is lost.
func TestFollowCrashes(t *testing.T) {
	s := uint64(*seed)
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("replay: go test ./internal/shardmap -run TestFollowCrashes -seed %d", s)
	rng := rand.New(rand.NewPCG(s, 3))
	first := replicasOf(t, 1)
	maps := []*cluster.Map{first, versionOf(first, 2, "a", "b"), versionOf(first, 3, "b", "c"), versionOf(first, 4, "a", "c"), versionOf(first, 5, "a", "b", "c")}
	clones, failures := 0, 0
	for range 100 {
		disk := newDisk(t)
		var after func() error
		fs := errorfs.Wrap(disk, errorfs.InjectorFunc(func(errorfs.Op) error {
			if after == nil {
				return nil
			}
			return after()
		}))
		clone := func() string {
			clones++
			c := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rand.New(rand.NewPCG(rng.Uint64(), 2))})
			return stands(open(t, c))
		}
		b := open(t, fs)
		if rng.IntN(2) == 0 {
			if err := b.Change(t.Context(), nil, first); err != nil {
				t.Fatal(err)
			}
		} else if rng.IntN(2) == 0 {
			if err := b.Prepare(t.Context(), first); err != nil {
				t.Fatal(err)
			}
		}
		may := map[string]bool{stands(b): true} // what may be there after a crash: what was answered for last, and what was tried since
		for range 8 {
			m := maps[1+rng.IntN(len(maps)-1)]
			target := fmt.Sprintf("in force 1.%d", m.Version)
			if !m.Has("a") {
				target = fmt.Sprintf("left 1.%d", m.Version)
			}
			before := stands(b)
			fail := rng.IntN(3) == 0
			after = func() error {
				if got := clone(); got != target && !may[got] {
					t.Fatalf("follow of %v in state %s: a crash in it leaves %s", m, before, got)
				}
				if fail && rng.IntN(4) == 0 {
					failures++
					return errors.New("the disk fails")
				}
				return nil
			}
			err := b.Follow(t.Context(), m)
			after = nil
			switch end := stands(b); {
			case err == nil && end != target:
				t.Fatalf("follow of %v: %s", m, end)
			case err == nil:
				may = map[string]bool{target: true}
			case end != before:
				t.Fatalf("follow of %v has failed with %v, and %s became %s", m, err, before, end)
			case b.unsure:
				may[target] = true
			}
			if got := clone(); !may[got] {
				t.Fatalf("behind the follow of %v (%v) a crash leaves %s; possible are %v", m, err, got, may)
			}
		}
	}
	if clones < 500 || failures < 10 {
		t.Errorf("%d crashes and %d failures are too few to show anything", clones, failures)
	}
}
