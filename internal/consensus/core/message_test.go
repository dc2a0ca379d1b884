package core

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

// good is a message that replicas send.
func good() *pb.Message {
	return &pb.Message{
		Type: pb.MsgApp.Enum(), From: proto.Uint64(1), To: proto.Uint64(2), Term: proto.Uint64(5), LogTerm: proto.Uint64(3), Index: proto.Uint64(7), Commit: proto.Uint64(6),
		Entries: []*pb.Entry{
			{Index: proto.Uint64(8), Term: proto.Uint64(3), Data: []byte("a")},
			{Index: proto.Uint64(9), Term: proto.Uint64(5)},
		},
	}
}

func TestMessages(t *testing.T) {
	huge := proto.Uint64(1 << 63)
	for _, c := range []struct {
		name  string
		spoil func(*pb.Message)
		ok    bool
	}{
		{"good", func(*pb.Message) {}, true},
		{"a vote", func(m *pb.Message) { m.Type, m.Entries = pb.MsgVote.Enum(), nil }, true},
		{"a proposal", func(m *pb.Message) { m.Type = pb.MsgProp.Enum() }, false},
		{"of the storage", func(m *pb.Message) { m.Type, m.Entries = pb.MsgStorageAppendResp.Enum(), nil }, false},
		{"a snapshot", func(m *pb.Message) { m.Type, m.Entries = pb.MsgSnap.Enum(), nil }, false},
		{"with a snapshot", func(m *pb.Message) { m.Snapshot = &pb.Snapshot{} }, false},
		{"with responses", func(m *pb.Message) { m.Responses = []*pb.Message{good()} }, false},
		{"from nobody", func(m *pb.Message) { m.From = nil }, false},
		{"to nobody", func(m *pb.Message) { m.To = nil }, false},
		{"to itself", func(m *pb.Message) { m.To = m.From }, false},
		{"of no term", func(m *pb.Message) { m.Term = nil }, false},
		{"of a huge term", func(m *pb.Message) { m.Term = huge }, false},
		{"behind a later term", func(m *pb.Message) { m.LogTerm = proto.Uint64(6) }, false},
		{"of a huge index", func(m *pb.Message) { m.Index, m.Entries = huge, nil }, false},
		{"of a huge commit", func(m *pb.Message) { m.Commit = huge }, false},
		{"of a huge hint", func(m *pb.Message) { m.RejectHint = huge }, false},
		{"a heartbeat that tells of logs", func(m *pb.Message) {
			m.Type, m.Entries, m.RejectHint = pb.MsgHeartbeat.Enum(), nil, proto.Uint64(MaxNumber)
		}, true},
		{"a heartbeat with entries", func(m *pb.Message) { m.Type = pb.MsgHeartbeat.Enum() }, false},
		{"a gap", func(m *pb.Message) { m.Entries = m.Entries[1:] }, false},
		{"a term that falls", func(m *pb.Message) { m.Entries[0].Term = proto.Uint64(2) }, false},
		{"a term of the future", func(m *pb.Message) { m.Entries[1].Term = proto.Uint64(6) }, false},
		{"an unknown entry", func(m *pb.Message) { m.Entries[0].Type = pb.EntryConfChange.Enum() }, false},
		{"a change that is none", func(m *pb.Message) { m.Entries[0].Type = pb.EntryConfChangeV2.Enum() }, false},
		{"a long context", func(m *pb.Message) { m.Context = make([]byte, maxContext+1) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := good()
			c.spoil(m)
			b, err := AppendMessage([]byte("before"), 77, m)
			if err != nil {
				t.Fatal(err)
			}
			g, got, rest, err := ParseMessage(append(b[len("before"):], "rest"...))
			if !c.ok {
				if !errors.Is(err, consensus.ErrMessage) {
					t.Fatalf("it is taken: %v", err)
				}
				return
			}
			if err != nil || g != 77 || string(rest) != "rest" || !proto.Equal(got, m) {
				t.Fatalf("group %d, %v, rest %q, %v", g, got, rest, err)
			}
		})
	}
}

