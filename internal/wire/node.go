package wire

import "crypto/hmac"

// What nodes of a cluster say to each other to open a way for the messages of their replicas.
// The private data has a magic of its own, so a node tells the request of another node from
// that of a client by its first bytes:
//
//	NodeConnect  ┌magic "RKN1"┬version┬lane┬ 0 ┬nonce┬MAC ┐  40 bytes
//	             └4           ┴1      ┴1   ┴2  ┴16   ┴16  ┘
//	NodeAccept   ┌magic "RKN1"┬version┬ 0 ┬nonce┬MAC ┐       40 bytes
//	             └4           ┴1      ┴3  ┴16   ┴16  ┘
//	NodeHello    ┌MAC┬cluster┬store┬from length┬to length┬count┬ 0 ┬openings┬from┬to┐
//	             └32 ┴16     ┴16   ┴2          ┴2        ┴2    ┴2  ┴16 each ┴…   ┴… ┘
//	NodeRefusal  ┌MAC┬epoch┬incarnation┐   48 bytes, in answer to a NodeHello
//	             └32 ┴8    ┴8          ┘
//	NodeReject   ┌magic "RKN1"┬version┬why┬ 0 ┐                8 bytes, with the rejection of a request
//	             └4           ┴1      ┴1  ┴2  ┘
//
// The MACs are those of private.go, with labels of their own: each proves that its sender knows
// the cluster's secret, and the one of NodeHello that it answers this very acceptance. Whoever
// has the secret can say that he is any node: that is what the secret is.
const (
	NodeConnectSize = 4 + 1 + 1 + 2 + NonceSize + MACSize
	NodeAcceptSize  = 4 + 1 + 3 + NonceSize + MACSize
)

const (
	nodeMagic   = "RKN1"
	NodeVersion = 1
)

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
	Lane  Lane
	Nonce Nonce
}

// AppendNodeConnect appends a request's private data with its MAC.
func AppendNodeConnect(dst, secret []byte, c NodeConnect) []byte {
	start := len(dst)
	dst = append(dst, nodeMagic...)
	dst = append(dst, NodeVersion, byte(c.Lane), 0, 0)
	dst = append(dst, c.Nonce[:]...)
	sum := mac(secret, "rkv node connect", dst[start:])
	return append(dst, sum[:MACSize]...)
}

// ParseNodeConnect reads a request's private data. The MAC is not checked:
// VerifyNodeConnect does that. ErrMagic, ErrVersion, ErrShort, ErrTrailing, ErrRange.
func ParseNodeConnect(b []byte) (NodeConnect, error) {
	f, err := nodePrivate(b)
	if err != nil {
		return NodeConnect{}, err
	}
	c := NodeConnect{Lane: Lane(f.u8())}
	f.zero(2)
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

// nodePrivate checks magic and version and returns the fields behind them.
func nodePrivate(b []byte) (fields, error) {
	if len(b) < len(nodeMagic)+1 {
		return fields{}, ErrShort
	}
	if !IsNode(b) {
		return fields{}, ErrMagic
	}
	f := fields{b: b[len(nodeMagic):]}
	if f.u8() != NodeVersion {
		return fields{}, ErrVersion
	}
	return f, nil
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

// AppendNodeAccept appends an acceptance's private data. The MAC covers connect, the private
// data that the request carried.
func AppendNodeAccept(dst, secret, connect []byte, nonce Nonce) []byte {
	start := len(dst)
	dst = append(dst, nodeMagic...)
	dst = append(dst, NodeVersion, 0, 0, 0)
	dst = append(dst, nonce[:]...)
	sum := mac(secret, "rkv node accept", connect, dst[start:])
	return append(dst, sum[:MACSize]...)
}

// VerifyNodeAccept checks an acceptance's private data: its shape, and in constant time that
// the other node knows the secret and answers this connect.
func VerifyNodeAccept(secret, connect, accept []byte) bool {
	n := NodeAcceptSize - MACSize
	if len(accept) != NodeAcceptSize {
		return false
	}
	if _, err := nodePrivate(accept); err != nil {
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

// AppendNodeReject appends the private data of a rejection.
func AppendNodeReject(dst []byte, why NodeReject) []byte {
	dst = append(dst, nodeMagic...)
	return append(dst, NodeVersion, byte(why), 0, 0)
}

// ParseNodeReject reads the private data of a rejection, which may be padded. A reason that this version does not know is NodeRefused.
// ErrMagic, ErrVersion, ErrShort, ErrTrailing, ErrRange, ErrReserved.
func ParseNodeReject(b []byte) (NodeReject, error) {
	f, err := nodePrivate(Unpad(b, NodeRejectSize))
	if err != nil {
		return 0, err
	}
	why := NodeReject(f.u8())
	f.zero(2)
	if why == 0 {
		f.fail(ErrRange)
	}
	if err := f.done(); err != nil {
		return 0, err
	}
	if why != NodeBusy {
		why = NodeRefused
	}
	return why, nil
}

// Kinds of questions that nodes ask each other (package transport): the first byte of each. Who reads them draws what follows.
const (
	QuestionPoll    = 1 // of the seat, to every node (package change, poll.go)
	QuestionMap     = 2 // for the newest map (package change, learn.go)
	QuestionAnew    = 3 // whether a node makes the meta group anew (package change, anew.go)
	QuestionLacking = 4 // which replicas have not caught up (package groups, await.go)
)
