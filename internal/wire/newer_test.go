package wire

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// What later versions brought: writes with terms, batches, watch, reports, fetches,
// documents.

func termsCase(t *testing.T, d *datadriven.TestData) Terms {
	return Terms{
		ID: requestIDCase(t, d), If: Cond(num(t, d, "if")), IfVersion: num(t, d, "if-version"), TTLMicros: num(t, d, "ttl"),
	}
}

func requestIDCase(t *testing.T, d *datadriven.TestData) RequestID {
	return RequestID{Slot: uint16(num(t, d, "slot")), Seq: num(t, d, "seq"), AgeMillis: uint32(num(t, d, "age"))}
}

// touchesCase makes n touches.
func touchesCase(n uint64) (out Touches) {
	for i := range n {
		out = out.Append(Touch{Hash: 0xaa00 + i, Count: uint32(i) + 1})
	}
	return out
}

func someParts() []byte {
	b := AppendBatchPart(nil, BatchPart{Key: []byte("ka"), Value: []byte("abc"), If: CondVersion, IfVersion: 9, TTLMicros: 1e6})
	b = AppendBatchPart(b, BatchPart{Key: []byte("kb"), Delete: true, If: CondExists})
	return AppendBatchPart(b, BatchPart{Key: []byte("kc")})
}

func someEvents(id uint64, next Cursor, skipped bool) []byte {
	msg := BeginWatchReply(nil, id)
	msg = AppendEvent(msg, Event{Version: 9, Op: EventPut, Key: []byte("ka"), ValueLen: 3, Value: []byte("abc"), HasValue: true, More: true})
	msg = AppendEvent(msg, Event{Version: 10, Op: EventDelete, Key: []byte("kb")})
	msg = AppendEvent(msg, Event{Version: 11, Op: EventPut, Key: []byte("kc"), ValueLen: 1 << 20})
	msg = AppendEvent(msg, Event{Version: 12, Op: EventExpire, Key: []byte("kd")})
	msg = AppendEvent(msg, Event{Version: 13, Op: EventTouch, Key: []byte("ke")})
	return EndWatchReply(msg, 0, 5, next, skipped)
}

func encodeNewer(t *testing.T, d *datadriven.TestData, kind string, id uint64) ([]byte, bool) {
	n := func(name string) uint64 { return num(t, d, name) }
	s := func(name string) []byte { return str(d, name) }
	cursor := Cursor{Incarnation: n("incarnation"), Version: n("version")}
	switch kind {
	case "pack":
		return packCase(t, d), true
	case "fetch":
		return AppendFetch(nil, id, Fetch{Hold: n("hold"), Offset: uint32(n("offset")), Length: uint32(n("length"))}), true
	case "fetch-reply":
		return FinishFetch(append(AppendFetchHead(nil, id, uint32(n("offset"))), s("data")...), 0), true
	case "increment":
		return AppendUpdate(nil, id, Update{Op: UpdateIncrement, Delta: -int64(n("minus")), Key: s("key"), Terms: termsCase(t, d)}), true
	case "touch":
		return AppendUpdate(nil, id, Update{Op: UpdateTouch, Key: s("key"), Terms: termsCase(t, d)}), true
	case "batch":
		return AppendBatch(nil, id, requestIDCase(t, d), 3, someParts()), true
	case "batch-large":
		return AppendBatchLarge(nil, id, BatchLarge{
			ID: requestIDCase(t, d), Count: uint16(n("count")), RKey: uint32(n("rkey")), Length: uint32(n("len")), Checksum: n("sum"), Addr: n("addr"),
		}), true
	case "watch":
		return AppendWatch(nil, id, Watch{
			From: cursor, WaitMillis: uint32(n("wait")), MaxBytes: uint32(n("max-bytes")), Values: n("values") == 1, Group: uint32(n("group")), Prefix: s("prefix"),
		}), true
	case "watch-reply":
		return someEvents(id, cursor, n("skipped") == 1), true
	case "report":
		return AppendReport(nil, id, touchesCase(n("touches")), []Damage{{Place: n("place"), Version: n("version"), Shard: uint16(n("shard")), Key: s("key")}}), true
	case "report-reply":
		return AppendReportReply(nil, id), true
	}
	return encodeCluster(t, d, kind, id)
}

