package wire

// Bounds of what a client reports with one message.
const (
	MaxTouches = 256
	MaxDamages = 8
)

// A Touch says that the client has read a key one-sidedly so many times; the
// server cannot see that by itself and keeps in memory what is read.
//
//	┌hash┬count┐
//	└8   ┴4    ┘
type Touch struct {
	Hash  uint64 // layout.Hash.Hi of the key
	Count uint32
}

const touchSize = 12

// Touches is a list of them as it stands in a message; nil is an empty one.
type Touches []byte

// Append appends one touch and returns the longer list.
func (t Touches) Append(v Touch) Touches {
	return le.AppendUint32(le.AppendUint64(t, v.Hash), v.Count)
}

// Len returns how many there are.
func (t Touches) Len() int { return len(t) / touchSize }

// At returns touch i, 0 ≤ i < Len.
func (t Touches) At(i int) Touch {
	b := t[i*touchSize:][:touchSize]
	return Touch{Hash: le.Uint64(b), Count: le.Uint32(b[8:])}
}

// touches reads a list of n.
func (f *fields) touches(n uint16) Touches {
	if n > MaxTouches {
		f.fail(ErrRange)
	}
	return f.take(uint64(n) * touchSize)
}

// count16 is the number of touches for its 16-bit field.
func (t Touches) count16() uint16 {
	if t.Len() > MaxTouches || len(t)%touchSize != 0 {
		panic("wire: too many touches for a message")
	}
	return uint16(t.Len())
}

// A Damage names an item in the server's memory whose checksum is wrong and
// stays wrong: the client has read it again and found the same bytes.
//
//	┌place┬version┬shard┬key length┬ 0 ┬key┐
//	└8    ┴8      ┴2    ┴2         ┴4  ┴…  ┘
type Damage struct {
	Place   uint64 // layout.Place
	Version uint64 // layout.Version that the slot showed; 0 if unknown
	Shard   uint16
	Key     []byte
}

// A Report carries what the server cannot see: reads by one-sided READ, and
// damage that they met.
//
//	┌touches┬damages┬ 0 ┬touches …┬damages …┐
//	└2      ┴2      ┴4  ┴…        ┴…        ┘
type Report struct {
	Touches Touches
	damages []byte
	count   int
}

// AppendReport appends a Report of the touches and damages given.
func AppendReport(dst []byte, id uint64, touches Touches, damages []Damage) []byte {
	if len(damages) > MaxDamages {
		panic("wire: too many damages for a message")
	}
	start := len(dst)
	dst = begin(dst, TypeReport, id)
	dst = le.AppendUint16(dst, touches.count16())
	dst = le.AppendUint16(dst, uint16(len(damages)))
	dst = append(dst, 0, 0, 0, 0)
	dst = append(dst, touches...)
	for _, d := range damages {
		dst = le.AppendUint64(dst, d.Place)
		dst = le.AppendUint64(dst, d.Version)
		dst = le.AppendUint16(dst, d.Shard)
		dst = le.AppendUint16(dst, len16(d.Key))
		dst = append(dst, 0, 0, 0, 0)
		dst = append(dst, d.Key...)
	}
	return finish(dst, start)
}

// ParseReport reads the body of a Report.
func ParseReport(body []byte) (Report, error) {
	f := fields{b: body}
	n, damages := f.u16(), f.u16()
	f.zero(4)
	m := Report{Touches: f.touches(n), count: int(damages)}
	if damages > MaxDamages {
		f.fail(ErrRange)
	}
	m.damages = f.b
	for range damages {
		if f.damage(); f.err != nil {
			return Report{}, f.err
		}
	}
	if err := f.done(); err != nil {
		return Report{}, err
	}
	return m, nil
}

func (f *fields) damage() Damage {
	m := Damage{Place: f.u64(), Version: f.u64(), Shard: f.u16()}
	kl := f.u16()
	f.zero(4)
	m.Key = f.take(uint64(kl))
	return m
}

// DamageCount returns how many damages the report holds.
func (m *Report) DamageCount() int { return m.count }

// Damages calls yield for every damage, in order, until it returns false: a
// range-over-func iterator. The keys are views of the body.
func (m *Report) Damages(yield func(Damage) bool) {
	f := fields{b: m.damages}
	for len(f.b) > 0 {
		if !yield(f.damage()) {
			return
		}
	}
}

// AppendReportReply appends the reply to a Report, which has no body.
func AppendReportReply(dst []byte, id uint64) []byte {
	return begin(dst, TypeReport.Reply(), id)
}

// ParseReportReply checks that the body is empty.
func ParseReportReply(body []byte) error {
	f := fields{b: body}
	return f.done()
}
