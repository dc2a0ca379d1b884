package house

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// notDrawn are packages of the drawn trees that docs/rooms.svg leaves out: they
// are for tests, or belong to one room alone.
var notDrawn = []string{
	"client/internal/clienttest", "client/internal/clienttest/node", "internal/server/deaf",
	"rdma/internal/memfd", "rdma/internal/setup", "rdma/iwarp/internal/proto",
	"rdma/rdmatest", "rdma/verbs/ibv", "rdma/verbs/internal/tcp", "store/log/logtest",
	"internal/prefetch",                                                      // one instruction
	"rdma/boottime",                                                          // one clock
	"store/internal/entry", "store/internal/image", "store/internal/replica", // no node uses them yet
}

// TestPicture compares docs/rooms.svg with the packages that there are: each box says
// in its attribute data-room which package it stands for, and each package of the
// client, the node, the store and the fabrics has a box. The tour (docs/ARCHITECTURE.md)
// names each of them too.
func TestPicture(t *testing.T) {
	const docs = "../../docs/"
	picture, err := os.ReadFile(docs + "rooms.svg")
	if err != nil {
		t.Fatal(err)
	}
	tour, err := os.ReadFile(docs + "ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	drawn := make(map[string]bool)
	for _, m := range regexp.MustCompile(`data-room="([^"]+)"`).FindAllStringSubmatch(string(picture), -1) {
		if drawn[m[1]] {
			t.Errorf("docs/rooms.svg has two boxes for %s", m[1])
		}
		drawn[m[1]] = true
	}
	there := make(map[string]bool)
	for _, p := range list(t) {
		room := strings.TrimPrefix(p.ImportPath, module+"/")
		there[room] = true
		tree, _, _ := strings.Cut(room, "/")
		if tree != "client" && tree != "store" && tree != "rdma" && !strings.HasPrefix(room+"/", "internal/server/") || slices.Contains(notDrawn, room) {
			continue
		}
		if !drawn[room] {
			t.Errorf("docs/rooms.svg has no box for %s: draw one with data-room=%q, or add it to notDrawn with its reason", room, room)
		}
		if !strings.Contains(string(tour), "`"+room+"`") && !strings.Contains(string(tour), "`"+path.Base(room)+"`") {
			t.Errorf("docs/ARCHITECTURE.md does not name %s", room)
		}
	}
	for room := range drawn {
		if !there[room] {
			t.Errorf("docs/rooms.svg draws %s, which is no package", room)
		}
	}
}
