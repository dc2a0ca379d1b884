package wire

// Cond is what a write demands of the key before it: the server judges it at
// the write's place in the order, once.
type Cond uint8

const (
	CondNone    Cond = 0 // written whatever there is
	CondAbsent  Cond = 1 // the key must not exist
	CondVersion Cond = 2 // the key must exist with Terms.IfVersion
	CondExists  Cond = 3 // the key must exist
	condCount        = 4
)

func (c Cond) String() string {
	if c < condCount {
		return [...]string{"none", "absent", "version", "exists"}[c]
	}
	return "Cond(?)"
}

// A RequestID names a write across retries, so that the server can tell a
// retry from a new write: it is applied once, whatever connection it comes on.
// Together with Hello's ClientID it is unique. Seq 0 means that the write has
// no name; Slot and AgeMillis are then zero.
//
//	┌seq┬age┬slot┐
//	└8  ┴4  ┴2   ┘ 14
type RequestID struct {
	// Slot is a place of the client's for one write at a time; a higher Seq in
	// the same slot says that the client has the answer to the lower one.
	Slot uint16
	Seq  uint64
	// AgeMillis is how long ago the client sent this Seq for the first time,
	// in milliseconds by its own clock.
	AgeMillis uint32
}

func (f *fields) requestID() RequestID {
	m := RequestID{Seq: f.u64(), AgeMillis: f.u32(), Slot: f.u16()}
	if m.Seq == 0 && m != (RequestID{}) {
		f.fail(ErrRange)
	}
	return m
}

func appendRequestID(dst []byte, m RequestID) []byte {
	dst = le.AppendUint64(dst, m.Seq)
	dst = le.AppendUint32(dst, m.AgeMillis)
	return le.AppendUint16(dst, m.Slot)
}

// Terms are what a write of one key carries besides key and value.
//
//	┌seq┬age┬slot┬if┬ 0 ┬if version┬ttl┐
//	└8  ┴4  ┴2   ┴1 ┴1  ┴8         ┴8  ┘ 32
type Terms struct {
	ID        RequestID
	If        Cond
	IfVersion uint64 // layout.Version, with CondVersion; else 0
	// TTLMicros is after how many microseconds the key expires, counted from
	// the server's time at the write's place in the order; 0 means never.
	TTLMicros uint64
}

// termsSize is the size of Terms on the wire.
const termsSize = 32

func (f *fields) terms() Terms {
	m := Terms{ID: f.requestID(), If: f.cond()}
	f.zero(1)
	m.IfVersion, m.TTLMicros = f.u64(), f.u64()
	f.judged(m.If, m.IfVersion)
	return m
}

func appendTerms(dst []byte, m Terms) []byte {
	dst = appendRequestID(dst, m.ID)
	dst = append(dst, byte(m.If), 0)
	dst = le.AppendUint64(dst, m.IfVersion)
	return le.AppendUint64(dst, m.TTLMicros)
}

func (f *fields) cond() Cond {
	c := Cond(f.u8())
	if c >= condCount {
		f.fail(ErrRange)
	}
	return c
}

// judged: a version stands only where one is compared.
func (f *fields) judged(c Cond, version uint64) {
	if c != CondVersion && version != 0 {
		f.fail(ErrRange)
	}
}
