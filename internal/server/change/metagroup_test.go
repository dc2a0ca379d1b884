package change

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/document"
	"github.com/rdmakv/rdmakv/internal/feature"
)

// files are those of replicas of the meta group.
func (n *node) files(t testing.TB) (list []string) {
	t.Helper()
	names, err := n.fs.List("data")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, metaFile) {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// again is the next life of a node, with its files and its logs.
func (n *node) again(t testing.TB) *node {
	t.Helper()
	n.Stop()
	next := newNode(t, n.env.Node)
	next.fs, next.env.FS = n.fs, n.fs
	next.engine.logs = n.engine.logs
	return next
}

// write replaces the content of a file.
func (n *node) write(t testing.TB, name, content string) {
	t.Helper()
	f, err := n.fs.Create("data/"+name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// changes are maps of which the first has replica 1 at node a, the second none, and the third another one.
func changes(t testing.TB) (first, second, third *cluster.Map, old, fresh uint64) {
	first = born(t)
	old = first.Draft().Groups[0].At("a").ID
	second = later(t, first, func(d *cluster.Draft) { d.Groups[0].Take(old, 0) })
	third = later(t, second, func(d *cluster.Draft) { fresh = d.Groups[0].Add("a") })
	return first, second, third, old, fresh
}

// TestHosts: a node has the replica of the meta group that its map gives it, and gives up, log first and file last, the one that the map has not any more.
func TestHosts(t *testing.T) {
	first, second, third, old, fresh := changes(t)
	n := newNode(t, "a")
	n.engine.leads = false
	has := func(id uint64) {
		t.Helper()
		n.hosts(t)
		var files []string
		if id != 0 {
			files = []string{metaFile + string(rune('0'+id))}
		}
		logs := len(n.engine.logs)
		if got := n.files(t); !slices.Equal(got, files) || uint64(n.engine.runs) != id || logs != len(files) || (n.meta.running.Load() != nil) != (id != 0) {
			t.Fatalf("files %v, replica %d runs, %d logs; wanted %d", got, n.engine.runs, logs, id)
		}
	}
	n.has(first)
	has(old)
	has(old)
	if s := n.meta.state(); s == nil || s.Version != 1 || s.Map.Digest() != first.Digest() {
		t.Errorf("a founder begins with %+v", s)
	}
	n = n.again(t)
	n.has(first)
	has(old)
	n.has(second)
	has(0)
	n.has(third)
	has(fresh)
	if s := n.meta.state(); s != nil {
		t.Errorf("a later replica begins with %+v", s)
	}
	n = n.again(t)
	n.has(third)
	has(fresh)

	n = newNode(t, "a") // from one replica to the other at once
	n.has(first)
	has(old)
	n.has(third)
	has(fresh)
}

// TestForgetsOthers: what is left of replicas that the map has not any more is found by its files, and given up; other files are left alone.
func TestForgetsOthers(t *testing.T) {
	first, second, third, old, fresh := changes(t)
	others := []string{metaFile, metaFile + "x", metaFile + "0", metaFile + "1.new", "META", "SHARDMAP"}
	for name, m := range map[string]*cluster.Map{"the map has none here": second, "the map has another one here": third} {
		for _, log := range []bool{true, false} { // a crash may have come between log and file
			n := newNode(t, "a")
			n.has(first)
			n.hosts(t)
			n = n.again(t)
			for _, f := range others {
				n.write(t, f, "x")
			}
			if !log {
				delete(n.engine.logs, consensus.ReplicaID(old))
			}
			n.has(m)
			n.hosts(t)
			want := slices.DeleteFunc(slices.Clone(others), func(f string) bool {
				return !strings.HasPrefix(f, metaFile) || log && f == metaFile+"1.new" && old == 1 || f == metaFile+"1.new" && old == 1
			})
			if m == third {
				want = append(want, metaFile+string(rune('0'+fresh)))
			}
			slices.Sort(want)
			if got := n.files(t); !slices.Equal(got, want) || n.engine.logs[consensus.ReplicaID(old)] {
				t.Errorf("%s, with a log %v: files %v, want %v; logs %v", name, log, got, want, n.engine.logs)
			}
		}
	}
}

// TestForgetsAfterErrors: a replica that could not be given up, whatever the reason, is given up when that is over.
func TestForgetsAfterErrors(t *testing.T) {
	first, second, third, _, fresh := changes(t)
	full := errors.New("the disk says no")
	for name, m := range map[string]*cluster.Map{"the map has none here": second, "the map has another one here": third} {
		for _, by := range []string{"engine", "file"} {
			n := newNode(t, "a")
			fails := false
			n.env.FS = errorfs.Wrap(n.fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if fails && op.Kind == errorfs.OpRemove {
					return full
				}
				return nil
			}))
			n.has(first)
			n.hosts(t)
			if by == "engine" {
				n.engine.forgets = []error{full}
			} else {
				fails = true
			}
			n.has(m)
			if err := n.hostNow(); !errors.Is(err, full) {
				t.Errorf("%s, %s: %v", name, by, err)
			}
			if n.meta.running.Load() != nil || n.leads() != nil {
				t.Errorf("%s, %s: it takes part", name, by)
			}
			fails = false
			n.hosts(t)
			want := map[*cluster.Map][]string{third: {metaFile + string(rune('0'+fresh))}}[m]
			if got := n.files(t); !slices.Equal(got, want) || len(n.engine.logs) != len(want) {
				t.Errorf("%s, %s: files %v, logs %v", name, by, got, n.engine.logs)
			}
		}
	}
}

// TestDamagedMetaFile: a file of a replica that cannot be read is told of, once, and ends nothing else of the node; it is not taken for no file.
func TestDamagedMetaFile(t *testing.T) {
	first, _, _, old, _ := changes(t)
	file := metaFile + string(rune('0'+old))
	for name, content := range map[string]string{"empty": "", "of something else": strings.Repeat("x", 200)} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, "a")
			n.has(first)
			n.hosts(t)
			n = n.again(t)
			n.write(t, file, content)
			n.InForce(first)
			defer n.Stop()
			time.Sleep(10 * againMost)
			synctest.Wait()
			if text := n.lines.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, file) || !strings.Contains(text, "level=ERROR") {
				t.Errorf("%s: %s", name, text)
			}
			if n.meta.running.Load() != nil || !n.engine.logs[consensus.ReplicaID(old)] || !slices.Equal(n.files(t), []string{file}) {
				t.Errorf("%s: files %v, logs %v", name, n.files(t), n.engine.logs)
			}
			if err := n.hostNow(); !errors.Is(err, document.ErrDamaged) {
				t.Errorf("%s: %v", name, err)
			}
			if r, err := n.asked(t, first, false); err != nil || r.Map != 1 {
				t.Errorf("%s: it answers polls with %+v, %v", name, r, err)
			}
			if a, err := n.operates(t, `{"do":"tasks"}`); err != nil || a.State != "not-seat" {
				t.Errorf("%s: it answers operators with %+v, %v", name, a, err)
			}
			if st := n.Status(); st == nil {
				t.Errorf("%s: it does not tell of its replica", name)
			}
		})
	}
}

