package wire

import "bytes"

// FeatureWords in a Connect says that the client believes what it READs of a replicated key by the words of the voters alone
// (layout.Cell). In a cluster with replicas no other client may READ.
const FeatureWords = 1 << 3

// FeatureAnew in a Connect says that the client reads shard maps whose groups began with keys (format 5 of package cluster), and names its writes anew when a cluster gets groups. Another client
// could read no such map, so it is let into no cluster that has one, and is told to be upgraded.
const FeatureAnew = 1 << 4

// WelcomeWords: the session may READ, and the keys are replicated: what is READ counts by the words of the voters alone. Only a client
// that has named FeatureWords is told.
const WelcomeWords WelcomeFlags = 1 << 5

// A GroupInfoRequest asks a node of its replica of a group.
//
//	┌group┬ 0 ┐
//	└4    ┴4  ┘
type GroupInfoRequest struct {
	Group uint32 // not 0
}

// AppendGroupInfoRequest appends a GroupInfoRequest.
func AppendGroupInfoRequest(dst []byte, id uint64, m GroupInfoRequest) []byte {
	start := len(dst)
	dst = begin(dst, TypeGroupInfo, id)
	dst = le.AppendUint32(dst, m.Group)
	return finish(append(dst, 0, 0, 0, 0), start)
}

// ParseGroupInfoRequest reads the body of a GroupInfoRequest.
func ParseGroupInfoRequest(body []byte) (GroupInfoRequest, error) {
	f := fields{b: body}
	m := GroupInfoRequest{Group: f.u32()}
	f.zero(4)
	if m.Group == 0 {
		f.fail(ErrRange)
	}
	return m, f.done()
}

// A GroupInfo answers it. A node without a replica of the group that can be READ answers StatusMoved, or StatusNotLeader if it is about to have one.
//
//	┌group┬voters┬ 0 ┬cell┬term┬configuration┐
//	└4    ┴1     ┴3  ┴8   ┴8   ┴8            ┘ 32
//	voters times: ┌length┬node┐
//	              └1     ┴…   ┘
type GroupInfo struct {
	Group uint32
	Cell  uint64 // layout.Place of the replica's cell
	Term  uint64 // in which the replica leads, and shows all that was done before; 0: it does not
	// Config is the index of the entry that made the configuration in force; not 0.
	Config uint64
	count  uint8
	voters []byte
}

// Voters are the nodes of the voters of the configuration: at least one, no two alike. They alias the message.
func (m *GroupInfo) Voters(yield func(node []byte) bool) { eachVoter(m.voters, yield) }

func eachVoter(b []byte, yield func(node []byte) bool) {
	for len(b) > 0 && len(b) > int(b[0]) {
		n := 1 + int(b[0])
		if !yield(b[1:n:n]) {
			return
		}
		b = b[n:]
	}
}

const (
	// MaxVoters bounds the voters of a group (consensus.MaxMembers).
	MaxVoters = 15
	// GroupInfoSize is the most that a GroupInfo takes, with the header.
	GroupInfoSize = HeaderSize + 32 + MaxVoters*(1+MaxOwner)
)

// AppendGroupInfo appends a GroupInfo with voters at the given nodes; it ignores those of m itself.
func AppendGroupInfo(dst []byte, id uint64, m GroupInfo, voters []string) []byte {
	start := len(dst)
	dst = begin(dst, TypeGroupInfo.Reply(), id)
	dst = le.AppendUint32(dst, m.Group)
	dst = append(dst, byte(len(voters)), 0, 0, 0)
	for _, v := range [...]uint64{m.Cell, m.Term, m.Config} {
		dst = le.AppendUint64(dst, v)
	}
	for _, node := range voters {
		dst = append(append(dst, byte(len(node))), node...)
	}
	return finish(dst, start)
}

// ParseGroupInfo reads the body of a GroupInfo.
func ParseGroupInfo(body []byte) (GroupInfo, error) {
	f := fields{b: body}
	m := GroupInfo{Group: f.u32()}
	m.count = f.u8()
	f.zero(3)
	m.Cell, m.Term, m.Config = f.u64(), f.u64(), f.u64()
	if m.Group == 0 || m.count == 0 || m.count > MaxVoters || m.Config == 0 {
		f.fail(ErrRange)
	}
	all := f.b
	for range m.count {
		if f.err != nil {
			break
		}
		before := all[:len(all)-len(f.b)]
		length := f.u8()
		node := f.take(uint64(length))
		if length == 0 || length > MaxOwner {
			f.fail(ErrRange)
		}
		eachVoter(before, func(other []byte) bool {
			if bytes.Equal(node, other) {
				f.fail(ErrRange)
			}
			return true
		})
	}
	if err := f.done(); err != nil {
		return GroupInfo{}, err
	}
	m.voters = all
	return m, nil
}
