package wire

// MapState is what a node has of a shard map.
type MapState uint8

const (
	MapNone      MapState = 0 // nothing
	MapPromised  MapState = 1 // prepared: this map or none
	MapCommitted MapState = 2 // in force
)

func (s MapState) String() string {
	switch s {
	case MapNone:
		return "none"
	case MapPromised:
		return "prepared"
	case MapCommitted:
		return "committed"
	}
	return "MapState(?)"
}

// A MapAnswer is the answer to a step towards a shard map: what the node has after
// it. The node may have refused the step: then the text says why, and what to do.
//
//	┌state┬ 0 ┬text length┬ 0 ┬digest┬text┐
//	└1    ┴1  ┴2          ┴4  ┴8     ┴…   ┘
type MapAnswer struct {
	State  MapState
	Digest uint64 // of the map that it has; 0 if none
	Text   []byte // empty if the step was done; at most MaxDetail bytes
}

// AppendMapAnswer appends a MapAnswer. The text is cut to MaxDetail bytes.
func AppendMapAnswer(dst []byte, m MapAnswer) []byte {
	text := cutText(string(m.Text))
	dst = append(dst, byte(m.State), 0)
	dst = le.AppendUint16(dst, uint16(len(text)))
	dst = append(dst, 0, 0, 0, 0)
	dst = le.AppendUint64(dst, m.Digest)
	return append(dst, text...)
}

// ParseMapAnswer reads a MapAnswer. The text is a view of it: CleanText makes it
// safe to print.
func ParseMapAnswer(b []byte) (MapAnswer, error) {
	f := fields{b: b}
	m := MapAnswer{State: MapState(f.u8())}
	f.zero(1)
	n := f.u16()
	f.zero(4)
	m.Digest = f.u64()
	m.Text = f.take(uint64(n))
	if m.State > MapCommitted || n > MaxDetail {
		f.fail(ErrRange)
	}
	if err := f.done(); err != nil {
		return MapAnswer{}, err
	}
	return m, nil
}

// CleanText makes a peer's text safe to print: at most MaxDetail bytes and no
// control characters. It copies.
func CleanText(b []byte) string { return cleanText(b) }

// A Moved is the body of a reply with StatusMoved: another node owns the key,
// by the map that the server has.
//
//	┌map version┬map digest┬owner┐
//	└8          ┴8         ┴…    ┘
type Moved struct {
	MapVersion, MapDigest uint64
	Owner                 []byte // node id, at most MaxOwner bytes
}

// MaxOwner bounds the owner's id, and the leader's, in bytes.
const MaxOwner = 63

// MovedSize is the most that a reply with StatusMoved takes, with the header.
const MovedSize = HeaderSize + 16 + MaxOwner

// AppendMoved appends the reply to a request of type t for a key of another
// node.
func AppendMoved(dst []byte, t Type, id uint64, m Moved) []byte {
	start := len(dst)
	dst = begin(dst, t.Reply(), id)
	le.PutUint16(dst[start+offStatus:], uint16(StatusMoved))
	dst = le.AppendUint64(dst, m.MapVersion)
	dst = le.AppendUint64(dst, m.MapDigest)
	return finish(append(dst, m.Owner[:min(len(m.Owner), MaxOwner)]...), start)
}

// ParseMoved reads the body of a reply with StatusMoved.
func ParseMoved(body []byte) (Moved, error) {
	f := fields{b: body}
	m := Moved{MapVersion: f.u64(), MapDigest: f.u64()}
	if f.err == nil {
		m.Owner = f.rest()
	}
	if len(m.Owner) > MaxOwner || len(m.Owner) == 0 {
		f.fail(ErrRange)
	}
	if err := f.done(); err != nil {
		return Moved{}, err
	}
	return m, nil
}

// A NotLeader is the body of a reply with StatusNotLeader: the node has a replica of the group of the key, which does not
// lead now. The request has changed nothing. Who leads is a hint; a higher term is newer.
//
//	┌group┬ 0 ┬term┬leader┐
//	└4    ┴4  ┴8   ┴…     ┘
type NotLeader struct {
	Group  uint32
	Term   uint64 // the newest that the replica knows of; 0: of none
	Leader []byte // node id, at most MaxOwner bytes; empty: it is not known, or there is none
}

// NotLeaderSize is the most that a reply with StatusNotLeader takes, with the header.
const NotLeaderSize = HeaderSize + 16 + MaxOwner

// AppendNotLeader appends the reply to a request of type t for a key whose group another node leads.
func AppendNotLeader(dst []byte, t Type, id uint64, m NotLeader) []byte {
	start := len(dst)
	dst = begin(dst, t.Reply(), id)
	le.PutUint16(dst[start+offStatus:], uint16(StatusNotLeader))
	dst = le.AppendUint32(dst, m.Group)
	dst = le.AppendUint32(dst, 0)
	dst = le.AppendUint64(dst, m.Term)
	return finish(append(dst, m.Leader[:min(len(m.Leader), MaxOwner)]...), start)
}

// ParseNotLeader reads the body of a reply with StatusNotLeader.
func ParseNotLeader(body []byte) (NotLeader, error) {
	f := fields{b: body}
	m := NotLeader{Group: f.u32()}
	if f.u32() != 0 || m.Group == 0 {
		f.fail(ErrRange)
	}
	m.Term = f.u64()
	if f.err == nil {
		m.Leader = f.rest()
	}
	if len(m.Leader) > MaxOwner {
		f.fail(ErrRange)
	}
	if err := f.done(); err != nil {
		return NotLeader{}, err
	}
	return m, nil
}
