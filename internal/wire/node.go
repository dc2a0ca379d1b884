package wire

import (
	"crypto/hmac"
	"fmt"
)

// What nodes of a cluster say to each other to open a way for the messages of their replicas.
// The private data has a magic of its own, so a node tells the request of another node from
// that of a client by its first bytes:
//
//	NodeConnect  ┌magic "RKN1"┬version┬lane┬lowest┬ 0 ┬nonce┬MAC ┐  40 bytes
//	             └4           ┴1      ┴1   ┴1     ┴1  ┴16   ┴16  ┘
//	NodeAccept   ┌magic "RKN1"┬version┬ 0 ┬nonce┬MAC ┐       40 bytes
//	             └4           ┴1      ┴3  ┴16   ┴16  ┘
//	NodeHello    ┌MAC┬cluster┬store┬from length┬to length┬count┬ 0 ┬openings┬from┬to┐
//	             └32 ┴16     ┴16   ┴2          ┴2        ┴2    ┴2  ┴16 each ┴…   ┴… ┘
//	NodeRefusal  ┌MAC┬epoch┬incarnation┐   48 bytes, in answer to a NodeHello
//	             └32 ┴8    ┴8          ┘
//	NodeReject   ┌magic "RKN1"┬version┬why┬lowest┬ 0 ┐         8 bytes, with the rejection of a request
//	             └4           ┴1      ┴1  ┴1     ┴1  ┘
//
// In a NodeConnect, version and lowest are the versions that its sender speaks, and NodeAccept has the highest one that both do, which the way then has. In a NodeReject they are those of the
// node that rejects. A program of version 1 alone writes 0 for lowest, and rejects a request of every other version, with a NodeReject of version 1: then
// the request is made once more, in version 1. From version 2 on these three have the shape that is drawn here in all versions.
// A NodeReject has no MAC, so whoever can answer for a node can have two nodes speak a lower version than both could. Hence no version that a program still speaks may be
// less safe than the next one: else Min of NodeSpeaks has to rise with it.
//
// The MACs are those of private.go, with labels of their own: each proves that its sender knows
// the cluster's secret, and the one of NodeHello that it answers this very acceptance. Whoever
// has the secret can say that he is any node: that is what the secret is.
const (
	NodeConnectSize = 4 + 1 + 1 + 2 + NonceSize + MACSize
	NodeAcceptSize  = 4 + 1 + 3 + NonceSize + MACSize
)

const nodeMagic = "RKN1"

// NodeVersions are the versions of the protocol of nodes that a program speaks.
type NodeVersions struct{ Min, Max uint8 }

// NodeSpeaks is what this program speaks: version 2, which brought that ends agree on a version, and that of the release before.
func NodeSpeaks() NodeVersions { return NodeVersions{1, 2} }

// Common is the highest version that both speak; false: there is none.
func (v NodeVersions) Common(o NodeVersions) (uint8, bool) {
	high := min(v.Max, o.Max)
	return high, high >= max(v.Min, o.Min)
}

// String is versions for people.
func (v NodeVersions) String() string {
	if v.Min == v.Max {
		return fmt.Sprintf("version %d alone", v.Max)
	}
	return fmt.Sprintf("versions %d to %d", v.Min, v.Max)
}

// A Lane is what a way between nodes is for. Messages of one lane wait for none of another.
type Lane uint8

const (
	LaneUrgent Lane = iota + 1 // heartbeats and votes
	LaneBulk                   // entries, and what acknowledges them
	LaneState                  // one snapshot
	LaneAsk                    // questions and answers; a node that does not know this lane rejects the request, without a NodeReject
)

// String names the lane.
func (l Lane) String() string {
	switch l {
	case LaneUrgent:
		return "urgent"
	case LaneBulk:
		return "bulk"
	case LaneState:
		return "state"
	case LaneAsk:
		return "ask"
	}
	return "unknown"
}

// IsNode reports whether private data is a node's, by its first bytes alone.
func IsNode(private []byte) bool {
	return len(private) >= len(nodeMagic) && string(private[:len(nodeMagic)]) == nodeMagic
}

// A NodeConnect is the private data of a node's connection request.
type NodeConnect struct {
	// Versions are those that the node speaks; the zero value: version 1 alone.
	Versions NodeVersions
	Lane     Lane
	Nonce    Nonce
}

// AppendNodeConnect appends a request's private data with its MAC.
func AppendNodeConnect(dst, secret []byte, c NodeConnect) []byte {
	start := len(dst)
	dst = append(dst, nodeMagic...)
	dst = append(dst, max(c.Versions.Max, 1), byte(c.Lane), lowest(c.Versions), 0)
	dst = append(dst, c.Nonce[:]...)
	sum := mac(secret, "rkv node connect", dst[start:])
	return append(dst, sum[:MACSize]...)
}

// lowest is the field of that name.
func lowest(v NodeVersions) uint8 {
	if v.Max < 2 {
		return 0
	}
	return v.Min
}