func encodeCluster(t *testing.T, d *datadriven.TestData, kind string, id uint64) ([]byte, bool) {
	n := func(name string) uint64 { return num(t, d, name) }
	s := func(name string) []byte { return str(d, name) }
	total, offset := uint32(n("total")), uint32(n("offset"))
	switch kind {
	case "document":
		return AppendDocument(nil, id, Document{
			Kind: DocumentKind(n("kind")), Serial: uint32(n("serial")), Total: total, Offset: offset, From: uint32(n("from")), Argument: s("data"),
		}), true
	case "document-reply":
		return AppendDocumentReply(nil, id, DocumentReply{Total: total, Offset: offset, Serial: uint32(n("serial")), Wants: n("wants") == 1, Data: s("data")}), true
	case "moved":
		return AppendMoved(nil, Type(n("type")), id, Moved{MapVersion: n("version"), MapDigest: n("digest"), Owner: s("owner")}), true
	case "group-info":
		return AppendGroupInfoRequest(nil, id, GroupInfoRequest{Group: uint32(n("group"))}), true
	case "group-info-reply":
		return AppendGroupInfo(nil, id, GroupInfo{
			Group: uint32(n("group")), Cell: n("cell"), Term: n("term"), Config: n("config"),
		}, strings.Split(string(s("voters")), "+")), true
	case "not-leader":
		return AppendNotLeader(nil, Type(n("type")), id, NotLeader{Group: uint32(n("group")), Term: n("term"), Leader: s("leader")}), true
	}
	return nil, false
}

func reencodeNewer(h Header, body []byte) ([]byte, error) {
	switch h.Type {
	case TypePack, TypePack.Reply():
		return reencodePack(h, body)
	case TypeUpdate:
		m, err := ParseUpdate(body)
		return AppendUpdate(nil, h.ID, m), err
	case TypeBatch:
		m, err := ParseBatch(body)
		var parts []byte
		for p := range m.Parts.All {
			parts = AppendBatchPart(parts, p)
		}
		return AppendBatch(nil, h.ID, m.ID, uint16(m.Parts.Count()), parts), err
	case TypeBatchLarge:
		m, err := ParseBatchLarge(body)
		return AppendBatchLarge(nil, h.ID, m), err
	case TypeWatch:
		m, err := ParseWatch(body)
		return AppendWatch(nil, h.ID, m), err
	case TypeWatch.Reply():
		m, err := ParseWatchReply(body)
		msg := BeginWatchReply(nil, h.ID)
		for e := range m.Events {
			msg = AppendEvent(msg, e)
		}
		return EndWatchReply(msg, 0, m.Count, m.Next, m.Skipped), err
	case TypeReport:
		m, err := ParseReport(body)
		if err != nil {
			return nil, err
		}
		var touches Touches
		for i := range m.Touches.Len() {
			touches = touches.Append(m.Touches.At(i))
		}
		var all []Damage
		for d := range m.Damages {
			all = append(all, d)
		}
		return AppendReport(nil, h.ID, touches, all), nil
	case TypeReport.Reply():
		return AppendReportReply(nil, h.ID), ParseReportReply(body)
	case TypeFetch:
		m, err := ParseFetch(body)
		return AppendFetch(nil, h.ID, m), err
	case TypeFetch.Reply():
		m, err := ParseFetchReply(body)
		return FinishFetch(append(AppendFetchHead(nil, h.ID, m.Offset), m.Data...), 0), err
	case TypeDocument:
		m, err := ParseDocument(body)
		return AppendDocument(nil, h.ID, m), err
	case TypeDocument.Reply():
		m, err := ParseDocumentReply(body)
		return AppendDocumentReply(nil, h.ID, m), err
	case TypeGroupInfo:
		m, err := ParseGroupInfoRequest(body)
		return AppendGroupInfoRequest(nil, h.ID, m), err
	case TypeGroupInfo.Reply():
		m, err := ParseGroupInfo(body)
		var voters []string
		for node := range m.Voters {
			voters = append(voters, string(node))
		}
		return AppendGroupInfo(nil, h.ID, m, voters), err
	}
	return nil, fmt.Errorf("no parser for %v", h.Type)
}

