package wire

// A Put carries its value in the message.
//
//	┌key length┬ 0 ┬value length┬terms┬key┬value┐
//	└2         ┴2  ┴4           ┴32   ┴…  ┴…    ┘
type Put struct {
	Key, Value []byte
	Terms
}

// putFixed is the size of the fields of a Put before the key.
const putFixed = 8 + termsSize

// PutFits reports whether a Put of these lengths fits into a message of
// requestSize bytes (Welcome.RequestSize). If not, use PutLarge.
func PutFits(requestSize, keyLen, valueLen int) bool {
	return keyLen+valueLen <= requestSize-HeaderSize-putFixed
}

// AppendPut appends a Put.
func AppendPut(dst []byte, id uint64, m Put) []byte {
	start := len(dst)
	dst = begin(dst, TypePut, id)
	dst = le.AppendUint16(dst, len16(m.Key))
	dst = append(dst, 0, 0)
	dst = le.AppendUint32(dst, len32(m.Value))
	dst = appendTerms(dst, m.Terms)
	dst = append(dst, m.Key...)
	return finish(append(dst, m.Value...), start)
}

// ParsePut reads the body of a Put.
func ParsePut(body []byte) (Put, error) {
	f := fields{b: body}
	kl := f.u16()
	f.zero(2)
	vl := f.u32()
	m := Put{Terms: f.terms()}
	m.Key, m.Value = f.take(uint64(kl)), f.take(uint64(vl))
	if err := f.done(); err != nil {
		return Put{}, err
	}
	return m, nil
}

// A PutLarge names memory of the client that holds the value. The server READs
// it, and refuses with StatusChecksum if Checksum does not fit the bytes that it
// has READ. The memory belongs to the put until the reply.
//
//	┌key length┬ 0 ┬rkey┬value length┬checksum┬address┬terms┬key┐
//	└2         ┴2  ┴4   ┴8           ┴8       ┴8      ┴32   ┴…  ┘
type PutLarge struct {
	RKey     uint32
	ValueLen uint64 // bytes
	Checksum uint64 // XXH3-64 of the value
	Addr     uint64
	Key      []byte
	Terms
}

// AppendPutLarge appends a PutLarge.
func AppendPutLarge(dst []byte, id uint64, m PutLarge) []byte {
	start := len(dst)
	dst = begin(dst, TypePutLarge, id)
	dst = le.AppendUint16(dst, len16(m.Key))
	dst = append(dst, 0, 0)
	dst = le.AppendUint32(dst, m.RKey)
	dst = le.AppendUint64(dst, m.ValueLen)
	dst = le.AppendUint64(dst, m.Checksum)
	dst = le.AppendUint64(dst, m.Addr)
	dst = appendTerms(dst, m.Terms)
	return finish(append(dst, m.Key...), start)
}

// ParsePutLarge reads the body of a PutLarge.
func ParsePutLarge(body []byte) (PutLarge, error) {
	f := fields{b: body}
	kl := f.u16()
	f.zero(2)
	m := PutLarge{RKey: f.u32(), ValueLen: f.u64(), Checksum: f.u64(), Addr: f.u64(), Terms: f.terms()}
	m.Key = f.take(uint64(kl))
	if err := f.done(); err != nil {
		return PutLarge{}, err
	}
	return m, nil
}

// A Delete removes a key. It has no TTL.
//
//	┌key length┬ 0 ┬terms┬key┐
//	└2         ┴6  ┴32   ┴…  ┘
type Delete struct {
	Key []byte
	Terms
}

// AppendDelete appends a Delete.
func AppendDelete(dst []byte, id uint64, m Delete) []byte {
	start := len(dst)
	dst = begin(dst, TypeDelete, id)
	dst = le.AppendUint16(dst, len16(m.Key))
	dst = append(dst, 0, 0, 0, 0, 0, 0)
	dst = appendTerms(dst, m.Terms)
	return finish(append(dst, m.Key...), start)
}

