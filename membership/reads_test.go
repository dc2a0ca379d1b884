package membership

import (
	"testing"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// TestReads: each node hears which feature level the programs of the others read, whatever it is; programs that know no levels say what level 0 says. A node that comes back with another
// program is heard with what that one reads, a lower level, too.
func TestReads(t *testing.T) {
	t.Parallel()
	n := newMemNet()
	reading := func(level uint8, more func(*Config)) func(*Config) {
		return func(c *Config) {
			c.Reads = level
			if more != nil {
				more(c)
			}
		}
	}
	a := launch(t, n, "a", reading(0, nil))
	b := launch(t, n, "b", reading(1, joining(a)))
	c := launch(t, n, "c", reading(255, joining(a)))
	seesAll(t, a, b, c)
	said := map[string]uint8{"a": 0, "b": 1, "c": maxReads}
	check := func(when string, nodes ...*node) {
		t.Helper()
		for _, m := range nodes {
			for id, want := range said {
				eventually(t, m.Members, when+": "+m.cfg.NodeID+" hears of "+id, func() bool {
					p := m.View().Member(id)
					return p != nil && p.State == cluster.Alive && p.Reads == want
				})
			}
		}
	}
	check("at first", a, b, c)

	// What a node changes of itself leaves it alone.
	if err := b.SetSelf(func(m *cluster.Member) { m.Reads, m.MapVersion, m.MapDigest = 77, 3, 4 }); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*node{a, b, c} {
		eventually(t, m.Members, m.cfg.NodeID+" hears of b's map", func() bool { return m.View().Member("b").MapVersion == 3 })
	}
	check("behind a change", a, b, c)

	// It comes back with other programs.
	end, old := b.end, b
	for i, level := range []uint8{2, 0, 1} {
		_ = old.Close()
		n.mu.Lock()
		next := n.endAtLocked(string(end.addr))
		n.mu.Unlock()
		old = launch(t, n, "b", reading(level, func(c *Config) {
			c.Transport, c.Self.Incarnation, c.Join = next, uint64(100+i), []string{string(a.end.addr)}
		}))
		said["b"] = level
		check("started again", a, old, c)
	}
}
