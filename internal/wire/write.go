package wire

// A Put carries its value in the message.
//
//	┌key length┬ 0 ┬value length┬key┬value┐
//	└2         ┴2  ┴4           ┴…  ┴…    ┘
type Put struct {
	Key, Value []byte
}

// putFixed is the size of the fields of a Put before the key.
const putFixed = 8

// PutFits reports whether a Put of these lengths fits into a message of
// requestSize bytes (Welcome.RequestSize); if not, PutLarge is the way.
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
	dst = append(dst, m.Key...)
	return finish(append(dst, m.Value...), start)
}

// ParsePut reads the body of a Put.
func ParsePut(body []byte) (Put, error) {
	f := fields{b: body}
	kl := f.u16()
	f.zero(2)
	vl := f.u32()
	m := Put{Key: f.take(uint64(kl)), Value: f.take(uint64(vl))}
	if err := f.done(); err != nil {
		return Put{}, err
	}
	return m, nil
}

// A PutLarge names memory of the client that holds the value. The server
// READs it, and refuses with StatusChecksum when what it has read is not what
// Checksum was computed over: the memory belongs to the put until the reply.
//
//	┌key length┬ 0 ┬rkey┬value length┬checksum┬address┬key┐
//	└2         ┴2  ┴4   ┴8           ┴8       ┴8      ┴…  ┘
type PutLarge struct {
	RKey     uint32
	ValueLen uint64 // bytes
	Checksum uint64 // XXH3-64 of the value
	Addr     uint64
	Key      []byte
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
	return finish(append(dst, m.Key...), start)
}

// ParsePutLarge reads the body of a PutLarge.
func ParsePutLarge(body []byte) (PutLarge, error) {
	f := fields{b: body}
	kl := f.u16()
	f.zero(2)
	m := PutLarge{RKey: f.u32(), ValueLen: f.u64(), Checksum: f.u64(), Addr: f.u64()}
	m.Key = f.take(uint64(kl))
	if err := f.done(); err != nil {
		return PutLarge{}, err
	}
	return m, nil
}

// A PutReply answers Put and PutLarge: the write is durable and visible.
//
//	┌version┐
//	└8      ┘
type PutReply struct {
	Version uint64 // layout.Version that the key now has
}

// AppendPutReply appends the reply to a Put or PutLarge, told by t.
func AppendPutReply(dst []byte, t Type, id uint64, m PutReply) []byte {
	start := len(dst)
	dst = begin(dst, t.Reply(), id)
	return finish(le.AppendUint64(dst, m.Version), start)
}

// ParsePutReply reads the body of the reply to a Put or PutLarge.
func ParsePutReply(body []byte) (PutReply, error) {
	f := fields{b: body}
	m := PutReply{Version: f.u64()}
	return m, f.done()
}

// A Key is the body of Delete and Exists: a key and nothing else.
//
//	┌key length┬ 0 ┬key┐
//	└2         ┴6  ┴…  ┘
type Key struct {
	Key []byte
}

func appendKey(dst []byte, t Type, id uint64, m Key) []byte {
	start := len(dst)
	dst = begin(dst, t, id)
	dst = le.AppendUint16(dst, len16(m.Key))
	dst = append(dst, 0, 0, 0, 0, 0, 0)
	return finish(append(dst, m.Key...), start)
}

// AppendDelete appends a Delete.
func AppendDelete(dst []byte, id uint64, m Key) []byte { return appendKey(dst, TypeDelete, id, m) }

// AppendExists appends an Exists.
func AppendExists(dst []byte, id uint64, m Key) []byte { return appendKey(dst, TypeExists, id, m) }

// ParseKey reads the body of a Delete or an Exists.
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

// A DeleteReply answers Delete. Deleting a key that does not exist is no
// error: Existed is false.
//
//	┌version┬existed┬ 0 ┐
//	└8      ┴1      ┴7  ┘
type DeleteReply struct {
	Version uint64 // of the delete; 0 if nothing was there
	Existed bool
}

// AppendDeleteReply appends the reply to a Delete.
func AppendDeleteReply(dst []byte, id uint64, m DeleteReply) []byte {
	start := len(dst)
	dst = begin(dst, TypeDelete.Reply(), id)
	dst = le.AppendUint64(dst, m.Version)
	return finish(append(dst, bit(m.Existed), 0, 0, 0, 0, 0, 0, 0), start)
}

// ParseDeleteReply reads the body of the reply to a Delete.
func ParseDeleteReply(body []byte) (DeleteReply, error) {
	f := fields{b: body}
	m := DeleteReply{Version: f.u64(), Existed: f.flag()}
	f.zero(7)
	return m, f.done()
}