// ParseDelete reads the body of a Delete.
func ParseDelete(body []byte) (Delete, error) {
	f := fields{b: body}
	kl := f.u16()
	f.zero(6)
	m := Delete{Terms: f.terms()}
	m.Key = f.take(uint64(kl))
	if m.TTLMicros != 0 {
		f.fail(ErrRange)
	}
	if err := f.done(); err != nil {
		return Delete{}, err
	}
	return m, nil
}

// UpdateOp is what an Update does to the value that is there.
type UpdateOp uint8

const (
	// UpdateIncrement adds Delta to the value, a decimal int64 in ASCII; a key
	// that does not exist counts as 0. A new key gets TTLMicros, an old one
	// keeps its expiry.
	UpdateIncrement UpdateOp = 1
	// UpdateTouch gives the key the expiry of TTLMicros and leaves its value.
	UpdateTouch UpdateOp = 2
)

func (o UpdateOp) String() string {
	switch o {
	case UpdateIncrement:
		return "increment"
	case UpdateTouch:
		return "touch"
	}
	return "UpdateOp(?)"
}

// An Update changes the value of a key at its place in the order.
//
//	┌key length┬op┬ 0 ┬delta┬terms┬key┐
//	└2         ┴1 ┴5  ┴8    ┴32   ┴…  ┘
type Update struct {
	Op    UpdateOp
	Delta int64 // UpdateIncrement; else 0
	Key   []byte
	Terms
}

// AppendUpdate appends an Update.
func AppendUpdate(dst []byte, id uint64, m Update) []byte {
	start := len(dst)
	dst = begin(dst, TypeUpdate, id)
	dst = le.AppendUint16(dst, len16(m.Key))
	dst = append(dst, byte(m.Op), 0, 0, 0, 0, 0)
	dst = le.AppendUint64(dst, uint64(m.Delta))
	dst = appendTerms(dst, m.Terms)
	return finish(append(dst, m.Key...), start)
}

// ParseUpdate reads the body of an Update.
func ParseUpdate(body []byte) (Update, error) {
	f := fields{b: body}
	kl := f.u16()
	m := Update{Op: UpdateOp(f.u8())}
	f.zero(5)
	m.Delta = int64(f.u64())
	m.Terms = f.terms()
	m.Key = f.take(uint64(kl))
	if m.Op != UpdateIncrement && m.Op != UpdateTouch || m.Op == UpdateTouch && m.Delta != 0 {
		f.fail(ErrRange)
	}
	if err := f.done(); err != nil {
		return Update{}, err
	}
	return m, nil
}

// A WriteReply answers Put, PutLarge, Delete, Update, Batch and BatchLarge:
// the write is durable and visible, or its condition refused it.
//
//	┌version┬number┬applied┬existed┬ 0 ┐
//	└8      ┴8     ┴1      ┴1      ┴6  ┘
type WriteReply struct {
	// Version is the layout.Version of the write. Where Applied is false it is
	// the one that the key has, 0 if there is no such key; where a delete found
	// nothing it is 0.
	Version uint64
	// Applied is false if the condition did not hold; nothing was changed.
	Applied bool
	Existed bool // the key existed before the write
	// Number is the new value of an increment; of a refused batch it is the part
	// whose condition did not hold, counted from 0.
	Number int64
}

// AppendWriteReply appends the reply to a write of type t.
func AppendWriteReply(dst []byte, t Type, id uint64, m WriteReply) []byte {
	start := len(dst)
	dst = begin(dst, t.Reply(), id)
	dst = le.AppendUint64(dst, m.Version)
	dst = le.AppendUint64(dst, uint64(m.Number))
	return finish(append(dst, bit(m.Applied), bit(m.Existed), 0, 0, 0, 0, 0, 0), start)
}

// ParseWriteReply reads the body of the reply to a write.
func ParseWriteReply(body []byte) (WriteReply, error) {
	f := fields{b: body}
	m := WriteReply{Version: f.u64(), Number: int64(f.u64()), Applied: f.flag(), Existed: f.flag()}
	f.zero(6)
	return m, f.done()
}
