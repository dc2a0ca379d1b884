package core

import (
	"encoding/binary"
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

// A message between replicas, as it travels; many follow each other in one frame of the
// transport:
//
//	  0        4        8          8 + n
//	+--------+--------+-----------+
//	| n      | group  | Message   |  raftpb.Message, marshalled; n is its length
//	| 32     | 32     | n bytes   |
//	+--------+--------+-----------+
//
// Who may send it as whom is the transport's to know: it has authenticated the node. A
// MsgHeartbeatResp that rejects says that the disk of its node is full, and the RejectHint of a MsgHeartbeat up to where
// its sender lets logs be trimmed; the driver sets these, and takes them out again before the library steps the message. It may
// be any number: one that is too high has a log keep no more than its own replica needs, and one that is too low has it keep its entries
// while such heartbeats come, and for Config.Absent afterwards, as long as no more than half of it is in use.
const messageHead = 8

// MaxMessage bounds the marshalled message: the entries of one (Limits.Message), of which
// the first may be larger, and what stands beside them.
const MaxMessage = 4 << 20

// maxEntries bounds the entries of one message.
const maxEntries = 1 << 16

// AppendMessage appends a message to a frame.
func AppendMessage(dst []byte, g consensus.GroupID, m *pb.Message) ([]byte, error) {
	at := len(dst)
	dst = append(dst, make([]byte, messageHead)...)
	dst, err := proto.MarshalOptions{}.MarshalAppend(dst, m)
	if err != nil {
		return dst[:at], fmt.Errorf("consensus: %w", err)
	}
	binary.LittleEndian.PutUint32(dst[at:], uint32(len(dst)-at-messageHead))
	binary.LittleEndian.PutUint32(dst[at+4:], uint32(g))
	return dst, nil
}

// ParseMessage takes the first message of a frame, checked as far as it can be without the
// replica that it is for, and returns what is behind it. The message does not alias b.
// ErrMessage; with rest not nil the message alone is bad, and those behind it may be good.
func ParseMessage(b []byte) (g consensus.GroupID, m *pb.Message, rest []byte, err error) {
	if len(b) < messageHead {
		return 0, nil, nil, malformed("%d bytes, a message has a head of %d", len(b), messageHead)
	}
	n := binary.LittleEndian.Uint32(b)
	if n > MaxMessage || int(n) > len(b)-messageHead {
		return 0, nil, nil, malformed("a message of %d bytes, %d are there and %d are the most", n, len(b)-messageHead, MaxMessage)
	}
	m = &pb.Message{}
	rest = b[messageHead+n:]
	// What this program does not know is dropped: it would stay in memory uncounted.
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b[messageHead:messageHead+n], m); err != nil {
		return 0, nil, rest, malformed("%v", err)
	}
	if err := check(m); err != nil {
		return 0, nil, rest, err
	}
	return consensus.GroupID(binary.LittleEndian.Uint32(b[4:])), m, rest, nil
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{consensus.ErrMessage}, args...)...)
}

// SnapshotMessage is what a replica is given when its machine has received a state.
func SnapshotMessage(from, to consensus.ReplicaID, term uint64, s *consensus.State) *pb.Message {
	f, t := uint64(from), uint64(to)
	return &pb.Message{Type: pb.MsgSnap.Enum(), From: &f, To: &t, Term: &term, Snapshot: metadata(s)}
}

