package wire

// ClusterWhat says what a ClusterRequest asks for.
type ClusterWhat uint8

const (
	ClusterView    ClusterWhat = 0 // who is in the cluster: cluster.AppendView
	ClusterMap     ClusterWhat = 1 // the shard map in force: cluster.AppendMap; StatusNoMap if there is none
	ClusterPromise ClusterWhat = 2 // the map that this node has promised and not committed; StatusNoMap if none
	clusterWhats               = 3
)

// A ClusterRequest asks for a part of what a node knows of its cluster. A
// server that is alone answers StatusUnsupported.
//
//	┌what┬ 0 ┬offset┐
//	└1   ┴3  ┴4     ┘
type ClusterRequest struct {
	What   ClusterWhat
	Offset uint32
}

// AppendClusterRequest appends a ClusterRequest.
func AppendClusterRequest(dst []byte, id uint64, m ClusterRequest) []byte {
	start := len(dst)
	dst = begin(dst, TypeCluster, id)
	dst = append(dst, byte(m.What), 0, 0, 0)
	return finish(le.AppendUint32(dst, m.Offset), start)
}

// ParseClusterRequest reads the body of a ClusterRequest.
func ParseClusterRequest(body []byte) (ClusterRequest, error) {
	f := fields{b: body}
	m := ClusterRequest{What: ClusterWhat(f.u8())}
	f.zero(3)
	m.Offset = f.u32()
	if m.What >= clusterWhats {
		f.fail(ErrRange)
	}
	if err := f.done(); err != nil {
		return ClusterRequest{}, err
	}
	return m, nil
}

// A ClusterReply is a part of it. Parts with different versions do not belong
// together: begin again at 0.
//
//	┌total┬offset┬version┬bytes┐
//	└4    ┴4     ┴8      ┴…    ┘
type ClusterReply struct {
	Total, Offset uint32 // bytes of the whole; where this part begins
	Version       uint64 // of the view or the map
	Data          []byte
}

// ClusterFixed is what a ClusterReply takes besides its bytes, with the header.
const ClusterFixed = HeaderSize + 16

// AppendClusterReply appends the reply to a ClusterRequest.
func AppendClusterReply(dst []byte, id uint64, m ClusterReply) []byte {
	start := len(dst)
	dst = begin(dst, TypeCluster.Reply(), id)
	dst = le.AppendUint32(dst, m.Total)
	dst = le.AppendUint32(dst, m.Offset)
	dst = le.AppendUint64(dst, m.Version)
	return finish(append(dst, m.Data...), start)
}

// ParseClusterReply reads the body of the reply to a ClusterRequest.
func ParseClusterReply(body []byte) (ClusterReply, error) {
	f := fields{b: body}
	m := ClusterReply{Total: f.u32(), Offset: f.u32(), Version: f.u64()}
	m.Data = f.part(m.Total, m.Offset)
	if err := f.done(); err != nil {
		return ClusterReply{}, err
	}
	return m, nil
}

// part takes the rest as a part of something larger.
func (f *fields) part(total, offset uint32) []byte {
	if f.err != nil {
		return nil
	}
	data := f.rest()
	if uint64(offset)+uint64(len(data)) > uint64(total) {
		f.fail(ErrRange)
	}
	return data
}

// MapStep is a step towards a shard map that all nodes of a cluster have.
type MapStep uint8

const (
	MapPrepare MapStep = 1 // promise, durably, this map and no other
	MapCommit  MapStep = 2 // put it in force, durably and for ever
	MapAbandon MapStep = 3 // forget the promise
)

func (s MapStep) String() string {
	switch s {
	case MapPrepare:
		return "prepare"
	case MapCommit:
		return "commit"
	case MapAbandon:
		return "abandon"
	}
	return "MapStep(?)"
}

