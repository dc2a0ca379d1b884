package wire

// A Scan asks for one page of keys in byte order.
//
//	┌limit┬max bytes┬prefix length┬after length┬end length┬keys only┬flags┬group ┬prefix┬after┬end┐
//	└4    ┴4        ┴2            ┴2           ┴2         ┴1        ┴1    ┴0, 4  ┴…     ┴…    ┴…  ┘
//
// Flags: bit 0 From, bit 1 a group is named, and then the field is there. So a Scan that names none has the
// bytes that it had before there were groups.
type Scan struct {
	Limit    uint32 // entries wanted; 0 means as many as fit
	MaxBytes uint32 // of keys and values; 0 means as many as fit
	KeysOnly bool
	Prefix   []byte
	After    []byte // only keys after this one; ScanReply.Next of the page before
	// From says that After itself belongs to the page: it is the first key of a
	// range.
	From bool
	End  []byte // only keys before this one; empty: no bound
	// Group is the group of shards whose keys are asked for, where shards have replicas; 0: all keys that
	// the server answers for, where they have none.
	Group uint32
}

// The flags of a Scan.
const (
	scanFrom    = 1 << 0
	scanOfGroup = 1 << 1
)

// AppendScan appends a Scan.
func AppendScan(dst []byte, id uint64, m Scan) []byte {
	start := len(dst)
	dst = begin(dst, TypeScan, id)
	dst = le.AppendUint32(dst, m.Limit)
	dst = le.AppendUint32(dst, m.MaxBytes)
	dst = le.AppendUint16(dst, len16(m.Prefix))
	dst = le.AppendUint16(dst, len16(m.After))
	dst = le.AppendUint16(dst, len16(m.End))
	flags := bit(m.From) * scanFrom
	if m.Group != 0 {
		flags |= scanOfGroup
	}
	dst = append(dst, bit(m.KeysOnly), flags)
	if m.Group != 0 {
		dst = le.AppendUint32(dst, m.Group)
	}
	dst = append(dst, m.Prefix...)
	dst = append(dst, m.After...)
	return finish(append(dst, m.End...), start)
}

// ParseScan reads the body of a Scan.
func ParseScan(body []byte) (Scan, error) {
	f := fields{b: body}
	m := Scan{Limit: f.u32(), MaxBytes: f.u32()}
	pl, al, el := f.u16(), f.u16(), f.u16()
	m.KeysOnly = f.flag()
	flags := f.u8()
	m.From = flags&scanFrom != 0
	if flags&scanOfGroup != 0 {
		m.Group = f.u32()
	}
	if flags&^(scanFrom|scanOfGroup) != 0 || flags&scanOfGroup != 0 && m.Group == 0 {
		f.fail(ErrRange)
	}
	m.Prefix, m.After, m.End = f.take(uint64(pl)), f.take(uint64(al)), f.take(uint64(el))
	if err := f.done(); err != nil {
		return Scan{}, err
	}
	return m, nil
}

// A ScanReply is one page.
//
//	┌count┬next length┬more┬ 0 ┬entries …┬next┐
//	└4    ┴2          ┴1   ┴1  ┴…        ┴…   ┘
type ScanReply struct {
	Count   uint32
	More    bool   // further keys exist; ask again with After = Next
	Next    []byte // empty unless More
	entries []byte
}

// A ScanEntry is one key of a page.
//
//	┌version┬expiry┬value length┬key length┬has value┬ 0 ┬key┬value┐
//	└8      ┴8     ┴4           ┴2         ┴1        ┴1  ┴…  ┴…    ┘
type ScanEntry struct {
	Version  uint64
	Expiry   uint64 // microseconds since 1970, server time; 0: never
	ValueLen uint32 // bytes of the value, present or not
	Key      []byte
	// Value is the value if HasValue; otherwise keys were asked for, or the
	// value is too large for a page and must be got by its key.
	Value    []byte
	HasValue bool
}

// scanFixed and entryFixed are the sizes before the variable parts.
const (
	scanFixed  = 8
	entryFixed = 24
)

// ScanRoom returns how many bytes of entries fit into a reply of replySize
// bytes whose Next has nextLen bytes; EntrySize says what one takes.
func ScanRoom(replySize, nextLen int) int {
	return replySize - HeaderSize - scanFixed - nextLen
}

// EntrySize returns how many bytes an entry takes in a page; valueLen is 0
// where the value is left out.
func EntrySize(keyLen, valueLen int) int { return entryFixed + keyLen + valueLen }

// BeginScanReply appends the start of a page; entries are appended with
// AppendScanEntry and EndScanReply closes it.
func BeginScanReply(dst []byte, id uint64) []byte {
	return append(begin(dst, TypeScan.Reply(), id), 0, 0, 0, 0, 0, 0, 0, 0)
}

// AppendScanEntry appends one entry to a page.
func AppendScanEntry(dst []byte, e ScanEntry) []byte {
	dst = le.AppendUint64(dst, e.Version)
	dst = le.AppendUint64(dst, e.Expiry)
	dst = le.AppendUint32(dst, e.ValueLen)
	dst = le.AppendUint16(dst, len16(e.Key))
	dst = append(dst, bit(e.HasValue), 0)
	dst = append(dst, e.Key...)
	if e.HasValue {
		dst = append(dst, e.Value...)
	}
	return dst
}

// EndScanReply closes the page that BeginScanReply began at start.
func EndScanReply(dst []byte, start int, count uint32, more bool, next []byte) []byte {
	at := dst[start+HeaderSize:]
	le.PutUint32(at, count)
	le.PutUint16(at[4:], len16(next))
	at[6] = bit(more)
	return finish(append(dst, next...), start)
}

// ParseScanReply reads the body of a page and checks every entry, so that
// walking them with Next needs no error.
func ParseScanReply(body []byte) (ScanReply, error) {
	f := fields{b: body}
	m := ScanReply{Count: f.u32()}
	nl := f.u16()
	m.More = f.flag()
	f.zero(1)
	all := f.b
	for range m.Count {
		if f.entry(); f.err != nil {
			return ScanReply{}, f.err
		}
	}
	m.entries = all[: len(all)-len(f.b) : len(all)-len(f.b)]
	m.Next = f.take(uint64(nl))
	if !m.More && nl != 0 {
		f.fail(ErrRange)
	}
	if err := f.done(); err != nil {
		return ScanReply{}, err
	}
	return m, nil
}

// entry reads one entry.
func (f *fields) entry() ScanEntry {
	e := ScanEntry{Version: f.u64(), Expiry: f.u64(), ValueLen: f.u32()}
	kl := f.u16()
	e.HasValue = f.flag()
	f.zero(1)
	e.Key = f.take(uint64(kl))
	if e.HasValue {
		e.Value = f.take(uint64(e.ValueLen))
	}
	return e
}

// Entries calls yield for every entry of the page, in order, until it returns
// false: a range-over-func iterator. The entries are views of the body.
func (m *ScanReply) Entries(yield func(ScanEntry) bool) {
	f := fields{b: m.entries}
	for len(f.b) > 0 {
		if !yield(f.entry()) {
			return
		}
	}
}