// check holds a message to what replicas send each other. Proposals are not forwarded, and
// storage messages and those of a snapshot never travel like this.
func check(m *pb.Message) error {
	t := m.GetType()
	switch t {
	case pb.MsgApp, pb.MsgAppResp, pb.MsgVote, pb.MsgVoteResp, pb.MsgPreVote, pb.MsgPreVoteResp, pb.MsgHeartbeat, pb.MsgHeartbeatResp, pb.MsgTimeoutNow:
	default:
		return malformed("type %v does not travel", t)
	}
	switch {
	case m.GetFrom() == 0 || m.GetTo() == 0 || m.GetFrom() == m.GetTo():
		return malformed("%v from replica %d to replica %d", t, m.GetFrom(), m.GetTo())
	case m.GetTerm() == 0 || m.GetTerm() > MaxNumber || m.GetLogTerm() > m.GetTerm() && t != pb.MsgAppResp:
		return malformed("%v of term %d behind an entry of term %d", t, m.GetTerm(), m.GetLogTerm())
	case m.GetIndex() > MaxNumber || m.GetCommit() > MaxNumber || m.GetRejectHint() > MaxNumber:
		return malformed("%v with an impossible index", t)
	case m.GetSnapshot() != nil || len(m.GetResponses()) != 0:
		return malformed("%v with a snapshot or responses", t)
	case len(m.GetEntries()) > 0 && t != pb.MsgApp, len(m.GetEntries()) > maxEntries:
		return malformed("%v with %d entries", t, len(m.GetEntries()))
	case len(m.GetContext()) > maxContext, (t == pb.MsgHeartbeat || t == pb.MsgHeartbeatResp) && len(m.GetContext())&^8 != 0:
		return malformed("%v with a context of %d bytes", t, len(m.GetContext()))
	}
	index, term := m.GetIndex(), m.GetLogTerm()
	for _, e := range m.GetEntries() {
		switch {
		case e.GetIndex() != index+1:
			return malformed("entry %d follows entry %d", e.GetIndex(), index)
		case e.GetTerm() < term || e.GetTerm() > m.GetTerm():
			return malformed("entry %d of term %d behind one of term %d, in term %d", e.GetIndex(), e.GetTerm(), term, m.GetTerm())
		}
		if err := checkEntry(e); err != nil {
			return err
		}
		index, term = e.GetIndex(), e.GetTerm()
	}
	return nil
}

// MaxNumber bounds terms and indexes: what counts up from 1 does not get there.
const MaxNumber = 1 << 62

// MaxAhead bounds by how much a term may be ahead of one's own. Each election takes some time,
// so nobody is that far behind; one message with the highest term would end the group.
const MaxAhead = 1 << 32

// maxContext bounds what a message carries for its sender: the name of a read, or the
// library's word for a transfer.
const maxContext = 64

// checkEntry holds an entry to what replicas propose.
func checkEntry(e *pb.Entry) error {
	if len(e.GetData()) > consensus.MaxEntry {
		return malformed("entry %d of %d bytes", e.GetIndex(), len(e.GetData()))
	}
	switch e.GetType() {
	case pb.EntryNormal:
		return nil
	case pb.EntryConfChangeV2:
		_, err := parseChange(e.GetData())
		return err
	}
	return malformed("entry %d is of type %v", e.GetIndex(), e.GetType())
}

// Check holds a message to what this replica knows, so that the library does not stop it
// for what a peer says of entries that are not there. Entries in the place of committed ones
// the library does not look at. ErrMessage.
func (r *Replica) Check(m *pb.Message) error {
	if m.GetTo() != r.id {
		return malformed("%v for replica %d, this one is %d", m.GetType(), m.GetTo(), r.id)
	}
	if m.GetTerm() < r.state.Term {
		return nil // the library ignores it
	}
	if m.GetTerm() > r.state.Term+MaxAhead {
		return malformed("%v of term %d, and this replica knows of term %d", m.GetType(), m.GetTerm(), r.state.Term)
	}
	switch m.GetType() {
	case pb.MsgTimeoutNow:
		if m.GetFrom() != r.soft.Lead {
			return malformed("replica %d, which does not lead, hands over", m.GetFrom())
		}
	case pb.MsgHeartbeatResp:
		if c := m.GetContext(); len(c) == 8 && binary.LittleEndian.Uint64(c) > r.reads {
			return malformed("replica %d confirms %d reads, of %d", m.GetFrom(), binary.LittleEndian.Uint64(c), r.reads)
		}
	case pb.MsgHeartbeat:
		if m.GetCommit() > r.last {
			return malformed("replica %d takes entry %d for ours, and the last one here is %d: is the log of this replica older than it was?", m.GetFrom(), m.GetCommit(), r.last)
		}
	case pb.MsgAppResp:
		if !m.GetReject() && m.GetIndex() > r.last {
			return malformed("replica %d acknowledges entry %d, the last one is %d", m.GetFrom(), m.GetIndex(), r.last)
		}
	}
	return nil
}
