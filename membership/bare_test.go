package membership

import (
	"log/slog"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// bare is a node without a network and without goroutines, for tests of what
// it does with messages.
func bare() *Members {
	m := newMembers(Config{
		NodeID: "self", Cluster: "demo", Logger: slog.New(slog.DiscardHandler),
		Self: cluster.Member{ID: "self", Role: cluster.RoleServer, State: cluster.Alive, Incarnation: 7},
	}, timing{rejoin: time.Second, forget: time.Hour, suspect: time.Second})
	m.queue.NumNodes = func() int { return 3 }
	m.queue.RetransmitMult = 4
	return m
}