// A MapChange carries a shard map, or a part of one: a map may be larger than a
// message. Parts come in order over one session; the last one does the step.
// Needs the admin right.
//
//	┌step┬ 0 ┬total┬offset┬bytes┐
//	└1   ┴3  ┴4    ┴4     ┴…    ┘
type MapChange struct {
	Step          MapStep
	Total, Offset uint32 // bytes of the map; where this part begins
	Data          []byte // of cluster.AppendMap
}

// MapChangeRoom returns how many bytes of a map fit into a request of size
// bytes.
func MapChangeRoom(size int) int { return max(0, size-HeaderSize-12) }

// AppendMapChange appends a MapChange.
func AppendMapChange(dst []byte, id uint64, m MapChange) []byte {
	start := len(dst)
	dst = begin(dst, TypeMapChange, id)
	dst = append(dst, byte(m.Step), 0, 0, 0)
	dst = le.AppendUint32(dst, m.Total)
	dst = le.AppendUint32(dst, m.Offset)
	return finish(append(dst, m.Data...), start)
}

// ParseMapChange reads the body of a MapChange.
func ParseMapChange(body []byte) (MapChange, error) {
	f := fields{b: body}
	m := MapChange{Step: MapStep(f.u8())}
	f.zero(3)
	m.Total, m.Offset = f.u32(), f.u32()
	m.Data = f.part(m.Total, m.Offset)
	if m.Step < MapPrepare || m.Step > MapAbandon || len(m.Data) == 0 {
		f.fail(ErrRange)
	}
	if err := f.done(); err != nil {
		return MapChange{}, err
	}
	return m, nil
}

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

// A MapChangeReply says what the node has after a step, which it may have
// refused: then the text says why, and what to do. After a part that is not the
// last one nothing has changed.
//
//	┌state┬ 0 ┬text length┬ 0 ┬digest┬text┐
//	└1    ┴1  ┴2          ┴4  ┴8     ┴…   ┘
type MapChangeReply struct {
	State  MapState
	Digest uint64 // of the map that it has; 0 if none
	Text   []byte // empty if the step was done; at most MaxDetail bytes
}

// MapChangeReplySize is the most that a MapChangeReply takes, with the header.
const MapChangeReplySize = HeaderSize + 16 + MaxDetail

// AppendMapChangeReply appends the reply to a MapChange. The text is cut to
// MaxDetail bytes.
func AppendMapChangeReply(dst []byte, id uint64, m MapChangeReply) []byte {
	start := len(dst)
	text := cutText(string(m.Text))
	dst = begin(dst, TypeMapChange.Reply(), id)
	dst = append(dst, byte(m.State), 0)
	dst = le.AppendUint16(dst, uint16(len(text)))
	dst = append(dst, 0, 0, 0, 0)
	dst = le.AppendUint64(dst, m.Digest)
	return finish(append(dst, text...), start)
}

// ParseMapChangeReply reads the body of the reply to a MapChange. The text is a
// view of it: CleanText makes it safe to print.
func ParseMapChangeReply(body []byte) (MapChangeReply, error) {
	f := fields{b: body}
	m := MapChangeReply{State: MapState(f.u8())}
	f.zero(1)
	n := f.u16()
	f.zero(4)
	m.Digest = f.u64()
	m.Text = f.take(uint64(n))
	if m.State > MapCommitted || n > MaxDetail {
		f.fail(ErrRange)
	}
	if err := f.done(); err != nil {
		return MapChangeReply{}, err
	}
	return m, nil
}

// CleanText makes a peer's text safe to print: at most MaxDetail bytes and no
// control characters. It copies.
func CleanText(b []byte) string { return cleanText(b) }

// A Moved is the body of a reply with StatusMoved: the key is another node's,
// by the map that the server has.
//
//	┌map version┬map digest┬owner┐
//	└8          ┴8         ┴…    ┘
type Moved struct {
	MapVersion, MapDigest uint64
	Owner                 []byte // node id, at most MaxOwner bytes
}

// MaxOwner bounds the owner's id, in bytes.
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
