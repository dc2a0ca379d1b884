package store

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/driver"
)

// TestGroupConfig: groups that cannot be are refused, each fault by its name, before anything is written.
func TestGroupConfig(t *testing.T) {
	engine := func(EngineEnv) (Engine, error) { t.Error("an engine is made"); return nil, errors.New("none") }
	one := consensus.Config{Index: 1, Voters: []consensus.Member{{ID: 1, Node: "n0"}}}
	good := Group{ID: 7, Replica: 1, Shards: []uint16{0, 2}, Founders: one}
	for _, c := range []struct {
		want string
		set  func(*Config)
	}{
		{"without an engine", func(c *Config) { c.Engine = nil }},
		{"sync always", func(c *Config) { c.Sync = Interval }},
		{"sync always", func(c *Config) { c.Mode = Cache }},
		{"watching", func(c *Config) { c.WatchBytes = MinWatchBytes }},
		{"two of it", func(c *Config) { c.Groups = []Group{good, {ID: 7, Replica: 1, Shards: []uint16{1}}} }},
		{"replica 0", func(c *Config) { c.Groups[0].Replica = 0 }},
		{"no shards", func(c *Config) { c.Groups[0].Shards = nil }},
		{"shard 4 of 4", func(c *Config) { c.Groups[0].Shards = []uint16{4} }},
		{"shard 2 is in groups 7 and 8", func(c *Config) { c.Groups = []Group{good, {ID: 8, Replica: 1, Shards: []uint16{2}}} }},
		{"shard 2 is in groups 7 and 7", func(c *Config) { c.Groups[0].Shards = []uint16{2, 2} }},
		{"index 2, not 1", func(c *Config) { c.Groups[0].Founders.Index = 2 }},
		{"ids begin at 1", func(c *Config) { c.Groups[0].Founders.Voters = []consensus.Member{{ID: 0, Node: "n0"}} }},
		{"voters", func(c *Config) {
			c.Groups[0].Founders = consensus.Config{Index: 1, Learners: one.Voters}
		}},
	} {
		cfg := testConfig(memFS())
		cfg.Engine, cfg.Groups = engine, []Group{good}
		c.set(&cfg)
		s, err := Open(context.Background(), cfg)
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want an error with %q, got %v", c.want, err)
		}
		if names, err := cfg.FS.List("/"); err != nil || len(names) > 0 {
			t.Errorf("%s: %q are on the disk, %v", c.want, names, err)
		}
	}
}

// A brokenEngine fails at Create of a group, before or behind it.
type brokenEngine struct {
	*driver.Node
	fail   consensus.GroupID
	before bool
}

var errBroken = errors.New("broken")

func (e *brokenEngine) Create(g consensus.GroupID, id consensus.ReplicaID, s consensus.State) error {
	if g == e.fail && e.before {
		return errBroken
	}
	if err := e.Node.Create(g, id, s); err != nil || g != e.fail {
		return err
	}
	return errBroken
}

// TestGroupBegins: a start that ends between the engine's knowledge of a group and the base's is gone on with by the next one, and a group
// that is there does not begin again, whatever its founders are said to be by then.
func TestGroupBegins(t *testing.T) {
	one := func(name string) consensus.Config {
		return consensus.Config{Index: 1, Voters: []consensus.Member{{ID: 1, Node: name}}}
	}
	disk := memFS()
	start := func(fail consensus.GroupID, before bool, founder string) (*node, error) {
		cfg := testConfig(disk)
		cfg.PredecessorGone = true
		cfg.Groups = []Group{{ID: 7, Replica: 1, Shards: []uint16{0}, Founders: one(founder)}, {ID: 8, Replica: 1, Shards: []uint16{1}, Founders: one(founder)}}
		cfg.Engine = func(e EngineEnv) (Engine, error) {
			n := driver.New(driver.Config{Name: "n0", Log: e.Log, Stream: e.Stream, Fenced: e.Fenced, Link: nobody{}})
			return &brokenEngine{n, fail, before}, nil
		}
		return tryOpen(t, cfg)
	}
	for _, fail := range []consensus.GroupID{7, 8} {
		for _, before := range []bool{true, false} {
			if _, err := start(fail, before, "n0"); !errors.Is(err, errBroken) {
				t.Fatalf("at group %d, %v: %v", fail, before, err)
			}
			disk = disk.CrashClone(vfs.CrashCloneCfg{})
		}
	}
	n, err := start(0, false, "n0")
	if err != nil {
		t.Fatal(err)
	}
	lead := func() {
		t.Helper()
		waitFor(t, "the only replica to lead", func() bool { return n.groups.orders(0) && n.groups.orders(1) })
	}
	lead()
	first := n.put(0, "k", "v")
	n.put(1, "k", "w")
	disk = disk.CrashClone(vfs.CrashCloneCfg{})
	if n, err = start(0, false, "another"); err != nil {
		t.Fatal(err)
	}
	lead()
	n.want(0, "k", "v")
	n.want(1, "k", "w")
	if v := n.put(0, "k", "x"); v <= first {
		t.Errorf("version %v behind %v", v, first)
	}
	if st, err := EngineOf(n.Store).Status(7); err != nil || st.Config.Node(1) != "n0" {
		t.Errorf("%+v, %v", st, err)
	}
}

// nobody is a network without other nodes.
type nobody struct{ consensus.Link }

func (nobody) Send(string, bool, []byte) {}

// TestGroupCloseWithoutMajority: a store closes although no majority hears it, and says of what is under way that its outcome is not
// known.
func TestGroupCloseWithoutMajority(t *testing.T) {
	c := newCluster(t, nil)
	c.put(0, "k", "v")
	lead := c.leader(0)
	c.cut(lead.id, true)
	w := &Write{Op: Op{Shard: 0, Key: []byte("k"), Value: []byte("lost, perhaps")}}
	done := make(chan error, 1)
	w.Done = func(w *Write) { done <- w.Err }
	if err := lead.Submit(w); err != nil {
		t.Fatal(err)
	}
	lead.stop()
	if err := <-done; !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("a write that no majority has heard of: %v", err)
	}
	c.cut(lead.id, false)
	lead.start()
	c.put(0, "k", "w")
	c.settle()
	lead.want(0, "k", "w")
}