// TestDamagedFileOfBefore: a file of a replica that the map has no more goes, whatever stands in it, and the next replica comes.
func TestDamagedFileOfBefore(t *testing.T) {
	first, second, third, old, fresh := changes(t)
	for name, m := range map[string]*cluster.Map{"the map has none here": second, "the map has another one here": third} {
		for what, content := range map[string]string{"empty": "", "of something else": strings.Repeat("x", 200), "too long": strings.Repeat("x", 3<<20)} {
			n := newNode(t, "a")
			n.has(first)
			n.hosts(t)
			n = n.again(t)
			file := metaFile + string(rune('0'+old))
			n.write(t, file, content)
			n.write(t, file+".received", content)
			n.has(m)
			n.hosts(t)
			want := map[*cluster.Map][]string{third: {metaFile + string(rune('0'+fresh))}}[m]
			if got := n.files(t); !slices.Equal(got, want) || n.engine.logs[consensus.ReplicaID(old)] || len(n.engine.logs) != len(want) {
				t.Errorf("%s, %s: files %v, want %v; logs %v", name, what, got, want, n.engine.logs)
			}
		}
	}
}

// TestTakesPartWhenItMay: no replica is created or started before the node's replicas may take part, and Stop does not wait for that.
func TestTakesPartWhenItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, may := range []bool{false, true} {
			n := newNode(t, "a")
			gate := make(chan struct{})
			n.env.MayTakePart = gate
			n.InForce(born(t))
			time.Sleep(10 * againMost)
			synctest.Wait()
			if n.meta.running.Load() != nil || len(n.engine.logs) != 0 {
				t.Error("it takes part too early")
			}
			if may {
				close(gate)
				synctest.Wait()
				if n.leads() == nil {
					t.Error("it does not take part")
				}
			}
			n = n.again(t)
			n.env.MayTakePart = make(chan struct{})
			_, second, _, _, _ := changes(t)
			n.InForce(second)
			time.Sleep(10 * againMost)
			synctest.Wait()
			if logs := len(n.engine.logs); n.engine.runs != 0 || (logs != 0) != may {
				t.Errorf("a replica that is to go is started, %d logs are left", logs)
			}
			n.Stop()
			n.InForce(moving(t, "c"))
			if n.now.Load().m.Digest() != second.Digest() || n.leads() != nil {
				t.Error("it goes on behind Stop")
			}
		}
	})
}

// TestFollowsItsGroup: a replica's node follows the map that the meta group has agreed on, also if no seat tells it.
func TestFollowsItsGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "a")
		defer n.Stop()
		n.has(born(t))
		n.wg.Go(n.host)
		synctest.Wait()
		n.follow(errors.New("the disk is full"))
		n.agreed(t, n.leads(), adds(t))
		time.Sleep(againFirst / 2)
		synctest.Wait()
		if v := n.now.Load().m.Version; v != 1 || !strings.Contains(n.lines.String(), "the disk is full") {
			t.Errorf("map %d\n%s", v, n.lines)
		}
		n.follow(nil)
		time.Sleep(againMost)
		synctest.Wait()
		if v := n.now.Load().m.Version; v != 2 {
			t.Errorf("map %d\n%s", v, n.lines)
		}
	})
}

// TestAdoptedBeginsAtItsLevel: the meta group of a first map begins at the level that the map's form needs, so the next map may have that form, too.
func TestAdoptedBeginsAtItsLevel(t *testing.T) {
	alone := &cluster.Map{Cluster: [16]byte{1}, Name: "test", Nodes: []cluster.MapNode{{ID: "a", Weight: 1}}, Owner: make([]uint16, 4)}
	adopting, err := cluster.ProposeAdopting(alone, cluster.Want{Stores: [][16]byte{{1}}})
	if err != nil {
		t.Fatal(err)
	}
	plain, _, _, _, _ := changes(t)
	for name, tt := range map[string]struct {
		m    *cluster.Map
		want feature.Level
	}{"adopting": {adopting, 1}, "empty": {plain, 0}} {
		config, first := founders(tt.m, &Levels{Reads: feature.Here()})
		if got, ok := first.(content); !ok || got.Level != tt.want || len(config.Config.Voters) == 0 {
			t.Errorf("%s: the meta group begins with %+v, %+v, want level %d", name, config, first, tt.want)
		}
	}
}
