package driver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/core"
	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/log/logtest"
)

// A taker is a machine that takes whatever it is given.
type taker struct {
	mu    sync.Mutex
	state consensus.State
}

func (m *taker) State() (consensus.State, error) { return m.now(), nil }

func (m *taker) now() consensus.State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

func (m *taker) Apply(list []consensus.Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range list {
		m.state.Applied, m.state.Term = e.Index, e.Term
		if e.Config != nil {
			m.state.Config = *e.Config
		}
	}
	return nil
}

func (m *taker) Durable(uint64)                      {}
func (m *taker) Leads(uint64)                        {}
func (m *taker) Follows(uint64, consensus.ReplicaID) {}
func (m *taker) Snapshot(context.Context) (consensus.Snapshot, error) {
	return taken{m.now(), bytes.NewReader(nil)}, nil
}

func (m *taker) Receive(_ context.Context, s consensus.State, r io.Reader) (consensus.Received, error) {
	_, err := io.Copy(io.Discard, r)
	return taken{state: s}, err
}

func (m *taker) Adopt(r consensus.Received) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = r.State()
	return nil
}

type taken struct {
	state consensus.State
	io.Reader
}

func (t taken) State() consensus.State { return t.state }
func (t taken) Close() error           { return nil }

// A script is bytes that say what others do.
type script []byte

func (s *script) next() byte {
	if len(*s) == 0 {
		return 0
	}
	b := (*s)[0]
	*s = (*s)[1:]
	return b
}

// number is a term or an index: one of now, next to it, or far away.
func (s *script) number(now uint64) uint64 {
	far := []uint64{
		0, 1, 2, now - 1, now, now + 1, now + 2, now + 9, now + core.MaxAhead, now + core.MaxAhead + 1, 1 << 32, core.MaxNumber - 1, core.MaxNumber, core.MaxNumber + 1, 1 << 63, ^uint64(0) - 1, ^uint64(0),
	}
	b := s.next()
	return far[int(b)%len(far)]
}

var kinds = []pb.MessageType{
	pb.MsgApp, pb.MsgAppResp, pb.MsgVote, pb.MsgVoteResp, pb.MsgPreVote, pb.MsgPreVoteResp, pb.MsgHeartbeat, pb.MsgHeartbeatResp, pb.MsgTimeoutNow,
	pb.MsgSnap, pb.MsgHup, pb.MsgProp, pb.MsgReadIndex, pb.MsgStorageAppendResp,
}

// message is one that is well formed, and says whatever it likes.
func (s *script) message(st *consensus.Status) *pb.Message {
	m := &pb.Message{
		Type: kinds[int(s.next())%len(kinds)].Enum(), From: proto.Uint64(uint64(s.next() % 5)), To: proto.Uint64(uint64(1 + s.next()%8/7)),
		Term: proto.Uint64(s.number(st.Term)), LogTerm: proto.Uint64(s.number(st.Term)), Index: proto.Uint64(s.number(st.Last)), Commit: proto.Uint64(s.number(st.Last)),
		Vote: proto.Uint64(s.number(2)), RejectHint: proto.Uint64(s.number(st.Last)),
	}
	flags := s.next()
	m.Reject = proto.Bool(flags&1 != 0)
	if flags&2 != 0 {
		m.Context = bytes.Repeat([]byte{flags}, int(flags>>2))
	}
	if flags&4 != 0 {
		m.Context = []byte("CampaignTransfer") // the library's word
	}
	for i := range uint64(s.next() % 4) {
		e := &pb.Entry{Index: proto.Uint64(m.GetIndex() + 1 + i), Term: proto.Uint64(s.number(st.Term))}
		switch kind := s.next(); kind % 8 {
		case 0, 1:
			e.Data = []byte{kind, 1, 2}
		case 2:
			e.Type, e.Data = pb.EntryConfChangeV2.Enum(), bytes.Repeat([]byte{s.next()}, int(s.next()%16))
		case 3:
			e.Type = pb.EntryConfChange.Enum()
		case 4:
			e.Index = proto.Uint64(s.number(m.GetIndex()))
		}
		m.Entries = append(m.Entries, e)
	}
	return m
}

// head is the head of a snapshot.
func (s *script) head(st *consensus.Status) consensus.SnapshotHead {
	h := consensus.SnapshotHead{
		Group: consensus.GroupID(1 + s.next()%8/7), From: consensus.ReplicaID(s.next() % 5), To: consensus.ReplicaID(1 + s.next()%8/7), Term: s.number(st.Term),
		State: consensus.State{Applied: s.number(st.Last), Term: s.number(st.Term), Config: three()},
	}
	if b := s.next(); b%2 == 0 {
		h.State.Config.Index = s.number(h.State.Applied)
	} else if b%16 == 1 {
		h.State.Config.Voters = h.State.Config.Voters[:b/16%4]
	}
	return h
}

