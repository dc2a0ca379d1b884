package doctor

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"unicode"
)

// TestHostileGossip: whatever a node says of its gossip, the report stays short, each
// finding is one line, and a terminal gets characters that it prints.
func TestHostileGossip(t *testing.T) {
	var many []string
	for i := range 5000 {
		many = append(many, "n1", fmt.Sprintf("x%d", i))
	}
	long := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		name  string
		says  Gossip
		self  bool
		lines int
	}{
		{"this node a thousand times", Gossip{Node: "n2", Cluster: "prod", TCPOnly: many}, false, 1},
		{"thousands of nodes", Gossip{Node: "n1", Cluster: "prod", TCPOnly: many}, true, maxCut},
		{"long names", Gossip{Node: long, Cluster: "prod", TCPOnly: []string{"n1"}}, false, 1},
		{"a long cluster", Gossip{Node: "n2", Cluster: long}, false, 1},
		{"a long key", Gossip{Node: "n2", Cluster: "prod", Keys: []string{long}}, false, 1},
		{"letters that are none", Gossip{Node: "n\x1b[2J\u202e2n\u2066\u2028\x00", Cluster: "prod", TCPOnly: []string{"n1"}}, false, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.set.NodeID, r.set.Gossip, r.set.Cluster, r.set.Node = "n1", "127.0.0.1:0", "prod", true
			if len(c.says.Keys) > 0 {
				r.set.GossipKeys = [][]byte{make([]byte, 32)}
			}
			const addr = "127.0.0.1:7400"
			e := &peerExam{exam: &exam{Host: r.host, set: r.set}, self: map[string]bool{addr: c.self}}
			e.gossipOf(context.Background(), gossiping{r.peer, c.says, nil}, addr)
			if n := e.report.Failed; n != c.lines {
				t.Errorf("%d findings, want %d", n, c.lines)
			}
			text := e.report.Text()
			if len(text) > 64<<10 {
				t.Errorf("a report of %d bytes", len(text))
			}
			for _, r := range text {
				if r != '\n' && !unicode.IsPrint(r) {
					t.Errorf("the report has a %U", r)
				}
			}
		})
	}
}
