package membership

import (
	"context"
	"log/slog"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// bare is a node without a network and without goroutines, for tests of what
// it does with messages.
func bare() *Members {
	m := &Members{
		cfg: Config{NodeID: "self", Cluster: "demo"}, log: slog.New(slog.DiscardHandler),
		time:  timing{grace: time.Second, request: time.Second, forget: time.Hour, suspect: time.Second},
		self:  cluster.Member{ID: "self", Role: cluster.RoleServer, State: cluster.Alive, Incarnation: 7},
		inbox: make(chan message, 16), dirty: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		out: make(chan sending, 16), lines: make(chan event, 16), twin: make(chan claim, 4), claims: newDocket(cluster.MaxNodes), unknown: newDocket(maxUnknown),
		retry: make(chan struct{}, 1), settled: make(chan struct{}),
		failed: make(chan struct{}), next: make(chan struct{}),
		peers: map[string]*peer{}, byHash: map[uint64]string{},
		lives: map[string]*statement{}, probes: map[nonce]chan *statement{}, conflicts: map[string]*Conflict{},
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.queue.NumNodes = func() int { return 3 }
	m.queue.RetransmitMult = 4
	return m
}
