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
//	NodeHello    ┌MAC┬cluster┬from length┬to length┬from┬to┐
//	             └32 ┴16     ┴2          ┴2        ┴…   ┴… ┘
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
	if c.Lane < LaneUrgent || c.Lane > LaneState {
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

// A NodeHello is the first message of a way.
type NodeHello struct {
	Cluster  [16]byte // both nodes must be of this cluster
	From, To []byte   // names of the nodes; at most MaxName bytes each, and not empty
}

// AppendNodeHello appends a NodeHello with its MAC, which covers the private data of both
// ends.
func AppendNodeHello(dst, secret, connect, accept []byte, m NodeHello) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, FullMACSize)...)
	dst = append(dst, m.Cluster[:]...)
	dst = le.AppendUint16(dst, len16(m.From))
	dst = le.AppendUint16(dst, len16(m.To))
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
	from, to := f.u16(), f.u16()
	m.From, m.To = f.take(uint64(from)), f.take(uint64(to))
	if from == 0 || to == 0 || from > MaxName || to > MaxName {
		f.fail(ErrRange)
	}
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
