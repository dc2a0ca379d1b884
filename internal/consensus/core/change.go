package core

import (
	"encoding/binary"
	"fmt"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

// What a change of configuration carries beside the library's own words, in its Context:
//
//	  0        8        16
//	+--------+--------+----------+
//	| name   | expect | node     |
//	| 64     | 64     | the rest |
//	+--------+--------+----------+
//
// name tells who asked for it that it took effect; expect is the index of the entry that
// made the configuration to which it is a change: behind another one it is void, at all
// replicas alike.
const contextHead = 16

// A change is one member that comes, goes, or becomes voter or learner.
type change struct {
	cc     *pb.ConfChangeV2
	name   uint64
	expect uint64
	member consensus.Member
}

// parseChange parses the data of an entry. ErrMessage.
func parseChange(data []byte) (*change, error) {
	cc := &pb.ConfChangeV2{}
	if err := proto.Unmarshal(data, cc); err != nil {
		return nil, malformed("a change of configuration: %v", err)
	}
	b := cc.GetContext()
	if len(cc.GetChanges()) != 1 || cc.GetTransition() != pb.ConfChangeTransitionAuto || len(b) < contextHead || len(b) > contextHead+consensus.MaxNode {
		return nil, malformed("a change of configuration with %d changes and %d bytes beside them", len(cc.GetChanges()), len(b))
	}
	c := cc.GetChanges()[0]
	switch c.GetType() {
	case pb.ConfChangeAddNode, pb.ConfChangeAddLearnerNode, pb.ConfChangeRemoveNode:
	default:
		return nil, malformed("a change of configuration of type %v", c.GetType())
	}
	if c.GetNodeId() == 0 {
		return nil, malformed("a change of configuration for replica 0")
	}
	return &change{
		cc: cc, name: binary.LittleEndian.Uint64(b), expect: binary.LittleEndian.Uint64(b[8:]),
		member: consensus.Member{ID: consensus.ReplicaID(c.GetNodeId()), Node: string(b[contextHead:])},
	}, nil
}

// MakeChange returns the change that makes a configuration of another one. ErrConfig: they
// do not differ by one member.
func MakeChange(from, to *consensus.Config, name uint64) (*pb.ConfChangeV2, error) {
	if err := to.Check(); err != nil {
		return nil, err
	}
	for _, list := range [2][]consensus.Member{to.Voters, to.Learners} {
		for _, m := range list {
			if at := from.Node(m.ID); at != "" && at != m.Node {
				return nil, fmt.Errorf("%w: replica %d is at node %s, and never moves: give the new replica an id of its own", consensus.ErrConfig, m.ID, at)
			}
		}
	}
	var found []*pb.ConfChangeSingle
	var node string
	add := func(t pb.ConfChangeType, m consensus.Member) {
		id := uint64(m.ID)
		found, node = append(found, &pb.ConfChangeSingle{Type: &t, NodeId: &id}), m.Node
	}
	for _, m := range to.Voters {
		if !slices.Contains(from.Voters, m) {
			add(pb.ConfChangeAddNode, m)
		}
	}
	for _, m := range to.Learners {
		if !slices.Contains(from.Learners, m) {
			add(pb.ConfChangeAddLearnerNode, m)
		}
	}
	for _, list := range [2][]consensus.Member{from.Voters, from.Learners} {
		for _, m := range list {
			if to.Node(m.ID) == "" {
				add(pb.ConfChangeRemoveNode, m)
			}
		}
	}
	if len(found) != 1 {
		return nil, consensus.ErrConfig
	}
	b := binary.LittleEndian.AppendUint64(nil, name)
	b = binary.LittleEndian.AppendUint64(b, from.Index)
	return &pb.ConfChangeV2{Changes: found, Context: append(b, node...)}, nil
}

// A Changed says what an entry of configuration came to.
type Changed struct {
	Name   uint64            // of MakeChange
	Config *consensus.Config // in force from this entry on; nil: the change was void
	cc     *pb.ConfChangeV2
}

// Change judges an entry of configuration on the configuration in force before it. It is a
// pure function, so all replicas judge alike.
func Change(before *consensus.Config, e *pb.Entry) (Changed, error) {
	c, err := parseChange(e.GetData())
	if err != nil {
		return Changed{}, err
	}
	out := Changed{Name: c.name, cc: c.cc}
	if c.expect != before.Index {
		return out, nil
	}
	without := func(list []consensus.Member) []consensus.Member {
		return slices.DeleteFunc(slices.Clone(list), func(m consensus.Member) bool { return m.ID == c.member.ID })
	}
	with := func(list []consensus.Member) []consensus.Member {
		list = append(list, c.member)
		slices.SortFunc(list, func(a, b consensus.Member) int {
			if a.ID < b.ID {
				return -1
			}
			return 1
		})
		return list
	}
	next := consensus.Config{Index: e.GetIndex(), Voters: without(before.Voters), Learners: without(before.Learners)}
	switch c.cc.GetChanges()[0].GetType() {
	case pb.ConfChangeAddNode:
		next.Voters = with(next.Voters)
	case pb.ConfChangeAddLearnerNode:
		next.Learners = with(next.Learners)
	}
	if next.Check() != nil {
		return out, nil
	}
	out.Config = &next
	return out, nil
}

// InForce notes in an Apply that a change took effect.
func (a *Apply) InForce(c Changed) {
	a.Changes = append(a.Changes, c.cc)
	a.Config = c.Config
}
