package server

import (
	"slices"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// FuzzGroupRequest: whatever is asked of a node with replicas about its groups (where a cell is, what a check came to, how the groups are), in
// whatever session, it is answered or the session ends; the node leads its groups afterwards as before, in the same term.
func FuzzGroupRequest(f *testing.F) {
	srv := startServer(f, func(c *Config) {
		clusterOf("a")(c)
		replicaOf(c, f.TempDir())
		c.MaxPoll = time.Millisecond
	})
	m, err := cluster.ProposeReplicas([16]byte{1}, clusterName, 4, []cluster.MapNode{{ID: "a", Weight: 1}}, cluster.Want{Replicas: 1, Groups: 2, Stores: [][16]byte{srv.main.Store.ID()}})
	if err != nil {
		f.Fatal(err)
	}
	mustChange(f, wire.MapPrepare, m, srv)
	mustChange(f, wire.MapCommit, m, srv)
	led := func() (terms []uint64) {
		for _, g := range srv.groups.Status() {
			if g.State == "leads" {
				terms = append(terms, g.Term)
			}
		}
		return terms
	}
	eventually(f, "it leads its groups", func() bool { return len(led()) == 2 })
	before := led()
	numbers := []uint64{0, 1, 2, 3, 99, 1 << 31, 1<<32 - 1, 1 << 32, 1 << 62, 1 << 63, ^uint64(0) - 1, ^uint64(0)}
	for kind := range byte(8) {
		for n := range byte(len(numbers)) {
			f.Add(kind, n, n/2, []byte("at 1 1"), n%2 == 0)
		}
	}
	for _, q := range []string{"put 1", "put 2", "put 4294967295", "at 1 18446744073709551615", "at 1 9223372036854775808", "at 9 1", ""} {
		f.Add(byte(1), byte(0), byte(0), []byte(q), true)
	}
	f.Fuzz(func(t *testing.T, kind, a, b byte, text []byte, open bool) {
		x, y := numbers[int(a)%len(numbers)], numbers[int(b)%len(numbers)]
		var msg []byte
		switch kind % 8 {
		case 0:
			msg = wire.AppendGroupInfoRequest(nil, 1, wire.GroupInfoRequest{Group: uint32(x)})
		case 1:
			msg = wire.AppendDocument(nil, 1, wire.Document{Kind: wire.AdminCheck, Argument: text, Total: uint32(len(text))})
		case 2:
			text = []byte(wire.CheckQuestion{Group: uint32(x), Index: y}.String())
			msg = wire.AppendDocument(nil, 1, wire.Document{Kind: wire.AdminCheck, Argument: text, Total: uint32(len(text))})
		case 3:
			msg = wire.AppendDocument(nil, 1, wire.Document{Kind: wire.DocumentKind(a), Argument: text, Total: uint32(len(text))})
		case 4:
			msg = wire.AppendScan(nil, 1, wire.Scan{Prefix: text, Limit: uint32(y), Group: uint32(x)})
		case 5:
			msg = wire.AppendWatch(nil, 1, wire.Watch{Prefix: text, Group: uint32(x), From: wire.Cursor{Incarnation: y, Version: x}, WaitMillis: 1})
		case 6:
			msg = wire.AppendPut(nil, 1, wire.Put{Key: []byte("k"), Value: text, Terms: wire.Terms{ID: wire.RequestID{Slot: uint16(x), Seq: y, AgeMillis: uint32(y)}, TTLMicros: x}})
		case 7:
			msg = append(wire.AppendGroupInfoRequest(nil, 1, wire.GroupInfoRequest{Group: uint32(x)}), text...)
		}
		if len(msg) > srv.cfg.RequestSize || kind%8 == 3 && slices.Contains([]wire.DocumentKind{wire.MapPrepare, wire.MapCommit}, wire.DocumentKind(a)) {
			return
		}
		s, q := deafSession(t, srv, open)
		feed(t, s, q, msg)
		feed(t, s, q, wire.AppendPing(nil, 99, wire.Ping{}))
		answered := len(q.Types) > 0 && q.Types[len(q.Types)-1] == wire.TypePing.Reply()
		if alive := !s.Ended(); alive != answered {
			t.Errorf("alive %v, Ping answered %v: %v", alive, answered, q.Types)
		}
		endDeaf(t, s, q)
		if now := led(); !slices.Equal(now, before) {
			t.Fatalf("it leads in terms %v, and led in %v", now, before)
		}
	})
}
