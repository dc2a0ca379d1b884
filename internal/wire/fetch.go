package wire

// WelcomeSendOnly: the tenant has no one-sided access. The region table is
// empty, a READ ends the session, and held places are asked for with Fetch.
const WelcomeSendOnly WelcomeFlags = 1 << 3

// WelcomeCache: the store is a cache, which may lose a key at any time, and so a part of a value. Only
// a client that has named FeatureParts is told.
const WelcomeCache WelcomeFlags = 1 << 4

// A Fetch asks for a part of a held item by SEND. It is what a READ is to a
// client that has the right to READ: the bytes are those of the item as it stands
// in memory, and the client verifies them as it verifies bytes that it has READ.
//
//	┌hold┬offset┬length┐
//	└8   ┴4     ┴4     ┘
type Fetch struct {
	Hold           uint64
	Offset, Length uint32 // bytes of the item; multiples of 8
}

// AppendFetch appends a Fetch.
func AppendFetch(dst []byte, id uint64, m Fetch) []byte {
	start := len(dst)
	dst = begin(dst, TypeFetch, id)
	dst = le.AppendUint64(dst, m.Hold)
	dst = le.AppendUint32(dst, m.Offset)
	return finish(le.AppendUint32(dst, m.Length), start)
}

// ParseFetch reads the body of a Fetch.
func ParseFetch(body []byte) (Fetch, error) {
	f := fields{b: body}
	m := Fetch{Hold: f.u64(), Offset: f.u32(), Length: f.u32()}
	if m.Offset%8 != 0 || m.Length%8 != 0 || m.Length == 0 {
		f.fail(ErrRange)
	}
	if err := f.done(); err != nil {
		return Fetch{}, err
	}
	return m, nil
}

// A FetchReply is as much of what was asked for as fits into a reply, at least 8
// bytes.
//
//	┌offset┬ 0 ┬bytes┐
//	└4     ┴4  ┴…    ┘
type FetchReply struct {
	Offset uint32
	Data   []byte
}

// FetchFixed is what a FetchReply takes besides its bytes, with the header.
const FetchFixed = HeaderSize + 8

// AppendFetchHead appends the reply to a Fetch up to its bytes, which the caller
// appends; FinishFetch closes it.
func AppendFetchHead(dst []byte, id uint64, offset uint32) []byte {
	dst = begin(dst, TypeFetch.Reply(), id)
	dst = le.AppendUint32(dst, offset)
	return append(dst, 0, 0, 0, 0)
}

// FinishFetch writes the length of a message that AppendFetchHead began at start.
func FinishFetch(dst []byte, start int) []byte { return finish(dst, start) }

// ParseFetchReply reads the body of the reply to a Fetch.
func ParseFetchReply(body []byte) (FetchReply, error) {
	f := fields{b: body}
	m := FetchReply{Offset: f.u32()}
	f.zero(4)
	m.Data = f.rest()
	if len(m.Data) == 0 || len(m.Data)%8 != 0 || m.Offset%8 != 0 {
		f.fail(ErrRange)
	}
	if err := f.done(); err != nil {
		return FetchReply{}, err
	}
	return m, nil
}