func parseNewer(t Type, body []byte) (err error) {
	switch t {
	case TypePack, TypePack.Reply():
		_, err = ParsePack(Header{Version: VersionMax, Type: t}, body)
	case TypeUpdate:
		_, err = ParseUpdate(body)
	case TypeUpdate.Reply(), TypeBatch.Reply(), TypeBatchLarge.Reply():
		_, err = ParseWriteReply(body)
	case TypeBatch:
		var m Batch
		if m, err = ParseBatch(body); err == nil {
			m.Parts.All(func(BatchPart) bool { return true })
		}
	case TypeBatchLarge:
		_, err = ParseBatchLarge(body)
	case TypeWatch:
		_, err = ParseWatch(body)
	case TypeWatch.Reply():
		var m WatchReply
		if m, err = ParseWatchReply(body); err == nil {
			m.Events(func(Event) bool { return true })
		}
	case TypeReport:
		var m Report
		if m, err = ParseReport(body); err == nil {
			m.Damages(func(Damage) bool { return true })
		}
	case TypeReport.Reply():
		err = ParseReportReply(body)
	case TypeFetch:
		_, err = ParseFetch(body)
	case TypeFetch.Reply():
		_, err = ParseFetchReply(body)
	case TypeDocument:
		_, err = ParseDocument(body)
	case TypeDocument.Reply():
		_, err = ParseDocumentReply(body)
	case TypeGroupInfo:
		_, err = ParseGroupInfoRequest(body)
	case TypeGroupInfo.Reply():
		_, err = ParseGroupInfo(body)
	}
	return err
}