// TestChangesOfOthers: a change that no replica makes is refused, and one behind another is void.
func TestChangesOfOthers(t *testing.T) {
	from := &consensus.Config{Index: 4, Voters: []consensus.Member{{ID: 1, Node: "a"}, {ID: 2, Node: "b"}}}
	to := &consensus.Config{Voters: from.Voters, Learners: []consensus.Member{{ID: 3, Node: "c"}}}
	for _, c := range []struct {
		name  string
		spoil func(*pb.ConfChangeV2)
		ok    bool
	}{
		{"good", func(*pb.ConfChangeV2) {}, true},
		{"two at once", func(cc *pb.ConfChangeV2) { cc.Changes = append(cc.Changes, cc.Changes[0]) }, false},
		{"none", func(cc *pb.ConfChangeV2) { cc.Changes = nil }, false},
		{"joint", func(cc *pb.ConfChangeV2) { cc.Transition = pb.ConfChangeTransitionJointExplicit.Enum() }, false},
		{"an update", func(cc *pb.ConfChangeV2) { cc.Changes[0].Type = pb.ConfChangeUpdateNode.Enum() }, false},
		{"of replica 0", func(cc *pb.ConfChangeV2) { cc.Changes[0].NodeId = nil }, false},
		{"without words", func(cc *pb.ConfChangeV2) { cc.Context = cc.Context[:contextHead-1] }, false},
		{"a long name", func(cc *pb.ConfChangeV2) { cc.Context = append(cc.Context, make([]byte, consensus.MaxNode)...) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cc, err := MakeChange(from, to, 9)
			if err != nil {
				t.Fatal(err)
			}
			c.spoil(cc)
			data, err := proto.Marshal(cc)
			if err != nil {
				t.Fatal(err)
			}
			e := &pb.Entry{Index: proto.Uint64(8), Term: proto.Uint64(2), Type: pb.EntryConfChangeV2.Enum(), Data: data}
			got, err := Change(from, e)
			if !c.ok {
				if !errors.Is(err, consensus.ErrMessage) {
					t.Fatalf("it is taken: %+v, %v", got, err)
				}
				return
			}
			if err != nil || got.Name != 9 || got.Config == nil || got.Config.Index != 8 || !got.Config.Learner(3) || got.Config.Node(3) != "c" {
				t.Fatalf("%+v, %v", got, err)
			}
			later := *from
			later.Index++
			if got, err := Change(&later, e); err != nil || got.Config != nil {
				t.Fatalf("behind another change: %+v, %v", got, err)
			}
		})
	}
}

// FuzzParseMessage: what comes from the network is refused or good, and what is good is told
// again as the same.
func FuzzParseMessage(f *testing.F) {
	b, err := AppendMessage(nil, 1, good())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	b, _ = AppendMessage(b, 2, good())
	f.Add(b)
	f.Add(binary.LittleEndian.AppendUint32(nil, 1<<31))
	f.Fuzz(func(t *testing.T, b []byte) {
		for len(b) > 0 {
			g, m, rest, err := ParseMessage(b)
			if err != nil {
				if !errors.Is(err, consensus.ErrMessage) {
					t.Fatal(err)
				}
				return
			}
			if len(rest) >= len(b) {
				t.Fatal("nothing was taken")
			}
			again, err := AppendMessage(nil, g, m)
			if err != nil {
				t.Fatal(err)
			}
			g2, m2, rest2, err := ParseMessage(again)
			if err != nil || g2 != g || len(rest2) != 0 || !proto.Equal(m, m2) {
				t.Fatalf("%v is told as %v (%v)", m, m2, err)
			}
			b = rest
		}
	})
}

// attacks are messages that would stop the library if nobody had looked at them before.
func attacks(t testing.TB) (list [][]byte) {
	for _, m := range []*pb.Message{
		good(),
		{Type: pb.MsgHeartbeat.Enum(), From: proto.Uint64(1), To: proto.Uint64(2), Term: proto.Uint64(2), Commit: proto.Uint64(99)},
		{Type: pb.MsgVote.Enum(), From: proto.Uint64(3), To: proto.Uint64(2), Term: proto.Uint64(9), LogTerm: proto.Uint64(9), Index: proto.Uint64(9)},
		{Type: pb.MsgAppResp.Enum(), From: proto.Uint64(3), To: proto.Uint64(2), Term: proto.Uint64(2), Index: proto.Uint64(1 << 40)},
		{Type: pb.MsgApp.Enum(), From: proto.Uint64(1), To: proto.Uint64(2), Term: proto.Uint64(3), LogTerm: proto.Uint64(2), Index: proto.Uint64(3), Commit: proto.Uint64(4),
			Entries: []*pb.Entry{{Index: proto.Uint64(4), Term: proto.Uint64(3), Data: []byte("other")}}},
		{Type: pb.MsgApp.Enum(), From: proto.Uint64(1), To: proto.Uint64(2), Term: proto.Uint64(3), LogTerm: proto.Uint64(2), Index: proto.Uint64(3),
			Entries: []*pb.Entry{{Index: proto.Uint64(4), Term: proto.Uint64(2), Data: []byte("y")}, {Index: proto.Uint64(5), Term: proto.Uint64(3)}}},
		{Type: pb.MsgTimeoutNow.Enum(), From: proto.Uint64(1), To: proto.Uint64(2), Term: proto.Uint64(2)},
	} {
		b, err := AppendMessage(nil, 1, m)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, b)
	}
	// One after the other: what the first leaves behind is what the second meets.
	return append(list, bytes.Join(list, nil), append(bytes.Clone(list[4]), list[5]...))
}

