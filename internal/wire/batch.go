package wire

// A batch is written whole or not at all, for readers too. Its keys are of one
// shard and none comes twice. The parts travel in the message (Batch), or the
// server READs the same bytes from the client's memory (BatchLarge).

// Bounds of a batch.
const (
	MaxBatchParts = 4096
	MaxBatchBytes = 4 << 20 // of its encoded parts
)

// A BatchPart is one key of a batch, put or deleted.
//
//	┌key length┬delete┬if┬value length┬if version┬ttl┬key┬value┐
//	└2         ┴1     ┴1 ┴4           ┴8         ┴8  ┴…  ┴…    ┘
type BatchPart struct {
	Key, Value []byte
	Delete     bool // Value is empty and TTLMicros 0
	If         Cond
	IfVersion  uint64
	TTLMicros  uint64
}

const batchPartFixed = 24

// BatchPartSize returns how many bytes a part takes.
func BatchPartSize(keyLen, valueLen int) int { return batchPartFixed + keyLen + valueLen }

// AppendBatchPart appends one part to the encoded parts of a batch.
func AppendBatchPart(dst []byte, m BatchPart) []byte {
	dst = le.AppendUint16(dst, len16(m.Key))
	dst = append(dst, bit(m.Delete), byte(m.If))
	dst = le.AppendUint32(dst, len32(m.Value))
	dst = le.AppendUint64(dst, m.IfVersion)
	dst = le.AppendUint64(dst, m.TTLMicros)
	dst = append(dst, m.Key...)
	return append(dst, m.Value...)
}

// BatchParts is the encoded parts of a batch; ParseBatchParts has checked them.
type BatchParts struct {
	b     []byte
	count int
}

// Count returns how many parts there are.
func (p *BatchParts) Count() int { return p.count }

// Bytes returns the encoded parts.
func (p *BatchParts) Bytes() []byte { return p.b }

// All calls yield for every part, in order, until it returns false: a
// range-over-func iterator. The parts are views of what was parsed.
func (p *BatchParts) All(yield func(BatchPart) bool) {
	f := fields{b: p.b}
	for len(f.b) > 0 {
		if !yield(f.batchPart()) {
			return
		}
	}
}

// batchPart reads one part and refuses fields that contradict each other.
func (f *fields) batchPart() BatchPart {
	kl := f.u16()
	m := BatchPart{Delete: f.flag(), If: f.cond()}
	vl := f.u32()
	m.IfVersion, m.TTLMicros = f.u64(), f.u64()
	f.judged(m.If, m.IfVersion)
	m.Key, m.Value = f.take(uint64(kl)), f.take(uint64(vl))
	if m.Delete && (vl != 0 || m.TTLMicros != 0) {
		f.fail(ErrRange)
	}
	return m
}

// ParseBatchParts reads count encoded parts and checks every one, so that
// walking them needs no error. The server bounds how many there may be.
func ParseBatchParts(b []byte, count uint16) (BatchParts, error) {
	f := fields{b: b}
	p := BatchParts{b: b, count: int(count)}
	for range count {
		if f.batchPart(); f.err != nil {
			break
		}
	}
	if err := f.done(); err != nil {
		return BatchParts{}, err
	}
	return p, nil
}

// A Batch carries its parts in the message.
//
//	┌seq┬age┬slot┬count┬parts …┐
//	└8  ┴4  ┴2   ┴2    ┴…      ┘
type Batch struct {
	ID    RequestID
	Parts BatchParts
}

const batchFixed = 16

// BatchFits reports whether a Batch of so many bytes of encoded parts fits into
// a message of requestSize bytes. If not, use BatchLarge.
func BatchFits(requestSize, parts int) bool { return parts <= requestSize-HeaderSize-batchFixed }

// AppendBatch appends a Batch of count encoded parts.
func AppendBatch(dst []byte, id uint64, rid RequestID, count uint16, parts []byte) []byte {
	start := len(dst)
	dst = begin(dst, TypeBatch, id)
	dst = le.AppendUint16(appendRequestID(dst, rid), count)
	return finish(append(dst, parts...), start)
}

// ParseBatch reads the body of a Batch.
func ParseBatch(body []byte) (Batch, error) {
	f := fields{b: body}
	m := Batch{ID: f.requestID()}
	count := f.u16()
	parts, err := ParseBatchParts(f.rest(), count)
	if err != nil {
		f.fail(err)
	}
	m.Parts = parts
	if err := f.done(); err != nil {
		return Batch{}, err
	}
	return m, nil
}

// A BatchLarge names memory of the client that holds the encoded parts, as a
// PutLarge does for a value.
//
//	┌seq┬age┬slot┬count┬rkey┬length┬checksum┬address┐
//	└8  ┴4  ┴2   ┴2    ┴4   ┴4     ┴8       ┴8      ┘
type BatchLarge struct {
	ID       RequestID
	Count    uint16 // parts
	RKey     uint32
	Length   uint32 // bytes of the encoded parts
	Checksum uint64 // XXH3-64 of them
	Addr     uint64
}

// AppendBatchLarge appends a BatchLarge.
func AppendBatchLarge(dst []byte, id uint64, m BatchLarge) []byte {
	start := len(dst)
	dst = begin(dst, TypeBatchLarge, id)
	dst = le.AppendUint16(appendRequestID(dst, m.ID), m.Count)
	dst = le.AppendUint32(dst, m.RKey)
	dst = le.AppendUint32(dst, m.Length)
	dst = le.AppendUint64(dst, m.Checksum)
	return finish(le.AppendUint64(dst, m.Addr), start)
}

// ParseBatchLarge reads the body of a BatchLarge.
func ParseBatchLarge(body []byte) (BatchLarge, error) {
	f := fields{b: body}
	m := BatchLarge{
		ID: f.requestID(), Count: f.u16(), RKey: f.u32(), Length: f.u32(), Checksum: f.u64(), Addr: f.u64(),
	}
	if err := f.done(); err != nil {
		return BatchLarge{}, err
	}
	return m, nil
}
