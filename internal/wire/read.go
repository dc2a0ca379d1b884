package wire

// A Get asks for a value by SEND, where the one-sided way gave no answer.
//
//	┌key length┬ 0 ┬max inline┬key┐
//	└2         ┴2  ┴4         ┴…  ┘
type Get struct {
	// MaxInline is the largest value, in bytes, that the client accepts inside
	// the reply; a larger one (or one too large for a reply) is held for it.
	MaxInline uint32
	Key       []byte
}

// AppendGet appends a Get.
func AppendGet(dst []byte, id uint64, m Get) []byte {
	start := len(dst)
	dst = begin(dst, TypeGet, id)
	dst = le.AppendUint16(dst, len16(m.Key))
	dst = append(dst, 0, 0)
	dst = le.AppendUint32(dst, m.MaxInline)
	return finish(append(dst, m.Key...), start)
}

// ParseGet reads the body of a Get.
func ParseGet(body []byte) (Get, error) {
	f := fields{b: body}
	kl := f.u16()
	f.zero(2)
	m := Get{MaxInline: f.u32()}
	m.Key = f.take(uint64(kl))
	if err := f.done(); err != nil {
		return Get{}, err
	}
	return m, nil
}

// GetKind says how a GetReply carries the value.
type GetKind uint8

const (
	GetInline GetKind = 1 // the value is in the reply
	GetHeld   GetKind = 2 // the server holds an item for the client to READ
)

func (k GetKind) String() string {
	switch k {
	case GetInline:
		return "inline"
	case GetHeld:
		return "held"
	}
	return "GetKind(?)"
}

// A GetReply answers Get.
//
//	┌kind┬ 0 ┬value length┬version┬expiry┐ inline: ┌value┐
//	└1   ┴3  ┴4           ┴8      ┴8     ┘ 24      └…    ┘
//	                                       held:   ┌hold id┬place┬size┬key length┬ 0 ┐
//	                                               └8      ┴8    ┴4   ┴2         ┴2  ┘
type GetReply struct {
	Kind     GetKind
	ValueLen uint32 // bytes of the value, inline or held
	Version  uint64 // layout.Version
	Expiry   uint64 // microseconds since 1970, server time; 0: never
	Value    []byte // GetInline
	Hold     Hold   // GetHeld
}

// A Hold is an item that the server keeps unchanged for one caller: until
// Release, or a lease after the reply, or the end of the session.
type Hold struct {
	ID     uint64
	Place  uint64 // layout.Place of the item
	Size   uint32 // bytes of the whole item
	KeyLen uint16
}

// GetReplyHead is where the value begins in an encoded inline GetReply,
// counted from the first byte of the header.
const GetReplyHead = HeaderSize + 24

// InlineFits reports whether a value of n bytes fits into a reply of
// replySize bytes.
func InlineFits(replySize, n int) bool { return n <= replySize-GetReplyHead }

// AppendGetReply appends the reply to a Get, with m.Value or m.Hold as m.Kind
// says; ValueLen is taken from m.Value for an inline one.
func AppendGetReply(dst []byte, id uint64, m GetReply) []byte {
	if m.Kind == GetInline {
		start := len(dst)
		dst = append(dst, make([]byte, GetReplyHead)...)
		dst = append(dst, m.Value...)
		FinishGetInline(dst[start:], id, m.Version, m.Expiry)
		return dst
	}
	start := len(dst)
	dst = begin(dst, TypeGet.Reply(), id)
	dst = append(dst, byte(m.Kind), 0, 0, 0)
	dst = le.AppendUint32(dst, m.ValueLen)
	dst = le.AppendUint64(dst, m.Version)
	dst = le.AppendUint64(dst, m.Expiry)
	dst = le.AppendUint64(dst, m.Hold.ID)
	dst = le.AppendUint64(dst, m.Hold.Place)
	dst = le.AppendUint32(dst, m.Hold.Size)
	dst = le.AppendUint16(dst, m.Hold.KeyLen)
	return finish(append(dst, 0, 0), start)
}

