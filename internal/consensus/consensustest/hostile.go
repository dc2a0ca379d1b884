package consensustest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/core"
)

// hostile: messages of every kind with every value, from a node that has the secret, fence
// nobody and stop nothing.
func hostile(w *World) {
	w.found(group, 3)
	w.puts("a", 20)
	rng := rand.New(rand.NewPCG(5, 5))
	pick := func(list ...uint64) *uint64 { return &list[rng.IntN(len(list))] }
	lead := w.leader(group)
	lead.mu.Lock()
	term, last := lead.role.term, lead.state.Applied
	lead.mu.Unlock()
	refused := 0
	for range 3000 {
		kind := pb.MessageType(rng.IntN(len(pb.MessageType_name)))
		m := &pb.Message{
			Type: &kind, To: pick(1, 2, 3, 9), From: pick(1, 2, 3, 4, 0), Term: pick(term, term, term-1, 1), LogTerm: pick(0, 1, term, term+1, 1<<63),
			Index: pick(0, 1, last-1, last, last+1, last+9, 1<<62, ^uint64(0)), Commit: pick(0, last, last+1, 1<<62, ^uint64(0)),
			RejectHint: pick(0, last, ^uint64(0)), Reject: proto.Bool(rng.IntN(2) == 0),
		}
		entries := 0
		if kind == pb.MsgApp || rng.IntN(8) == 0 {
			entries = rng.IntN(3)
		}
		for i := range entries {
			e := &pb.Entry{Index: proto.Uint64(m.GetIndex() + 1 + uint64(i)), Term: pick(term, term-1, 1), Data: make([]byte, rng.IntN(9))}
			if rng.IntN(4) == 0 {
				e.Type = pb.EntryType(rng.IntN(4)).Enum()
			}
			m.Entries = append(m.Entries, e)
		}
		b, err := core.AppendMessage(nil, group, m)
		if err != nil {
			w.t.Fatal(err)
		}
		node := "n9" // which is none of the group's, so that what it says as another one is not believed
		switch m.GetType() {
		case pb.MsgHeartbeat, pb.MsgHeartbeatResp, pb.MsgVote, pb.MsgPreVote, pb.MsgTimeoutNow:
			// Nobody knows better than the replica itself. What it says of the log is
			// believed, too, because it has the secret; that is not tried here.
			if rng.IntN(3) == 0 {
				node = fmt.Sprintf("n%d", m.GetFrom())
			}
		}
		for _, name := range w.names {
			if err := w.node(name).endpoint().Deliver(node, b); errors.Is(err, consensus.ErrMessage) {
				refused++
			} else if err != nil {
				w.errorf("%v: %v", m, err)
			}
		}
		if rng.IntN(50) == 0 {
			time.Sleep(20 * time.Millisecond)
		}
	}
	if refused == 0 {
		w.errorf("nothing was refused")
	}
	// A leader that tells of entries that a replica does not have is not believed, and a node
	// that pretends to be the leader has nobody stand.
	time.Sleep(time.Second)
	lead = w.leader(group)
	for _, n := range w.others(lead.node.name) {
		lie := &pb.Message{Type: pb.MsgHeartbeat.Enum(), From: proto.Uint64(uint64(lead.id)), To: proto.Uint64(uint64(n.machine(group).id)), Term: proto.Uint64(lead.role.term), Commit: proto.Uint64(1 << 40)}
		b, err := core.AppendMessage(nil, group, lie)
		if err != nil {
			w.t.Fatal(err)
		}
		n.endpoint().Deliver(lead.node.name, b)
		m := &pb.Message{Type: pb.MsgTimeoutNow.Enum(), From: proto.Uint64(uint64(lead.id)), To: proto.Uint64(uint64(n.machine(group).id)), Term: proto.Uint64(lead.role.term)}
		if b, err = core.AppendMessage(nil, group, m); err != nil {
			w.t.Fatal(err)
		}
		n.endpoint().Deliver("n9", b)
	}
	time.Sleep(100 * time.Millisecond)
	if s, err := lead.node.engineOf().Status(group); err != nil || !s.Leads {
		w.errorf("a node that is none of the group's has deposed its leader: %+v %v", s, err)
	}
	for _, b := range [][]byte{{1}, make([]byte, 7), make([]byte, 8), append([]byte{255, 255, 255, 255, 1, 0, 0, 0}, make([]byte, 99)...)} {
		if err := w.node("n1").endpoint().Deliver("n9", b); len(b) != 8 && !errors.Is(err, consensus.ErrMessage) {
			w.errorf("% x: %v", b, err)
		}
	}
	e := w.node("n1").endpoint()
	for _, h := range []consensus.SnapshotHead{
		{Group: group},
		{Group: group, From: 2, To: 1, Term: 1},
		{Group: group, From: 2, To: 3, Term: term, State: consensus.State{Applied: 1000, Term: term, Config: lead.state.Config}},
		{Group: group, From: 2, To: 1, Term: term, State: consensus.State{Applied: ^uint64(0), Term: term, Config: lead.state.Config}},
		{Group: group, From: 2, To: 1, Term: term, State: consensus.State{Applied: 1000, Term: term}},
		{Group: group, From: 2, To: 1, Term: term, State: consensus.State{Applied: 1000, Term: term + 1, Config: lead.state.Config}},
	} {
		if err := e.Receive(context.Background(), "n2", h, errorReader{}); !errors.Is(err, consensus.ErrMessage) {
			w.errorf("a snapshot %+v: %v", h, err)
		}
	}
	time.Sleep(time.Second)
	w.puts("b", 3)
	w.settle(group)
}

type errorReader struct{}

func (errorReader) Read([]byte) (int, error) { return 0, errBroken }
