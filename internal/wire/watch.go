package wire

// A Cursor is a place in the order of the store's published writes: the next
// event is the first one behind it. The zero Cursor means "from now".
//
//	┌incarnation┬version┐
//	└8          ┴8      ┘ 16
type Cursor struct {
	Incarnation uint64 // of the store that gave the cursor out
	Version     uint64 // of the last write that has been seen
}

// A Watch asks for the events behind a cursor of keys with a prefix. If there
// are none the server keeps the request, without delaying others, and answers
// when there are some or when the time is over, with no event then.
//
//	┌incarnation┬version┬wait┬max bytes┬prefix length┬values┬ 0 ┬group┬prefix┐
//	└8          ┴8      ┴4   ┴4        ┴2            ┴1     ┴1  ┴4    ┴…     ┘
type Watch struct {
	From       Cursor
	WaitMillis uint32 // how long to wait for the first event; the server bounds it
	MaxBytes   uint32 // of events; 0 means as many as fit
	Values     bool   // puts carry their values
	// Group is the group of shards whose events are asked for, where shards have replicas; 0: all events
	// of the server, where they have none. The cursors of a group are good at all its replicas.
	Group  uint32
	Prefix []byte
}

// AppendWatch appends a Watch.
func AppendWatch(dst []byte, id uint64, m Watch) []byte {
	start := len(dst)
	dst = begin(dst, TypeWatch, id)
	dst = appendCursor(dst, m.From)
	dst = le.AppendUint32(dst, m.WaitMillis)
	dst = le.AppendUint32(dst, m.MaxBytes)
	dst = le.AppendUint16(dst, len16(m.Prefix))
	dst = append(dst, bit(m.Values), 0)
	dst = le.AppendUint32(dst, m.Group)
	return finish(append(dst, m.Prefix...), start)
}

func appendCursor(dst []byte, c Cursor) []byte {
	return le.AppendUint64(le.AppendUint64(dst, c.Incarnation), c.Version)
}

func (f *fields) cursor() Cursor {
	return Cursor{Incarnation: f.u64(), Version: f.u64()}
}

// ParseWatch reads the body of a Watch.
func ParseWatch(body []byte) (Watch, error) {
	f := fields{b: body}
	m := Watch{From: f.cursor(), WaitMillis: f.u32(), MaxBytes: f.u32()}
	pl := f.u16()
	m.Values = f.flag()
	f.zero(1)
	m.Group = f.u32()
	m.Prefix = f.take(uint64(pl))
	if err := f.done(); err != nil {
		return Watch{}, err
	}
	return m, nil
}

// EventOp is what happened to a key.
type EventOp uint8

const (
	EventPut    EventOp = 1 // put, or incremented
	EventDelete EventOp = 2
	EventExpire EventOp = 3 // its time was over
	EventTouch  EventOp = 4 // new version and expiry, the value as it was
)

func (o EventOp) String() string {
	if o >= EventPut && o <= EventTouch {
		return [...]string{"put", "delete", "expire", "touch"}[o-EventPut]
	}
	return "EventOp(?)"
}

// An Event is one published change of one key.
//
//	┌version┬value length┬key length┬op┬flags┬key┬value┐
//	└8      ┴4           ┴2         ┴1 ┴1    ┴…  ┴…    ┘
type Event struct {
	Version uint64
	Op      EventOp
	// More says that the next event is of the same batch as this one: a batch
	// is whole with the first event without More. It may be in the next reply.
	More     bool
	Key      []byte
	ValueLen uint32 // bytes of the value of a put, present or not
	// Value is the value if HasValue; otherwise it was not asked for, or is too
	// large for the server to keep and must be got by its key.
	Value    []byte
	HasValue bool
}

const (
	eventFixed    = 16
	eventHasValue = 1 << 0
	eventMore     = 1 << 1
)

// A WatchReply holds the events behind a cursor, in the order of their
// publication, which is that of their versions.
//
//	┌incarnation┬version┬count┬skipped┬ 0 ┬events …┐
//	└8          ┴8      ┴4    ┴1      ┴3  ┴…       ┘
type WatchReply struct {
	Next  Cursor // to be asked from next
	Count uint32
	// Skipped says that writes between the cursor asked for and these events
	// may be missing: the server no longer has them, or is another incarnation.
	Skipped bool
	events  []byte
}

const watchFixed = 24

// WatchRoom returns how many bytes of events fit into a reply of replySize
// bytes; EventSize says what one takes.
func WatchRoom(replySize int) int { return replySize - HeaderSize - watchFixed }

// EventSize returns how many bytes an event takes; valueLen is 0 where the
// value is left out.
func EventSize(keyLen, valueLen int) int { return eventFixed + keyLen + valueLen }

// BeginWatchReply appends the start of a WatchReply; events are appended with
// AppendEvent and EndWatchReply closes it.
func BeginWatchReply(dst []byte, id uint64) []byte {
	dst = begin(dst, TypeWatch.Reply(), id)
	return append(dst, make([]byte, watchFixed)...)
}

// AppendEvent appends one event to a reply.
func AppendEvent(dst []byte, e Event) []byte {
	dst = le.AppendUint64(dst, e.Version)
	dst = le.AppendUint32(dst, e.ValueLen)
	dst = le.AppendUint16(dst, len16(e.Key))
	dst = append(dst, byte(e.Op), bit(e.HasValue)*eventHasValue|bit(e.More)*eventMore)
	dst = append(dst, e.Key...)
	if e.HasValue {
		dst = append(dst, e.Value...)
	}
	return dst
}

// EndWatchReply closes the reply that BeginWatchReply began at start.
func EndWatchReply(dst []byte, start int, count uint32, next Cursor, skipped bool) []byte {
	head := appendCursor(dst[start+HeaderSize:start+HeaderSize], next)
	head = le.AppendUint32(head, count)
	_ = append(head, bit(skipped))
	return finish(dst, start)
}

// ParseWatchReply reads the body of a WatchReply and checks every event, so
// that walking them needs no error.
func ParseWatchReply(body []byte) (WatchReply, error) {
	f := fields{b: body}
	m := WatchReply{Next: f.cursor(), Count: f.u32(), Skipped: f.flag()}
	f.zero(3)
	m.events = f.b
	for range m.Count {
		if f.event(); f.err != nil {
			return WatchReply{}, f.err
		}
	}
	if err := f.done(); err != nil {
		return WatchReply{}, err
	}
	return m, nil
}

func (f *fields) event() Event {
	e := Event{Version: f.u64(), ValueLen: f.u32()}
	kl := f.u16()
	e.Op = EventOp(f.u8())
	flags := f.u8()
	e.HasValue, e.More = flags&eventHasValue != 0, flags&eventMore != 0
	e.Key = f.take(uint64(kl))
	if e.HasValue {
		e.Value = f.take(uint64(e.ValueLen))
	}
	switch {
	case f.err != nil:
	case flags&^(eventHasValue|eventMore) != 0:
		f.fail(ErrReserved)
	case e.Op < EventPut || e.Op > EventTouch, e.Op != EventPut && (e.HasValue || e.ValueLen != 0):
		f.fail(ErrRange)
	}
	return e
}

// Events calls yield for every event, in order, until it returns false: a
// range-over-func iterator. The events are views of the body.
func (m *WatchReply) Events(yield func(Event) bool) {
	f := fields{b: m.events}
	for len(f.b) > 0 {
		if !yield(f.event()) {
			return
		}
	}
}
