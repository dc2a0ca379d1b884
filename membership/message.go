package membership

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// These are our own messages, inside memberlist's: the first byte is the kind.
// Integers are little-endian, a text is one length byte and that many bytes.
//
//	goodbye  ┌2┬incarnation┬node┐    a node leaves on purpose
//	         └1┴8          ┴1+n ┘
//	advert   ┌8┬cluster.Table┐       the whole table of a node, of at most
//	         └1┴             ┘       cluster.MaxGossip regions
//
// Kinds 5 to 7 are in referee.go. Kinds 1, 3 and 4 were changes of tables, requests
// for tables and parts of tables, which earlier builds send: they are ignored.
type kind uint8

const (
	kindGoodbye kind = 2
	kindAdvert  kind = 8
)

// Bounds of messages.
const (
	maxPacket = 1000                 // of a broadcast, the kind included: it shares a packet of 1400 with others
	maxState  = 256 << 10            // of a push/pull without tables: 1024 digests are 32 KiB, 1024 lives at most 180
	maxPush   = 1 << 20              // of the tables in a push/pull
	maxJoin   = 4 << 20              // of those in one that a node joins by
	maxOne    = 1 + cluster.MaxTable // of any single message
)

var errMessage = errors.New("membership: malformed message")

type goodbye struct {
	node        string
	incarnation uint64
}

var le = binary.LittleEndian

func appendText(dst []byte, s string) []byte {
	return append(append(dst, byte(len(s))), s...)
}

func (m goodbye) append(dst []byte) []byte {
	dst = append(dst, byte(kindGoodbye))
	return appendText(le.AppendUint64(dst, m.incarnation), m.node)
}

// former is the kind of a message that only earlier builds send.
type former kind

// parseMessage reads a message: a *cluster.Table, goodbye, former, or one of
// parseClaim.
func parseMessage(b []byte) (any, error) {
	if len(b) == 0 || len(b) > maxOne {
		return nil, fmt.Errorf("%w: %d bytes", errMessage, len(b))
	}
	r := reader{b: b[1:]}
	switch kind(b[0]) {
	case kindAdvert:
		return cluster.ParseTable(b[1:])
	case kindGoodbye:
		m := goodbye{incarnation: r.u64(), node: r.id()}
		return m, r.done()
	case 1, 3, 4:
		return former(b[0]), nil
	}
	return parseClaim(kind(b[0]), &r)
}

// A digest is what a push/pull says of one table.
type digest struct {
	node                         uint64 // cluster.Hash of the id
	incarnation, version, digest uint64
}

const (
	stateFormat = 2 // 1: without lives
	digestSize  = 32
)

// A state is what we add to a push/pull.
//
//	┌format┬ 0 ┬digests┬tables┬lives┬from┐ per digest: ┌node hash┬incarnation┬version┬digest┐
//	└1     ┴1  ┴2      ┴2     ┴2    ┴1+n ┘             └8        ┴8          ┴8      ┴8     ┘
//	per table: ┌length┬cluster.Table┐
//	           └4     ┴             ┘ per life: a statement
type state struct {
	from    string
	digests []digest
	tables  [][]byte // encoded; alias the message
	lives   []*statement
}

func (s *state) append(dst []byte) []byte {
	dst = append(dst, stateFormat, 0)
	dst = le.AppendUint16(dst, uint16(len(s.digests)))
	dst = le.AppendUint16(dst, uint16(len(s.tables)))
	dst = le.AppendUint16(dst, uint16(len(s.lives)))
	dst = appendText(dst, s.from)
	for _, d := range s.digests {
		for _, v := range [...]uint64{d.node, d.incarnation, d.version, d.digest} {
			dst = le.AppendUint64(dst, v)
		}
	}
	for _, t := range s.tables {
		dst = le.AppendUint32(dst, uint32(len(t)))
		dst = append(dst, t...)
	}
	for _, l := range s.lives {
		dst = l.append(dst)
	}
	return dst
}

// parseState reads another node's part of a push/pull, hostile bytes.
func parseState(b []byte) (*state, error) {
	r := reader{b: b}
	format, zero := r.u8(), r.u8()
	digests, tables, lives := int(r.u16()), int(r.u16()), int(r.u16())
	s := &state{from: r.id()}
	if format != stateFormat || zero != 0 || digests > cluster.MaxNodes || tables > digests || lives > cluster.MaxNodes || len(r.b) < digests*digestSize {
		return nil, fmt.Errorf("%w: a push/pull state of format %d with %d digests and %d tables in %d bytes", errMessage, format, digests, tables, len(b))
	}
	for range digests {
		s.digests = append(s.digests, digest{r.u64(), r.u64(), r.u64(), r.u64()})
	}
	for i := 0; i < tables && !r.bad; i++ {
		s.tables = append(s.tables, r.take(int(r.u32())))
	}
	for i := 0; i < lives && !r.bad; i++ {
		l := r.statement()
		s.lives = append(s.lives, &l)
	}
	return s, r.done()
}

// A reader reads fields and records whether any was missing.
type reader struct {
	b   []byte
	bad bool
}

// take returns the next n bytes; after a fault it returns nil, and bad is set.
func (r *reader) take(n int) []byte {
	if n < 0 || len(r.b) < n {
		r.b, r.bad = nil, true
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) u8() uint8 {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u16() uint16 {
	if b := r.take(2); b != nil {
		return le.Uint16(b)
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.take(4); b != nil {
		return le.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.take(8); b != nil {
		return le.Uint64(b)
	}
	return 0
}

// id reads the name of a node.
func (r *reader) id() string {
	id := string(r.take(int(r.u8())))
	if !r.bad && cluster.CheckNodeID(id) != nil {
		r.bad = true
	}
	return id
}

func (r *reader) done() error {
	if r.bad || len(r.b) != 0 {
		return fmt.Errorf("%w: a field is missing, wrong, or too long", errMessage)
	}
	return nil
}