// versions reads that field, behind version.
func (f *fields) versions(version uint8) NodeVersions {
	low := f.u8()
	switch {
	case f.err != nil:
	case version == 1 && low != 0:
		f.fail(ErrReserved)
	case version == 1:
		low = 1
	case low == 0 || low > version:
		f.fail(ErrRange)
	}
	return NodeVersions{low, version}
}

// ParseNodeConnect reads a request's private data. The MAC is not checked:
// VerifyNodeConnect does that. ErrMagic, ErrVersion, ErrShort, ErrTrailing, ErrRange.
func ParseNodeConnect(b []byte) (NodeConnect, error) {
	f, version, err := nodePrivate(b)
	if err != nil {
		return NodeConnect{}, err
	}
	c := NodeConnect{Lane: Lane(f.u8())}
	c.Versions = f.versions(version)
	f.zero(1)
	copy(c.Nonce[:], f.take(NonceSize))
	f.take(MACSize)
	if err := f.done(); err != nil {
		return NodeConnect{}, err
	}
	if c.Lane < LaneUrgent || c.Lane > LaneAsk {
		return NodeConnect{}, ErrRange
	}
	return c, nil
}

// nodePrivate checks the magic, and returns the version and the fields behind it. ErrVersion: it is 0, which none has.
func nodePrivate(b []byte) (f fields, version uint8, err error) {
	if len(b) < len(nodeMagic)+1 {
		return f, 0, ErrShort
	}
	if !IsNode(b) {
		return f, 0, ErrMagic
	}
	f = fields{b: b[len(nodeMagic):]}
	if version = f.u8(); version == 0 {
		return f, 0, ErrVersion
	}
	return f, version, nil
}

// VerifyNodeConnect checks the MAC of a request's private data in constant time.
func VerifyNodeConnect(secret, connect []byte) bool {
	n := NodeConnectSize - MACSize
	if len(connect) != NodeConnectSize {
		return false
	}
	sum := mac(secret, "rkv node connect", connect[:n])
	return hmac.Equal(sum[:MACSize], connect[n:])
}

// AppendNodeAccept appends an acceptance's private data, with the version that the way has. The MAC covers connect, the private
// data that the request carried.
func AppendNodeAccept(dst, secret, connect []byte, version uint8, nonce Nonce) []byte {
	start := len(dst)
	dst = append(dst, nodeMagic...)
	dst = append(dst, version, 0, 0, 0)
	dst = append(dst, nonce[:]...)
	sum := mac(secret, "rkv node accept", connect, dst[start:])
	return append(dst, sum[:MACSize]...)
}

// VerifyNodeAccept checks an acceptance's private data: its shape, that its version is one that connect offers, and in constant time that
// the other node knows the secret and answers this connect.
func VerifyNodeAccept(secret, connect, accept []byte) bool {
	n := NodeAcceptSize - MACSize
	if len(accept) != NodeAcceptSize {
		return false
	}
	_, version, err := nodePrivate(accept)
	if err != nil {
		return false
	}
	if c, err := ParseNodeConnect(connect); err != nil || version < c.Versions.Min || version > c.Versions.Max {
		return false
	}
	sum := mac(secret, "rkv node accept", connect, accept[:n])
	return hmac.Equal(sum[:MACSize], accept[n:])
}

// An Opening is one start of a node on its data directory.
type Opening struct {
	Epoch       uint64 // of the versions that it gives out; no lower than that of the start before
	Incarnation uint64 // random; never 0
}

// MaxOpenings bounds the openings that a node tells of itself.
const MaxOpenings = 64

// A NodeHello is the first message of a way.
type NodeHello struct {
	Cluster  [16]byte // both nodes must be of this cluster
	Store    [16]byte // of the data directory of the node that says it
	From, To []byte   // names of the nodes; at most MaxName bytes each, and not empty
	// Openings are the starts of that data directory that it knows of, the newest, which is this one, first: 1 to MaxOpenings.
	Openings []Opening
}

// AppendNodeHello appends a NodeHello with its MAC, which covers the private data of both
// ends.
func AppendNodeHello(dst, secret, connect, accept []byte, m NodeHello) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, FullMACSize)...)
	dst = append(dst, m.Cluster[:]...)
	dst = append(dst, m.Store[:]...)
	dst = le.AppendUint16(dst, len16(m.From))
	dst = le.AppendUint16(dst, len16(m.To))
	dst = le.AppendUint16(dst, uint16(len(m.Openings)))
	dst = append(dst, 0, 0)
	for _, o := range m.Openings {
		dst = le.AppendUint64(le.AppendUint64(dst, o.Epoch), o.Incarnation)
	}
	dst = append(dst, m.From...)
	dst = append(dst, m.To...)
	sum := mac(secret, "rkv node hello", connect, accept, dst[start+FullMACSize:])
	copy(dst[start:], sum[:])
	return dst
}