// TestAttacks: a replica that meets them goes on.
func TestAttacks(t *testing.T) {
	for _, b := range attacks(t) {
		for when := range 6 {
			meets(t, b, when)
		}
	}
}

// FuzzStep: whatever a message says, the replica that takes it in does not panic; what would
// break the library is refused before (Check).
func FuzzStep(f *testing.F) {
	for _, b := range attacks(f) {
		f.Add(b, byte(0))
		f.Add(b, byte(3))
	}
	f.Fuzz(func(t *testing.T, b []byte, when byte) { meets(t, b, int(when)) })
}

// meets has a follower take in messages. Whether it appends and applies in between is said by
// the bits of when.
func meets(t *testing.T, b []byte, when int) {
	t.Helper()
	s := follower(t, when)
	defer s.close()
	for len(b) > 0 {
		_, m, rest, err := ParseMessage(b)
		if err != nil {
			return
		}
		b = rest
		if err := s.r.Check(m); err != nil {
			if !errors.Is(err, consensus.ErrMessage) {
				t.Fatal(err)
			}
			continue
		}
		if err := s.s.step(s.actor, func() error { return s.r.Step(m) }); err != nil {
			t.Fatalf("%v: %v", m, err)
		}
		for len(s.appends) > 0 && when&1 == 0 {
			if err := s.appended(); err != nil {
				t.Fatalf("%v: %v", m, err)
			}
		}
		for len(s.applies) > 0 && when&2 == 0 {
			if err := s.applied(); err != nil {
				t.Fatalf("%v: %v", m, err)
			}
		}
	}
}

// A lone actor is replica 2 of a group of three, of which the others are the network.
type lone struct{ *actor }

// follower makes one that has three entries of term 2, of which two are committed.
func follower(t *testing.T, rounds int) lone {
	s := &script{t: t, all: map[int]*actor{}}
	c := consensus.Config{Index: 1}
	for id := range 3 {
		c.Voters = append(c.Voters, consensus.Member{ID: consensus.ReplicaID(id + 1), Node: string(rune('a' + id))})
	}
	s.add(2, consensus.State{Applied: 1, Term: 1, Config: c})
	a := s.all[2]
	m := &pb.Message{
		Type: pb.MsgApp.Enum(), From: proto.Uint64(1), To: proto.Uint64(2), Term: proto.Uint64(2), LogTerm: proto.Uint64(1), Index: proto.Uint64(1), Commit: proto.Uint64(3),
		Entries: []*pb.Entry{
			{Index: proto.Uint64(2), Term: proto.Uint64(2)}, {Index: proto.Uint64(3), Term: proto.Uint64(2), Data: []byte("x")}, {Index: proto.Uint64(4), Term: proto.Uint64(2), Data: []byte("y")},
		},
	}
	if err := s.step(a, func() error { return a.r.Step(m) }); err != nil {
		t.Fatal(err)
	}
	for range 1 + rounds%3 {
		for len(a.appends) > 0 {
			if err := a.appended(); err != nil {
				t.Fatal(err)
			}
		}
		for len(a.applies) > 0 {
			if err := a.applied(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return lone{a}
}

func (l lone) close() { l.log.Close(false) }

func TestAppendMessageKeepsWhatIsThere(t *testing.T) {
	b, err := AppendMessage([]byte("abc"), 1, good())
	if err != nil || !bytes.HasPrefix(b, []byte("abc")) {
		t.Fatal(b, err)
	}
}
