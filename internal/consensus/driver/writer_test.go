package driver

import (
	"context"
	"errors"
	"io"
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

// A nothing is a machine without a state, and a link to nowhere.
type nothing struct {
	state   consensus.State
	applied chan uint64
}

func (m *nothing) State() (consensus.State, error) { return m.state, nil }
func (m *nothing) Apply(e []consensus.Entry) error {
	m.applied <- e[len(e)-1].Index
	return nil
}
func (m *nothing) Durable(uint64)                      {}
func (m *nothing) Leads(uint64)                        {}
func (m *nothing) Follows(uint64, consensus.ReplicaID) {}
func (m *nothing) Adopt(consensus.Received) error      { return errors.ErrUnsupported }
func (m *nothing) Snapshot(context.Context) (consensus.Snapshot, error) {
	return nil, errors.ErrUnsupported
}
func (m *nothing) Receive(context.Context, consensus.State, io.Reader) (consensus.Received, error) {
	return nil, errors.ErrUnsupported
}

type nowhere struct{}

func (nowhere) Send(string, bool, []byte) {}
func (nowhere) Snapshot(context.Context, string, consensus.SnapshotHead, io.Reader) error {
	return errors.ErrUnsupported
}

// TestBadAppend: what cannot be stored of one group stops that group, and no other of its frame.
func TestBadAppend(t *testing.T) {
	l, err := log.Open(log.Config{Dir: logtest.New(logtest.Options{}), Create: true})
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
	n := New(Config{Name: "a", Log: l, Link: nowhere{}})
	defer n.Close()
	state := consensus.State{Applied: 1, Term: 1, Config: consensus.Config{Index: 1, Voters: []consensus.Member{{ID: 1, Node: "a"}}}}
	machines := map[consensus.GroupID]*nothing{}
	for g := consensus.GroupID(1); g <= 2; g++ {
		machines[g] = &nothing{state, make(chan uint64, 1000)}
		if err := n.Create(g, 1, state); err != nil {
			t.Fatal(err)
		}
		if err := n.Start(context.Background(), g, 1, machines[g]); err != nil {
			t.Fatal(err)
		}
		<-machines[g].applied // it leads
	}
	bad := &core.Append{Entries: []*pb.Entry{{Index: proto.Uint64(3), Term: proto.Uint64(2), Type: pb.EntryConfChange.Enum()}}}
	good := &core.Append{HasState: true}
	items := make([]item, 2)
	for g := consensus.GroupID(1); g <= 2; g++ {
		items[g-1] = item{g: n.groups[g], a: bad}
	}
	items[1].a, good.State = good, log.State{Term: 99, Commit: 2}
	n.backlog.put(items)
	for deadline := time.Now().Add(teeth.Patience(10 * time.Second)); ; time.Sleep(time.Millisecond) {
		s, err := n.Status(1)
		if err != nil {
			t.Fatal(err)
		}
		if s.Fenced != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the group whose append cannot be stored is not fenced")
		}
	}
	for deadline := time.Now().Add(teeth.Patience(10 * time.Second)); ; time.Sleep(time.Millisecond) {
		if s, _ := l.State(2); s.Term == 99 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("what the other group had in the frame is not stored")
		}
	}
	if s, err := n.Status(2); err != nil || s.Fenced != nil {
		t.Errorf("the other group: %+v %v", s, err)
	}
}