func withNewer(all map[string][]byte) map[string][]byte {
	terms := Terms{ID: RequestID{Slot: 3, Seq: 4, AgeMillis: 5}, If: CondVersion, IfVersion: 6, TTLMicros: 7}
	for name, msg := range map[string][]byte{
		"pack":         packOf(AppendPut(nil, 1, Put{Key: []byte("a")}), AppendGet(nil, 2, Get{Key: []byte("b")})),
		"pack-reply":   packOf(AppendWriteReply(nil, TypePut, 1, WriteReply{Version: 8, Applied: true}), AppendError(nil, TypeGet, 2, StatusNotFound, "no")),
		"fetch":        AppendFetch(nil, 1, Fetch{Hold: 9, Offset: 8, Length: 64}),
		"fetched":      FinishFetch(append(AppendFetchHead(nil, 1, 8), "8 bytes."...), 0),
		"put-terms":    AppendPut(nil, 1, Put{Key: []byte("key"), Value: []byte("value"), Terms: terms}),
		"increment":    AppendUpdate(nil, 1, Update{Op: UpdateIncrement, Delta: -3, Key: []byte("key"), Terms: terms}),
		"touch":        AppendUpdate(nil, 1, Update{Op: UpdateTouch, Key: []byte("key"), Terms: Terms{TTLMicros: 9}}),
		"updated":      AppendWriteReply(nil, TypeUpdate, 1, WriteReply{Version: 3, Applied: true, Existed: true, Number: -1}),
		"batch":        AppendBatch(nil, 1, terms.ID, 3, someParts()),
		"batched":      AppendWriteReply(nil, TypeBatch, 1, WriteReply{Version: 3, Applied: true}),
		"batch-large":  AppendBatchLarge(nil, 1, BatchLarge{ID: terms.ID, Count: 3, RKey: 1, Length: 1 << 20, Checksum: 7, Addr: 4096}),
		"batched-l":    AppendWriteReply(nil, TypeBatchLarge, 1, WriteReply{Version: 3}),
		"watch":        AppendWatch(nil, 1, Watch{From: Cursor{Incarnation: 1, Version: 2}, WaitMillis: 4, MaxBytes: 5, Values: true, Prefix: []byte("p")}),
		"watch-group":  AppendWatch(nil, 1, Watch{From: Cursor{Incarnation: 1}, Group: 1 << 31, Prefix: []byte("p")}),
		"events":       someEvents(1, Cursor{Incarnation: 1, Version: 10}, true),
		"no-events":    EndWatchReply(BeginWatchReply(nil, 1), 0, 0, Cursor{Incarnation: 1, Version: 10}, false),
		"report":       AppendReport(nil, 1, touchesCase(2), []Damage{{Place: 1, Version: 2, Shard: 3, Key: []byte("key")}, {Key: []byte("k")}}),
		"reported":     AppendReportReply(nil, 1),
		"document":     AppendDocument(nil, 1, Document{Kind: AdminRevoke, Total: 6, Argument: []byte("tenant")}),
		"read-on":      AppendDocument(nil, 1, Document{Kind: DocumentView, Serial: 1, From: 2}),
		"send-on":      AppendDocument(nil, 1, Document{Kind: MapCommit, Serial: 1, Total: 10, Offset: 8, Argument: []byte("ab")}),
		"part":         AppendDocumentReply(nil, 1, DocumentReply{Total: 10, Offset: 8, Serial: 3, Data: []byte("{}")}),
		"more-please":  AppendDocumentReply(nil, 1, DocumentReply{Serial: 3, Wants: true}),
		"moved":        AppendMoved(nil, TypeGet, 1, Moved{MapVersion: 1, MapDigest: 2, Owner: []byte("n1")}),
		"not-leader":   AppendNotLeader(nil, TypePut, 1, NotLeader{Group: 3, Term: 2, Leader: []byte("n1")}),
		"no-leader":    AppendNotLeader(nil, TypePut, 1, NotLeader{Group: 3}),
		"group":        AppendGroupInfoRequest(nil, 1, GroupInfoRequest{Group: 3}),
		"group-told":   AppendGroupInfo(nil, 1, GroupInfo{Group: 3, Cell: 4096, Term: 2, Config: 1}, []string{"n1", "n2", "n3"}),
		"ping-touches": AppendPing(nil, 1, Ping{Echo: 3, Return: 4, Touches: touchesCase(3)}),
	} {
		all[name] = msg
	}
	return all
}