// ParseNodeHello reads a NodeHello, whose MAC VerifyNodeHello checks. From and To are parts of
// b.
func ParseNodeHello(b []byte) (NodeHello, error) {
	f := fields{b: b}
	var m NodeHello
	f.take(FullMACSize)
	copy(m.Cluster[:], f.take(16))
	copy(m.Store[:], f.take(16))
	from, to, count := f.u16(), f.u16(), f.u16()
	f.zero(2)
	if from == 0 || to == 0 || from > MaxName || to > MaxName || count == 0 || count > MaxOpenings {
		f.fail(ErrRange)
		count = 0
	}
	for range count {
		o := Opening{f.u64(), f.u64()}
		if o.Incarnation == 0 {
			f.fail(ErrRange)
		}
		m.Openings = append(m.Openings, o)
	}
	m.From, m.To = f.take(uint64(from)), f.take(uint64(to))
	if err := f.done(); err != nil {
		return NodeHello{}, err
	}
	return m, nil
}

// VerifyNodeHello checks the MAC of a NodeHello in constant time.
func VerifyNodeHello(b, secret, connect, accept []byte) bool {
	if len(b) < FullMACSize {
		return false
	}
	sum := mac(secret, "rkv node hello", connect, accept, b[FullMACSize:])
	return hmac.Equal(sum[:], b[:FullMACSize])
}

// NodeRefusalSize is the size of a NodeRefusal, in bytes.
const NodeRefusalSize = FullMACSize + 8 + 8

// AppendNodeRefusal appends what a node answers to the hello of one whose data directory does not know of an opening that this node has
// seen. The MAC covers the private data of both ends, so a refusal that somebody has seen refuses nobody else.
func AppendNodeRefusal(dst, secret, connect, accept []byte, seen Opening) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, FullMACSize)...)
	dst = le.AppendUint64(le.AppendUint64(dst, seen.Epoch), seen.Incarnation)
	sum := mac(secret, "rkv node refusal", connect, accept, dst[start+FullMACSize:])
	copy(dst[start:], sum[:])
	return dst
}

// ParseNodeRefusal reads a NodeRefusal. genuine: its sender knows the secret, and answers this connect and this accept.
func ParseNodeRefusal(b, secret, connect, accept []byte) (seen Opening, genuine bool) {
	if len(b) != NodeRefusalSize {
		return seen, false
	}
	sum := mac(secret, "rkv node refusal", connect, accept, b[FullMACSize:])
	if !hmac.Equal(sum[:], b[:FullMACSize]) {
		return seen, false
	}
	f := fields{b: b[FullMACSize:]}
	seen = Opening{f.u64(), f.u64()}
	return seen, seen.Incarnation != 0
}

// A NodeReject says why a node rejects the connection request of another one. It has no MAC, because it is told to strangers, too: it explains
// a rejection, and nothing else may hang on it. A node of an older version rejects without one.
type NodeReject uint8

const (
	NodeBusy    NodeReject = iota + 1 // so many ways are being set up that there is no place for another one now
	NodeRefused                       // the request is refused, or the node has no ways to other nodes
)

// NodeRejectSize is the size of a NodeReject, in bytes.
const NodeRejectSize = 4 + 1 + 1 + 2

// AppendNodeReject appends the private data of a rejection by a node that speaks some versions. connect is that of the request: an end of version 1 alone
// reads nothing but version 1.
func AppendNodeReject(dst, connect []byte, speaks NodeVersions, why NodeReject) []byte {
	if _, version, err := nodePrivate(connect); err == nil && version == 1 {
		speaks = NodeVersions{1, 1}
	}
	dst = append(dst, nodeMagic...)
	return append(dst, speaks.Max, byte(why), lowest(speaks), 0)
}

// ParseNodeReject reads the private data of a rejection, which may be padded, and which versions the other node speaks. A reason that this version does not know is NodeRefused.
// ErrMagic, ErrVersion, ErrShort, ErrTrailing, ErrRange, ErrReserved.
func ParseNodeReject(b []byte) (why NodeReject, speaks NodeVersions, err error) {
	f, version, err := nodePrivate(Unpad(b, NodeRejectSize))
	if err != nil {
		return 0, speaks, err
	}
	why = NodeReject(f.u8())
	speaks = f.versions(version)
	f.zero(1)
	if why == 0 {
		f.fail(ErrRange)
	}
	if err := f.done(); err != nil {
		return 0, NodeVersions{}, err
	}
	if why != NodeBusy {
		why = NodeRefused
	}
	return why, speaks, nil
}

// Kinds of questions that nodes ask each other (package transport): the first byte of each. Who reads them draws what follows.
const (
	QuestionPoll    = 1 // of the seat, to every node (package change, poll.go)
	QuestionMap     = 2 // for the newest map (package change, learn.go)
	QuestionAnew    = 3 // whether a node makes the meta group anew (package change, anew.go)
	QuestionLacking = 4 // which replicas have not caught up (package groups, await.go)
	QuestionLevel   = 5 // which feature level a node holds (package change, level.go)
)