// FinishGetInline writes header and fields of an inline GetReply in front of
// a value that already stands at msg[GetReplyHead:]: the store appends values
// where they will be sent from, without another copy.
func FinishGetInline(msg []byte, id uint64, version, expiry uint64) {
	n := uint32(len(msg) - GetReplyHead)
	head := begin(msg[:0], TypeGet.Reply(), id)
	head = append(head, byte(GetInline), 0, 0, 0)
	head = le.AppendUint32(head, n)
	head = le.AppendUint64(head, version)
	le.AppendUint64(head, expiry)
	finish(msg, 0)
}

// ParseGetReply reads the body of the reply to a Get.
func ParseGetReply(body []byte) (GetReply, error) {
	f := fields{b: body}
	m := GetReply{Kind: GetKind(f.u8())}
	f.zero(3)
	m.ValueLen = f.u32()
	m.Version, m.Expiry = f.u64(), f.u64()
	switch m.Kind {
	case GetInline:
		m.Value = f.take(uint64(m.ValueLen))
	case GetHeld:
		m.Hold = Hold{ID: f.u64(), Place: f.u64(), Size: f.u32(), KeyLen: f.u16()}
		f.zero(2)
	default:
		f.fail(ErrRange)
	}
	if err := f.done(); err != nil {
		return GetReply{}, err
	}
	return m, nil
}

// A Release gives a held place back before its time.
//
//	┌hold id┐
//	└8      ┘
type Release struct {
	ID uint64
}

// AppendRelease appends a Release.
func AppendRelease(dst []byte, id uint64, m Release) []byte {
	start := len(dst)
	dst = begin(dst, TypeRelease, id)
	return finish(le.AppendUint64(dst, m.ID), start)
}

// ParseRelease reads the body of a Release.
func ParseRelease(body []byte) (Release, error) {
	f := fields{b: body}
	m := Release{ID: f.u64()}
	return m, f.done()
}

// AppendReleaseReply appends the reply to a Release, which has no body.
func AppendReleaseReply(dst []byte, id uint64) []byte {
	return begin(dst, TypeRelease.Reply(), id)
}

// ParseReleaseReply checks that the body is empty.
func ParseReleaseReply(body []byte) error {
	f := fields{b: body}
	return f.done()
}

// A Key is the body of Exists: a key and nothing else.
//
//	┌key length┬ 0 ┬key┐
//	└2         ┴6  ┴…  ┘
type Key struct {
	Key []byte
}

// AppendExists appends an Exists.
func AppendExists(dst []byte, id uint64, m Key) []byte {
	start := len(dst)
	dst = begin(dst, TypeExists, id)
	dst = le.AppendUint16(dst, len16(m.Key))
	dst = append(dst, 0, 0, 0, 0, 0, 0)
	return finish(append(dst, m.Key...), start)
}

// ParseKey reads the body of an Exists.
func ParseKey(body []byte) (Key, error) {
	f := fields{b: body}
	kl := f.u16()
	f.zero(6)
	m := Key{Key: f.take(uint64(kl))}
	if err := f.done(); err != nil {
		return Key{}, err
	}
	return m, nil
}

// An ExistsReply answers Exists for a key that does; for another the status is
// StatusNotFound.
//
//	┌version┬expiry┬value length┬ 0 ┐
//	└8      ┴8     ┴4           ┴4  ┘
type ExistsReply struct {
	Version  uint64
	Expiry   uint64 // microseconds since 1970, server time; 0: never
	ValueLen uint32 // bytes
}

// AppendExistsReply appends the reply to an Exists.
func AppendExistsReply(dst []byte, id uint64, m ExistsReply) []byte {
	start := len(dst)
	dst = begin(dst, TypeExists.Reply(), id)
	dst = le.AppendUint64(dst, m.Version)
	dst = le.AppendUint64(dst, m.Expiry)
	dst = le.AppendUint32(dst, m.ValueLen)
	return finish(append(dst, 0, 0, 0, 0), start)
}

// ParseExistsReply reads the body of the reply to an Exists.
func ParseExistsReply(body []byte) (ExistsReply, error) {
	f := fields{b: body}
	m := ExistsReply{Version: f.u64(), Expiry: f.u64(), ValueLen: f.u32()}
	f.zero(4)
	return m, f.done()
}