// TestBounds: what a list may hold at most parses, one more does not, and what
// contradicts itself does not either.
func TestBounds(t *testing.T) {
	key := []byte("k")
	most := touchesCase(MaxTouches)
	ping := AppendPing(nil, 1, Ping{Touches: most})
	if m, err := ParsePing(Body(ping)); err != nil || m.Touches.Len() != MaxTouches || m.Touches.At(255).Count != 256 {
		t.Errorf("ping with %d touches: %v", MaxTouches, err)
	}
	body := append(bytes.Clone(Body(ping)), make([]byte, touchSize)...)
	le.PutUint16(body[10:], MaxTouches+1)
	if _, err := ParsePing(body); !errors.Is(err, ErrRange) {
		t.Errorf("one touch more: %v", err)
	}
	report := AppendReport(nil, 1, most, make([]Damage, MaxDamages))
	if m, err := ParseReport(Body(report)); err != nil || m.DamageCount() != MaxDamages || m.Touches.Len() != MaxTouches {
		t.Errorf("full report: %v", err)
	}
	body = append(bytes.Clone(Body(report)), make([]byte, 24)...)
	le.PutUint16(body[2:], MaxDamages+1)
	if _, err := ParseReport(body); !errors.Is(err, ErrRange) {
		t.Errorf("one damage more: %v", err)
	}
	for name, err := range map[string]error{
		"a name without a number":   second(ParsePut(Body(AppendPut(nil, 1, Put{Key: key, Terms: Terms{ID: RequestID{Slot: 1}}})))),
		"an unknown condition":      second(ParsePut(Body(AppendPut(nil, 1, Put{Key: key, Terms: Terms{If: condCount}})))),
		"a version for nothing":     second(ParsePut(Body(AppendPut(nil, 1, Put{Key: key, Terms: Terms{If: CondAbsent, IfVersion: 1}})))),
		"a delete with a TTL":       second(ParseDelete(Body(AppendDelete(nil, 1, Delete{Key: key, Terms: Terms{TTLMicros: 1}})))),
		"an unknown update":         second(ParseUpdate(Body(AppendUpdate(nil, 1, Update{Op: 3, Key: key})))),
		"a touch with a delta":      second(ParseUpdate(Body(AppendUpdate(nil, 1, Update{Op: UpdateTouch, Delta: 1, Key: key})))),
		"a deleted part with value": second(ParseBatchParts(AppendBatchPart(nil, BatchPart{Key: key, Value: key, Delete: true}), 1)),
		"a deleted part with a TTL": second(ParseBatchParts(AppendBatchPart(nil, BatchPart{Key: key, Delete: true, TTLMicros: 1}), 1)),
		"a part's condition":        second(ParseBatchParts(AppendBatchPart(nil, BatchPart{Key: key, If: condCount}), 1)),
		"an unknown event":          second(ParseWatchReply(Body(oneEvent(Event{Op: 5, Key: key})))),
		"a delete with a value":     second(ParseWatchReply(Body(oneEvent(Event{Op: EventDelete, Key: key, ValueLen: 1, Value: key, HasValue: true})))),
		"more than the whole":       replied(DocumentReply{Total: 1, Serial: 1, Data: []byte("ab")}),
		"a document without serial": replied(DocumentReply{Total: 1, Data: key}),
		"an answer too early":       replied(DocumentReply{Total: 1, Serial: 1, Wants: true, Data: key}),
		"a part too early":          replied(DocumentReply{Offset: 1, Serial: 1, Wants: true}),
		"an empty part":             asked(Document{Total: 1}),
		"an empty part further on":  asked(Document{Serial: 1, Total: 2, Offset: 1}),
		"more than the argument":    asked(Document{Serial: 1, Offset: 1, Total: 1, Argument: key}),
		"a beginning further on":    asked(Document{Offset: 1, Total: 2, Argument: key}),
		"an answer before all":      asked(Document{From: 1}),
		"the beginning again":       asked(Document{Serial: 1, Total: 1, Argument: key}),
		"both ways at once":         asked(Document{Serial: 1, From: 1, Offset: 1, Total: 2, Argument: key}),
		"an unknown state":          second(ParseMapAnswer(AppendMapAnswer(nil, MapAnswer{State: 3}))),
		"moved to nobody":           second(ParseMoved(Body(AppendMoved(nil, TypeGet, 1, Moved{})))),
		"moved to a long name":      second(ParseMoved(append(Body(AppendMoved(nil, TypeGet, 1, Moved{Owner: bytes.Repeat(key, MaxOwner)})), 'x'))),
		"an unknown flag of a scan": scanned(4),
		"a scan of group 0":         scanned(scanOfGroup, 0, 0, 0, 0),
		"no group":                  second(ParseGroupInfoRequest(Body(AppendGroupInfoRequest(nil, 1, GroupInfoRequest{})))),
		"told of no group":          told(GroupInfo{Config: 1}, []string{"a"}),
		"no voters":                 told(GroupInfo{Group: 1, Config: 1}, nil),
		"no configuration":          told(GroupInfo{Group: 1}, []string{"a"}),
		"a voter twice":             told(GroupInfo{Group: 1, Config: 1}, []string{"a", "b", "a"}),
		"a voter without a name":    told(GroupInfo{Group: 1, Config: 1}, []string{"a", ""}),
		"a voter with a long name":  told(GroupInfo{Group: 1, Config: 1}, []string{strings.Repeat("n", MaxOwner+1)}),
		"many voters":               told(GroupInfo{Group: 1, Config: 1}, strings.Split("abcdefghijklmnop", "")),
		"a leader of no group":      second(ParseNotLeader(Body(AppendNotLeader(nil, TypePut, 1, NotLeader{Term: 1})))),
		"a leader with a long name": second(ParseNotLeader(append(Body(AppendNotLeader(nil, TypePut, 1, NotLeader{Group: 1, Leader: bytes.Repeat(key, MaxOwner)})), 'x'))),
	} {
		if !errors.Is(err, ErrRange) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// scanned parses a scan whose last byte of the fixed fields is flags, and what stands behind it.
func scanned(flags byte, behind ...byte) error {
	body := Body(AppendScan(nil, 1, Scan{}))
	body[len(body)-1] = flags
	return second(ParseScan(append(body, behind...)))
}

func told(m GroupInfo, voters []string) error {
	return second(ParseGroupInfo(Body(AppendGroupInfo(nil, 1, m, voters))))
}

func asked(m Document) error { return second(ParseDocument(Body(AppendDocument(nil, 1, m)))) }

func replied(m DocumentReply) error {
	return second(ParseDocumentReply(Body(AppendDocumentReply(nil, 1, m))))
}

// TestMapAnswer: what a node says of a step comes through, its text cut to size.
func TestMapAnswer(t *testing.T) {
	long := bytes.Repeat([]byte("x"), MaxDetail+1)
	for _, m := range []MapAnswer{{}, {State: MapPromised, Digest: 1 << 63}, {State: MapCommitted, Digest: 1, Text: []byte("why")}, {Text: long}} {
		b := AppendMapAnswer(nil, m)
		got, err := ParseMapAnswer(b)
		if err != nil || got.State != m.State || got.Digest != m.Digest || string(got.Text) != string(m.Text[:min(len(m.Text), MaxDetail)]) {
			t.Errorf("%+v became %+v, %v", m, got, err)
		}
		for n := range b {
			if _, err := ParseMapAnswer(b[:n]); err == nil {
				t.Errorf("%d bytes of %d are taken", n, len(b))
			}
		}
		if _, err := ParseMapAnswer(append(b, 0)); !errors.Is(err, ErrTrailing) {
			t.Errorf("with a byte behind it: %v", err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func oneEvent(e Event) []byte {
	return EndWatchReply(AppendEvent(BeginWatchReply(nil, 1), e), 0, 1, Cursor{}, false)
}

// FuzzBatchParts: what a server READs from a client's memory.
func FuzzBatchParts(f *testing.F) {
	f.Add(uint16(3), someParts())
	f.Add(uint16(0), []byte{})
	f.Fuzz(func(t *testing.T, count uint16, b []byte) {
		p, err := ParseBatchParts(b, count)
		if err != nil {
			return
		}
		var again []byte
		n := 0
		for part := range p.All {
			again = AppendBatchPart(again, part)
			n++
		}
		if !bytes.Equal(again, b) || n != int(count) {
			t.Fatalf("not canonical: %d parts of %d\n%x\n%x", n, count, b, again)
		}
	})
}

func TestBatchFits(t *testing.T) {
	part := AppendBatchPart(nil, BatchPart{Key: []byte("k"), Value: make([]byte, 100)})
	if len(part) != BatchPartSize(1, 100) {
		t.Errorf("BatchPartSize = %d, it has %d", BatchPartSize(1, 100), len(part))
	}
	size := len(AppendBatch(nil, 1, RequestID{}, 1, part))
	if !BatchFits(size, len(part)) || BatchFits(size-1, len(part)) {
		t.Errorf("a batch of %d bytes: BatchFits is wrong about it", size)
	}
	e := oneEvent(Event{Op: EventPut, Key: []byte("k"), ValueLen: 5, Value: []byte("value"), HasValue: true})
	if got := len(e) - EventSize(1, 5); WatchRoom(len(e)) != EventSize(1, 5) {
		t.Errorf("an empty WatchReply has %d bytes, WatchRoom says %d", got, len(e)-WatchRoom(len(e)))
	}
}
