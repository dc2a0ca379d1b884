package shardmap

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/shardmap/format"
	"github.com/rdmakv/rdmakv/internal/wholefile"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

const dir = "/data"

// mapOf makes a map of the cluster whose id begins with c.
func mapOf(t testing.TB, c byte, name string, shards int, nodes ...string) *cluster.Map {
	t.Helper()
	var list []cluster.MapNode
	for _, n := range nodes {
		list = append(list, cluster.MapNode{ID: n, Weight: 1})
	}
	m, err := cluster.Propose([16]byte{c, 1}, name, shards, list)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func newDisk(t testing.TB) *crashfs.Disk {
	t.Helper()
	fs := crashfs.New()
	if err := errors.Join(fs.MkdirAll(dir, 0o700), wholefile.SyncDir(fs, "/")); err != nil {
		t.Fatal(err)
	}
	return fs
}

func open(t testing.TB, fs vfs.FS) *Book {
	t.Helper()
	b, err := Open(Options{FS: fs, Dir: dir, Node: "a", Name: "red", Shards: 8})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// shows is the state of a book in a word.
func shows(b *Book) string {
	switch {
	case b.Map() != nil && b.Promised() != nil:
		return "both"
	case b.Map() != nil:
		return fmt.Sprintf("committed %x", b.Map().Cluster[0])
	case b.Promised() != nil:
		return fmt.Sprintf("promised %x", b.Promised().Cluster[0])
	}
	return "none"
}

// TestSteps is the table of what each step does in each state.
func TestSteps(t *testing.T) {
	m, other := mapOf(t, 1, "red", 8, "a", "b"), mapOf(t, 2, "red", 8, "a", "b")
	later := *m
	later.Version = 2
	for _, tc := range []struct {
		before string
		step   string
		m      *cluster.Map
		err    error
		after  string
	}{
		{"none", "prepare", m, nil, "promised 1"},
		{"none", "commit", m, ErrNotPromised, "none"},
		{"none", "abandon", m, nil, "none"},
		{"none", "prepare", &later, cluster.ErrNotYet, "none"},
		{"none", "prepare", nil, cluster.ErrNoMap, "none"},
		{"none", "prepare", mapOf(t, 1, "blue", 8, "a"), cluster.ErrOtherCluster, "none"},
		{"none", "prepare", mapOf(t, 1, "red", 9, "a"), ErrShards, "none"},
		{"none", "prepare", mapOf(t, 1, "red", 8, "b"), ErrNotIn, "none"},
		{"none", "prepare", &cluster.Map{Name: "red", Version: 1}, cluster.ErrMalformed, "none"},
		{"none", "change", m, nil, "committed 1"},
		{"promised", "prepare", m, nil, "promised 1"},
		{"promised", "prepare", other, cluster.ErrOtherMap, "promised 1"},
		{"promised", "commit", other, ErrNotPromised, "promised 1"},
		{"promised", "commit", m, nil, "committed 1"},
		{"promised", "abandon", m, nil, "none"},
		{"promised", "abandon", other, cluster.ErrOtherMap, "promised 1"},
		{"promised", "change", m, nil, "committed 1"},
		{"committed", "prepare", m, nil, "committed 1"},
		{"committed", "commit", m, nil, "committed 1"},
		{"committed", "abandon", m, ErrCommitted, "committed 1"},
		{"committed", "abandon", other, ErrCommitted, "committed 1"},
		{"committed", "prepare", other, cluster.ErrOtherCluster, "committed 1"},
		{"committed", "commit", other, cluster.ErrOtherCluster, "committed 1"},
		{"committed", "prepare", &later, cluster.ErrNotYet, "committed 1"},
		{"committed", "change", other, cluster.ErrOtherMap, "committed 1"},
	} {
		t.Run(tc.before+" "+tc.step, func(t *testing.T) {
			fs := newDisk(t)
			b := open(t, fs)
			if tc.before != "none" {
				if err := b.Prepare(t.Context(), m); err != nil {
					t.Fatal(err)
				}
			}
			if tc.before == "committed" {
				if err := b.Commit(m); err != nil {
					t.Fatal(err)
				}
			}
			if err := step(t.Context(), b, tc.step, tc.m); !errors.Is(err, tc.err) || (err != nil) != (tc.err != nil) {
				t.Errorf("%v, want %v", err, tc.err)
			}
			if got := shows(b); got != tc.after {
				t.Errorf("then %s, want %s", got, tc.after)
			}
			if got := shows(open(t, fs.CrashClone(vfs.CrashCloneCfg{}))); got != tc.after {
				t.Errorf("after a crash %s, want %s", got, tc.after)
			}
		})
	}
}

func step(ctx context.Context, b *Book, name string, m *cluster.Map) error {
	switch name {
	case "prepare":
		return b.Prepare(ctx, m)
	case "commit":
		return b.Commit(m)
	case "abandon":
		return b.Abandon(m)
	case "change":
		return b.Change(ctx, nil, m)
	}
	panic(name)
}

// TestOtherDigest: another map of the same cluster and version is refused.
func TestOtherDigest(t *testing.T) {
	m := mapOf(t, 1, "red", 8, "a", "b")
	twin := *m
	twin.Owner = append([]uint16(nil), m.Owner...)
	twin.Owner[0] ^= 1
	b := open(t, newDisk(t))
	if err := b.Change(t.Context(), nil, m); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"prepare", "commit"} {
		if err := step(t.Context(), b, name, &twin); !errors.Is(err, cluster.ErrOtherMap) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := b.Change(t.Context(), m, &twin); !errors.Is(err, cluster.ErrOtherMap) {
		t.Errorf("change: %v", err)
	}
}

// TestNotEmpty: a node with keys promises nothing, and is asked again later.
func TestNotEmpty(t *testing.T) {
	full := errors.New("it holds keys")
	answer := full
	b, err := Open(Options{FS: newDisk(t), Dir: dir, Node: "a", Name: "red", Shards: 8, Empty: func(context.Context) error { return answer }})
	if err != nil {
		t.Fatal(err)
	}
	m := mapOf(t, 1, "red", 8, "a", "b")
	if err := b.Prepare(t.Context(), m); !errors.Is(err, full) || shows(b) != "none" {
		t.Errorf("%v, then %s", err, shows(b))
	}
	answer = nil
	if err := b.Prepare(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	answer = full // once promised it does not matter: no key can have come
	if err := errors.Join(b.Prepare(t.Context(), m), b.Commit(m)); err != nil {
		t.Error(err)
	}
}

// TestRefusedForGood: a run takes promises back because a node has refused the
// map. If the node promised it afterwards, to a run that has the others' promises
// from before, that run would commit a map which the others are free to replace.
func TestRefusedForGood(t *testing.T) {
	first, second := mapOf(t, 1, "red", 8, "a", "b"), mapOf(t, 2, "red", 8, "a", "b")
	node := func(id string) *Book {
		b, err := Open(Options{FS: newDisk(t), Dir: dir, Node: id, Name: "red", Shards: 8})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	a, b := node("a"), node("b")
	must := func(err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Fatalf("%v, want %v", err, want)
		}
	}
	must(b.Prepare(t.Context(), second), nil)                 // run 2, of which a has not heard yet
	must(a.Prepare(t.Context(), first), nil)                  // run 1, which is slow
	must(a.Prepare(t.Context(), second), cluster.ErrOtherMap) // run 2 is refused, and
	must(b.Prepare(t.Context(), first), cluster.ErrOtherMap)  // so is run 3, which found the first map at a
	must(b.Abandon(second), nil)                              // run 2 takes back
	must(a.Abandon(first), nil)                               // run 3 takes back
	if err := b.Prepare(t.Context(), first); err == nil {     // run 1 goes on: a has promised it, long ago
		must(b.Commit(first), nil)
		must(a.Prepare(t.Context(), mapOf(t, 3, "red", 8, "a", "c")), nil)
		t.Fatal("b has committed a map that a is no longer bound by")
	}
	third := mapOf(t, 4, "red", 8, "a", "b")
	must(errors.Join(a.Prepare(t.Context(), third), b.Prepare(t.Context(), third)), nil)
}

// TestDamaged: a file is refused whatever bit of it is flipped, and wherever it
// is cut.
func TestDamaged(t *testing.T) {
	fs := newDisk(t)
	m := mapOf(t, 1, "red", 8, "a", "b")
	if err := open(t, fs).Change(t.Context(), nil, m); err != nil {
		t.Fatal(err)
	}
	path := fs.PathJoin(dir, format.MapFile)
	good, err := wholefile.Read(fs, path, format.MaxFile)
	if err != nil {
		t.Fatal(err)
	}
	refuse := func(what string, data []byte) {
		t.Helper()
		if err := wholefile.Replace(fs, dir, format.MapFile, data); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(Options{FS: fs, Dir: dir, Node: "a", Name: "red", Shards: 8}); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := range len(good) * 8 {
		bad := append([]byte(nil), good...)
		bad[i/8] ^= 1 << (i % 8)
		refuse(fmt.Sprintf("bit %d flipped", i), bad)
	}
	for i := range good {
		refuse(fmt.Sprintf("cut to %d bytes", i), good[:i])
	}
	refuse("a byte more", append(append([]byte(nil), good...), 0))
	for _, opt := range []Options{{Node: "a", Name: "blue", Shards: 8}, {Node: "c", Name: "red", Shards: 8}, {Node: "a", Name: "red", Shards: 9}} {
		if err := wholefile.Replace(fs, dir, format.MapFile, good); err != nil {
			t.Fatal(err)
		}
		opt.FS, opt.Dir = fs, dir
		if _, err := Open(opt); err == nil {
			t.Errorf("%+v takes a map that is not its own", opt)
		}
	}
}

var seed = flag.Int64("seed", 0, "seed of the random runs; 0: a new one")

// TestCrashes takes random steps, and after each operation on the disk has the
// machine crash with a random part of what was not synced. What is there again
// is the state before the step or, at most, the one after it; once the step has
// returned, that one. Then other operations fail, too.
func TestCrashes(t *testing.T) {
	s := uint64(*seed)
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("replay: go test ./internal/shardmap -run TestCrashes -seed %d", s)
	rng := rand.New(rand.NewPCG(s, 1))
	maps := []*cluster.Map{mapOf(t, 1, "red", 8, "a", "b"), mapOf(t, 2, "red", 8, "a", "b")}
	clones, failures := 0, 0
	for range 150 {
		disk := newDisk(t)
		var after func(op errorfs.Op) error // what every operation meets
		fs := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if after == nil {
				return nil
			}
			return after(op)
		}))
		b := open(t, fs)
		for range 6 {
			name, m := []string{"prepare", "commit", "abandon"}[rng.IntN(3)], maps[rng.IntN(2)]
			before := shows(b)
			var seen []string
			fail := rng.IntN(4) == 0
			after = func(op errorfs.Op) error {
				clones++
				clone := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rand.New(rand.NewPCG(rng.Uint64(), 2))})
				seen = append(seen, shows(open(t, clone)))
				if fail && rng.IntN(4) == 0 {
					failures++
					return errors.New("the disk fails")
				}
				return nil
			}
			err := step(t.Context(), b, name, m)
			after = nil
			end := shows(b)
			for _, s := range seen {
				// A step that could not be synced may be there, too, but never a
				// map that no call has asked for.
				if s == before || s == end || fail || b.unsure {
					continue
				}
				if err == nil || s != target(name, m) {
					t.Fatalf("%s of map %x in state %s: a crash in it leaves %s", name, m.Cluster[0], before, s)
				}
			}
			if strings.HasPrefix(before, "committed") && end != before {
				t.Fatalf("%s: %s became %s", name, before, end)
			}
			if b.unsure {
				break // a disk that fails is the end of a node
			}
			clone := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rand.New(rand.NewPCG(rng.Uint64(), 2))})
			if got := shows(open(t, clone)); got != end {
				t.Fatalf("%s of map %x in state %s (%v): then %s, and after a crash %s", name, m.Cluster[0], before, err, end, got)
			}
		}
	}
	if clones < 500 || failures < 10 {
		t.Errorf("%d crashes and %d failures are too few to show anything", clones, failures)
	}
}

// target is the state that a step leads to.
func target(name string, m *cluster.Map) string {
	switch name {
	case "prepare":
		return fmt.Sprintf("promised %x", m.Cluster[0])
	case "commit":
		return fmt.Sprintf("committed %x", m.Cluster[0])
	}
	return "none"
}