func three() consensus.Config {
	return consensus.Config{Index: 1, Voters: []consensus.Member{{ID: 1, Node: "a"}, {ID: 2, Node: "b"}, {ID: 3, Node: "c"}}}
}

// FuzzDeliver: what another node sends, well formed, with any field at any value, stops neither the node nor its replica, and every call
// ends. What a node says as a replica that is at another one changes nothing.
func FuzzDeliver(f *testing.F) {
	honest := []byte{0, 2, 0, 4, 0, 0, 5, 5, 0, 0, 0} // a heartbeat's kind first, below
	for kind := range byte(len(kinds)) {
		for _, to := range []byte{4, 5, 8, 12, 15} {
			f.Add(append([]byte{0, kind, 2, 0, to}, honest[4:]...), false)
			f.Add(append([]byte{1, kind, 3, 0, to, to, to, to, to, to, 2, 1, to, 0}, honest...), true)
		}
	}
	f.Add([]byte{0, 6, 2, 0, 5, 0, 4, 4, 0, 0, 0, 0, 0, 8, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 3, 3, 0, 5, 0, 0, 0, 0, 0, 0, 0}, false) // it is handed the group, and elected
	f.Add([]byte{4, 0, 2, 0, 5, 7, 5, 1, 0, 0, 0}, false)                                                                            // a state
	f.Fuzz(func(t *testing.T, b []byte, strangers bool) {
		if len(b) > 1<<10 {
			return
		}
		l, err := log.Open(log.Config{Dir: logtest.New(logtest.Options{}), Create: true, SegmentSize: 1 << 20})
		if err == nil {
			err = l.Replay(func(*log.Record) error { return nil })
		}
		if err == nil {
			err = l.Start(1)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close(true)
		n := New(Config{Name: "a", Log: l, Link: nowhere{}, Tick: time.Hour, Fenced: func(_ consensus.GroupID, err error) { t.Errorf("its replica is stopped: %v", err) }})
		defer n.Close()
		m := &taker{state: consensus.State{Applied: 1, Term: 1, Config: three()}}
		if err := n.Create(1, 1, m.now()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), teeth.Patience(20*time.Second))
		defer cancel()
		if err := n.Start(ctx, 1, 1, m); err != nil {
			t.Fatal(err)
		}
		behind := func() {
			if err := n.do(ctx, 1, func(_ *turn, _ *group, done chan<- error) error { done <- nil; return nil }); err != nil {
				t.Fatalf("it does not go on: %v", err)
			}
		}
		behind()
		st, err := n.Status(1)
		if err != nil {
			t.Fatal(err)
		}
		first := st
		for s := script(b); len(s) > 0 && !t.Failed(); {
			op := s.next()
			at := []string{"b", "c", "d", "a"}[op%4]
			if op%8 >= 4 {
				h := s.head(&st)
				if strangers && (h.From < 2 || h.From > 3 || three().Voters[h.From-1].Node == at) {
					continue
				}
				within, cancel := context.WithTimeout(ctx, time.Second)
				err := n.Receive(within, at, h, bytes.NewReader(b))
				late := within.Err() != nil
				cancel()
				if late {
					t.Fatalf("a snapshot of %+v: %v", h, err)
				} else if strangers && !errors.Is(err, consensus.ErrMessage) && !errors.Is(err, consensus.ErrNoGroup) {
					t.Fatalf("a snapshot of %s, %+v: %v", at, h, err)
				}
			} else {
				m := s.message(&st)
				if strangers && (m.GetFrom() < 2 || m.GetFrom() > 3 || three().Voters[m.GetFrom()-1].Node == at) {
					continue
				}
				frame, err := core.AppendMessage(nil, 1, m)
				if err != nil {
					t.Fatal(err)
				}
				if err := n.Deliver(at, frame); err != nil && !errors.Is(err, consensus.ErrMessage) {
					t.Fatalf("%v of %s: %v", m, at, err)
				}
			}
			behind()
			if st, err = n.Status(1); err != nil || st.Fenced != nil {
				t.Fatalf("its replica: %v, %v", st.Fenced, err)
			}
		}
		if strangers && (st.Term != first.Term || st.Last != first.Last || st.Committed != first.Committed || st.Leader != first.Leader || m.now().Applied != 1) {
			t.Errorf("what strangers say is believed: %+v, and it was %+v", st, first)
		}
	})
}
