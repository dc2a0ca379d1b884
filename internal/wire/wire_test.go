package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestMessages holds the bytes of every message against testdata/messages:
// the golden form of the protocol. Run with -rewrite after a change of format,
// which is a change of version.
func TestMessages(t *testing.T) {
	datadriven.RunTest(t, "testdata/messages", func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "encode":
			msg := encodeCase(t, d)
			h, err := ParseHeader(msg)
			if err != nil {
				t.Fatalf("%s: header does not parse: %v", d.Pos, err)
			}
			again, err := reencode(h, Body(msg))
			if err != nil || !bytes.Equal(again, msg) {
				t.Fatalf("%s: not canonical: %v\n%x\n%x", d.Pos, err, msg, again)
			}
			return h.String() + "\n" + hex.Dump(msg)
		case "private":
			return hex.Dump(privateCase(t, d))
		case "seal":
			return sealCase(t, d)
		case "parse":
			return parseCase(t, d)
		}
		t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
		return ""
	})
}

// arg helpers: a message in a test file is a list of name=value.
func str(d *datadriven.TestData, name string) []byte {
	for _, a := range d.CmdArgs {
		if a.Key == name && len(a.Vals) > 0 {
			return []byte(a.Vals[0])
		}
	}
	return nil
}

func num(t *testing.T, d *datadriven.TestData, name string) (v uint64) {
	if d.HasArg(name) {
		d.ScanArgs(t, name, &v)
	}
	return v
}

func micro(t *testing.T, d *datadriven.TestData, name string) time.Duration {
	return time.Duration(num(t, d, name)) * time.Microsecond
}

func encodeCase(t *testing.T, d *datadriven.TestData) []byte {
	n := func(name string) uint64 { return num(t, d, name) }
	s := func(name string) []byte { return str(d, name) }
	id := n("id")
	var msg []byte
	switch kind := d.CmdArgs[0].Key; kind {
	case "hello":
		m := Hello{ReplySize: uint32(n("reply-size")), Name: s("name")}
		copy(m.ClientID[:], s("client"))
		msg = AppendHello(nil, id, m)
		if secret := s("secret"); secret != nil {
			SignHello(msg, secret, s("connect"), s("accept"))
			if !VerifyHello(Body(msg), secret, s("connect"), s("accept")) {
				t.Fatal("own MAC does not verify")
			}
		}
	case "welcome":
		msg = AppendWelcome(nil, id, Welcome{
			Session: n("session"), Incarnation: n("incarnation"),
			Lease: micro(t, d, "lease"), Beat: micro(t, d, "beat"), Keepalive: micro(t, d, "keepalive"), Idle: micro(t, d, "idle"),
			ViewVersion: n("view"), ReclaimVersion: n("reclaim"), MaxValue: n("max-value"), MaxKey: uint32(n("max-key")),
			RequestSize: uint32(n("request-size")), ReplySize: uint32(n("reply-size")),
			Shards: uint32(n("shards")), Regions: uint32(n("regions")), ServerID: s("server"),
		})
	case "view":
		msg = AppendViewRequest(nil, id, ViewRequest{From: uint32(n("from"))})
	case "view-reply":
		msg = AppendViewReply(nil, id, ViewReply{
			Incarnation: n("incarnation"), Seed: n("seed"), Version: n("version"), ReclaimVersion: n("reclaim"),
			Shards: uint32(n("shards")), RootOffset: uint32(n("root")), ReclaimOffset: uint32(n("ring")),
			ReclaimEntries: uint32(n("entries")), Total: uint32(n("total")), From: uint32(n("from")),
		}, []Region{
			{ID: 0, Kind: 1, Base: 0, Length: 16 << 20, Addr: 0x7f0000000000, RKey: 0xaabbccdd},
			{ID: 1, Kind: 2, Base: 2 << 20, Length: 128 << 20, Addr: 0x7f0001000000, RKey: 0x11223344},
		})
	case "put":
		msg = AppendPut(nil, id, Put{Key: s("key"), Value: s("value"), Terms: termsCase(t, d)})
	case "put-large":
		msg = AppendPutLarge(nil, id, PutLarge{RKey: uint32(n("rkey")), ValueLen: n("len"), Checksum: n("sum"), Addr: n("addr"), Key: s("key"), Terms: termsCase(t, d)})
	case "write-reply":
		msg = AppendWriteReply(nil, Type(n("type")), id, WriteReply{
			Version: n("version"), Applied: n("applied") == 1, Existed: n("existed") == 1, Number: -int64(n("minus")),
		})
	case "delete":
		msg = AppendDelete(nil, id, Delete{Key: s("key"), Terms: termsCase(t, d)})
	case "get":
		msg = AppendGet(nil, id, Get{MaxInline: uint32(n("max-inline")), Key: s("key")})
	case "get-inline":
		msg = AppendGetReply(nil, id, GetReply{Kind: GetInline, Version: n("version"), Expiry: n("expiry"), Value: s("value")})
	case "get-held":
		msg = AppendGetReply(nil, id, GetReply{
			Kind: GetHeld, Version: n("version"), Expiry: n("expiry"), ValueLen: uint32(n("len")),
			Hold: Hold{ID: n("hold"), Place: n("place"), Size: uint32(n("size")), KeyLen: uint16(n("key-len"))},
		})
	case "release":
		msg = AppendRelease(nil, id, Release{ID: n("hold")})
	case "release-reply":
		msg = AppendReleaseReply(nil, id)
	case "exists":
		msg = AppendExists(nil, id, Key{Key: s("key")})
	case "exists-reply":
		msg = AppendExistsReply(nil, id, ExistsReply{Version: n("version"), Expiry: n("expiry"), ValueLen: uint32(n("len"))})
	case "scan":
		msg = AppendScan(nil, id, Scan{
			Limit: uint32(n("limit")), MaxBytes: uint32(n("max-bytes")), KeysOnly: n("keys-only") == 1,
			Prefix: s("prefix"), After: s("after"), From: n("from") == 1, End: s("end"), Group: uint32(n("group")),
		})
	case "scan-reply":
		msg = BeginScanReply(nil, id)
		msg = AppendScanEntry(msg, ScanEntry{Version: 9, ValueLen: 3, Key: []byte("ka"), Value: []byte("abc"), HasValue: true})
		msg = AppendScanEntry(msg, ScanEntry{Version: 10, Expiry: 1 << 50, ValueLen: 1 << 20, Key: []byte("kb")})
		msg = EndScanReply(msg, 0, 2, n("more") == 1, s("next"))
	case "ping":
		msg = AppendPing(nil, id, Ping{Echo: n("echo"), Return: uint16(n("return")), Touches: touchesCase(n("touches"))})
	case "ping-reply":
		msg = AppendPingReply(nil, id, PingReply{Echo: n("echo"), TimeMicros: n("time"), ViewVersion: n("view"), Touches: n("touches") == 1})
	case "goodbye":
		msg = AppendGoodbye(nil, Status(n("status")), string(s("text")))
	case "refusal":
		msg = AppendError(nil, Type(n("type")), id, Status(n("status")), string(s("text")))
	default:
		var ok bool
		if msg, ok = encodeNewer(t, d, kind, id); !ok {
			t.Fatalf("%s: unknown message %q", d.Pos, kind)
		}
	}
	SetCredits(msg, uint16(n("credits")))
	SetFlags(msg, Flags(n("flags")))
	return msg
}

func privateCase(t *testing.T, d *datadriven.TestData) []byte {
	nonce := Nonce{}
	copy(nonce[:], str(d, "nonce"))
	secret := str(d, "secret")
	switch kind := d.CmdArgs[0].Key; kind {
	case "connect":
		b := AppendConnect(nil, secret, Connect{Min: uint8(num(t, d, "min")), Max: uint8(num(t, d, "max")), Features: uint16(num(t, d, "features")), Tenant: TenantOf(string(str(d, "tenant"))), Nonce: nonce})
		if _, err := ParseConnect(b); err != nil || !VerifyConnect(secret, b) {
			t.Fatalf("%s: %v", d.Pos, err)
		}
		return b
	case "accept":
		connect := str(d, "connect")
		b := AppendAccept(nil, secret, connect, Accept{Version: 4, Nonce: nonce, Incarnation: num(t, d, "incarnation")})
		if _, err := ParseAccept(b); err != nil || !VerifyAccept(secret, connect, b) {
			t.Fatalf("%s: %v", d.Pos, err)
		}
		return b
	case "reject":
		b := AppendReject(nil, Reject{Min: 1, Max: 2, Status: Status(num(t, d, "status"))})
		if r, err := ParseReject(b); err != nil || r.Status != Status(num(t, d, "status")) {
			t.Fatalf("%s: %v", d.Pos, err)
		}
		return b
	}
	t.Fatalf("%s: unknown private data", d.Pos)
	return nil
}

// parseCase parses bytes given in hex and tells what is wrong with them.
func parseCase(t *testing.T, d *datadriven.TestData) string {
	msg, err := hex.DecodeString(strings.Join(strings.Fields(d.Input), ""))
	if err != nil {
		t.Fatalf("%s: %v", d.Pos, err)
	}
	h, err := ParseHeader(msg)
	if err != nil {
		return "header: " + err.Error()
	}
	if _, err := reencode(h, Body(msg)); err != nil {
		return h.Type.String() + ": " + err.Error()
	}
	return h.String()
}

// reencode parses a message with the parser of its type and encodes what came
// out of it: the same bytes, as the encoding is canonical.
func reencode(h Header, body []byte) ([]byte, error) {
	out, err := reencodeBody(h, body)
	if err != nil {
		return nil, err
	}
	SetVersion(out, h.Version)
	SetCredits(out, h.Credits)
	SetFlags(out, h.Flags)
	return out, nil
}

func reencodeBody(h Header, body []byte) ([]byte, error) {
	if h.Status != StatusOK || h.Type == TypeGoodbye {
		// A text: every byte string is one, as long as it is short.
		msg := begin(nil, h.Type, h.ID)
		le.PutUint16(msg[offStatus:], uint16(h.Status))
		return finish(append(msg, body...), 0), nil
	}
	switch h.Type {
	case TypeHello:
		m, err := ParseHello(body)
		return AppendHello(nil, h.ID, m), err
	case TypeHello.Reply():
		m, err := ParseWelcome(body)
		return AppendWelcome(nil, h.ID, m), err
	case TypeView:
		m, err := ParseViewRequest(body)
		return AppendViewRequest(nil, h.ID, m), err
	case TypeView.Reply():
		m, err := ParseViewReply(body)
		var all []Region
		for i := range m.Count() {
			all = append(all, m.Region(i))
		}
		return AppendViewReply(nil, h.ID, m, all), err
	case TypePut:
		m, err := ParsePut(body)
		return AppendPut(nil, h.ID, m), err
	case TypePutLarge:
		m, err := ParsePutLarge(body)
		return AppendPutLarge(nil, h.ID, m), err
	case TypePut.Reply(), TypePutLarge.Reply(), TypeDelete.Reply(), TypeUpdate.Reply(), TypeBatch.Reply(), TypeBatchLarge.Reply():
		m, err := ParseWriteReply(body)
		return AppendWriteReply(nil, h.Type.Request(), h.ID, m), err
	case TypeDelete:
		m, err := ParseDelete(body)
		return AppendDelete(nil, h.ID, m), err
	case TypeGet:
		m, err := ParseGet(body)
		return AppendGet(nil, h.ID, m), err
	case TypeGet.Reply():
		m, err := ParseGetReply(body)
		return AppendGetReply(nil, h.ID, m), err
	case TypeRelease:
		m, err := ParseRelease(body)
		return AppendRelease(nil, h.ID, m), err
	case TypeRelease.Reply():
		return AppendReleaseReply(nil, h.ID), ParseReleaseReply(body)
	case TypeExists:
		m, err := ParseKey(body)
		return AppendExists(nil, h.ID, m), err
	case TypeExists.Reply():
		m, err := ParseExistsReply(body)
		return AppendExistsReply(nil, h.ID, m), err
	case TypeScan:
		m, err := ParseScan(body)
		return AppendScan(nil, h.ID, m), err
	case TypeScan.Reply():
		m, err := ParseScanReply(body)
		msg := BeginScanReply(nil, h.ID)
		for e := range m.Entries {
			msg = AppendScanEntry(msg, e)
		}
		return EndScanReply(msg, 0, m.Count, m.More, m.Next), err
	case TypePing:
		m, err := ParsePing(body)
		return AppendPing(nil, h.ID, m), err
	case TypePing.Reply():
		m, err := ParsePingReply(body)
		return AppendPingReply(nil, h.ID, m), err
	}
	return reencodeNewer(h, body)
}

// allMessages has one message of each kind, for tests that go over all.
func allMessages() map[string][]byte {
	welcome := Welcome{
		Session: 3, Incarnation: 5, Lease: 2 * time.Second, Beat: 200 * time.Millisecond,
		Keepalive: 5 * time.Second, Idle: 20 * time.Second, MaxValue: 64 << 20, MaxKey: 4096,
		RequestSize: 16 << 10, ReplySize: 64 << 10, Shards: 32, Regions: 2, ServerID: []byte("node"),
	}
	scan := BeginScanReply(nil, 1)
	scan = AppendScanEntry(scan, ScanEntry{Version: 9, ValueLen: 3, Key: []byte("ka"), Value: []byte("abc"), HasValue: true})
	scan = AppendScanEntry(scan, ScanEntry{Version: 10, ValueLen: 99, Key: []byte("kb")})
	return withNewer(map[string][]byte{
		"hello":      AppendHello(nil, 1, Hello{ReplySize: 1 << 16, Name: []byte("c")}),
		"welcome":    AppendWelcome(nil, 1, welcome),
		"view":       AppendViewRequest(nil, 1, ViewRequest{From: 2}),
		"view-reply": AppendViewReply(nil, 1, ViewReply{Incarnation: 1, Shards: 4, Total: 3, From: 1}, []Region{{ID: 1, Kind: 2, Length: 1 << 20, RKey: 9}}),
		"put":        AppendPut(nil, 1, Put{Key: []byte("key"), Value: []byte("value")}),
		"put-large":  AppendPutLarge(nil, 1, PutLarge{RKey: 1, ValueLen: 1 << 20, Checksum: 7, Addr: 4096, Key: []byte("key")}),
		"put-reply":  AppendWriteReply(nil, TypePut, 1, WriteReply{Version: 8, Applied: true}),
		"delete":     AppendDelete(nil, 1, Delete{Key: []byte("key"), Terms: Terms{If: CondVersion, IfVersion: 7}}),
		"deleted":    AppendWriteReply(nil, TypeDelete, 1, WriteReply{Version: 4, Existed: true}),
		"get":        AppendGet(nil, 1, Get{MaxInline: 100, Key: []byte("key")}),
		"inline":     AppendGetReply(nil, 1, GetReply{Kind: GetInline, Version: 3, Value: []byte("value")}),
		"held":       AppendGetReply(nil, 1, GetReply{Kind: GetHeld, Version: 3, ValueLen: 5, Hold: Hold{ID: 1, Place: 2, Size: 3, KeyLen: 4}}),
		"release":    AppendRelease(nil, 1, Release{ID: 9}),
		"released":   AppendReleaseReply(nil, 1),
		"exists":     AppendExists(nil, 1, Key{Key: []byte("key")}),
		"existing":   AppendExistsReply(nil, 1, ExistsReply{Version: 3, ValueLen: 4}),
		"scan":       AppendScan(nil, 1, Scan{Limit: 10, KeysOnly: true, Prefix: []byte("p"), After: []byte("pa")}),
		"scan-group": AppendScan(nil, 1, Scan{Limit: 10, From: true, Group: 3, Prefix: []byte("p"), After: []byte("pa"), End: []byte("pb")}),
		"page":       EndScanReply(scan, 0, 2, true, []byte("kb")),
		"ping":       AppendPing(nil, 1, Ping{Echo: 3, Return: 4}),
		"pong":       AppendPingReply(nil, 1, PingReply{Echo: 3, TimeMicros: 4, ViewVersion: 5}),
		"goodbye":    AppendGoodbye(nil, StatusClosing, "bye"),
		"refusal":    AppendError(nil, TypeGet, 1, StatusNotFound, "nothing there"),
	})
}

// TestCutAnywhere cuts every message at every length and flips its reserved
// bytes: never a panic, and a shorter message never parses as a whole one.
func TestCutAnywhere(t *testing.T) {
	for name, msg := range allMessages() {
		for n := range len(msg) {
			if _, err := ParseHeader(msg[:n]); err == nil {
				t.Errorf("%s cut to %d of %d bytes: header accepted", name, n, len(msg))
			}
			if n < HeaderSize {
				continue
			}
			h, _ := ParseHeader(msg)
			if _, err := reencodeBody(h, msg[HeaderSize:n]); err == nil && h.Status == StatusOK && !isPart(h.Type) {
				t.Errorf("%s: body cut to %d of %d bytes accepted", name, n, len(msg))
			}
		}
		h, err := ParseHeader(msg)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		longer := append(bytes.Clone(msg), 0)
		if _, err := ParseHeader(longer); !errors.Is(err, ErrTrailing) {
			t.Errorf("%s with a byte behind it: %v", name, err)
		}
		if h.Status == StatusOK && !isPart(h.Type) {
			if _, err := reencodeBody(h, longer[HeaderSize:]); err == nil {
				t.Errorf("%s: body with a byte behind it accepted", name)
			}
		}
	}
}

// isPart: the type carries a part of something, as much as there is.
func isPart(t Type) bool {
	switch t {
	case TypeDocument, TypeDocument.Reply(), TypeFetch.Reply():
		return true
	}
	return false
}

func TestHeaderFaults(t *testing.T) {
	good := AppendPing(nil, 1, Ping{})
	for _, c := range []struct {
		name string
		at   int
		b    byte
		want error
	}{
		{"version 0", offVersion, 0, ErrVersion},
		{"version 1", offVersion, 1, ErrVersion},
		{"version 2", offVersion, 2, ErrVersion},
		{"version 3", offVersion, 3, ErrVersion},
		{"version 5", offVersion, 5, ErrVersion},
		{"type 0", offType, 0, ErrType},
		{"a type to come", offType, byte(MaxRequest) + 1, ErrType},
		{"a type that was", offType, 18, ErrType},
		{"a reply to Goodbye", offType, byte(TypeGoodbye | ReplyBit), ErrType},
		{"a reply of no type", offType, 0x80, ErrType},
		{"status in a request", offStatus, 1, ErrRange},
		{"unknown flag", offFlags, 2, ErrReserved},
		{"reserved", offReserved, 1, ErrReserved},
		{"length", offLength, 1, ErrTrailing},
		{"length of 4 GiB", offLength + 3, 0xff, ErrTrailing},
	} {
		msg := bytes.Clone(good)
		msg[c.at] = c.b
		if _, err := ParseHeader(msg); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// TestParseAllocatesNothing: the receive path of a server must not make work
// for the collector, least of all at a peer's wish.
func TestParseAllocatesNothing(t *testing.T) {
	for name, msg := range allMessages() {
		h, err := ParseHeader(msg)
		if err != nil || h.Status != StatusOK || h.Type == TypeGoodbye {
			continue
		}
		body := Body(msg)
		if n := testing.AllocsPerRun(100, func() { parseOnly(h.Type, body) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func parseOnly(t Type, body []byte) (err error) {
	switch t {
	case TypeHello:
		_, err = ParseHello(body)
	case TypeHello.Reply():
		_, err = ParseWelcome(body)
	case TypeView:
		_, err = ParseViewRequest(body)
	case TypeView.Reply():
		var m ViewReply
		if m, err = ParseViewReply(body); err == nil {
			for i := range m.Count() {
				m.Region(i)
			}
		}
	case TypePut:
		_, err = ParsePut(body)
	case TypePutLarge:
		_, err = ParsePutLarge(body)
	case TypePut.Reply(), TypePutLarge.Reply(), TypeDelete.Reply():
		_, err = ParseWriteReply(body)
	case TypeExists:
		_, err = ParseKey(body)
	case TypeDelete:
		_, err = ParseDelete(body)
	case TypeGet:
		_, err = ParseGet(body)
	case TypeGet.Reply():
		_, err = ParseGetReply(body)
	case TypeRelease:
		_, err = ParseRelease(body)
	case TypeRelease.Reply():
		err = ParseReleaseReply(body)
	case TypeExists.Reply():
		_, err = ParseExistsReply(body)
	case TypeScan:
		_, err = ParseScan(body)
	case TypeScan.Reply():
		var m ScanReply
		if m, err = ParseScanReply(body); err == nil {
			m.Entries(func(ScanEntry) bool { return true })
		}
	case TypePing:
		_, err = ParsePing(body)
	case TypePing.Reply():
		_, err = ParsePingReply(body)
	default:
		err = parseNewer(t, body)
	}
	return err
}

func TestGetInlineInPlace(t *testing.T) {
	// The store appends the value behind room for the head.
	msg := append(make([]byte, GetReplyHead), "the value"...)
	FinishGetInline(msg, 77, 5, 6)
	want := AppendGetReply(nil, 77, GetReply{Kind: GetInline, Version: 5, Expiry: 6, Value: []byte("the value")})
	if !bytes.Equal(msg, want) {
		t.Errorf("\n%x\n%x", msg, want)
	}
}

func TestFits(t *testing.T) {
	key := bytes.Repeat([]byte("k"), 100)
	for _, size := range []int{1000, 4096} {
		value := make([]byte, size)
		for len(value) > 0 && !PutFits(size, len(key), len(value)) {
			value = value[1:]
		}
		if n := len(AppendPut(nil, 1, Put{Key: key, Value: value})); n != size {
			t.Errorf("largest Put that fits into %d bytes has %d", size, n)
		}
		value = make([]byte, size)
		for !InlineFits(size, len(value)) {
			value = value[1:]
		}
		if n := len(AppendGetReply(nil, 1, GetReply{Kind: GetInline, Value: value})); n != size {
			t.Errorf("largest inline GetReply that fits into %d bytes has %d", size, n)
		}
		n := RegionsIn(size)
		if got := len(AppendViewReply(nil, 1, ViewReply{}, make([]Region, n))); got != ViewReplySize(n) {
			t.Errorf("ViewReplySize(%d) = %d, it has %d", n, ViewReplySize(n), got)
		}
		if len(AppendViewReply(nil, 1, ViewReply{}, make([]Region, n))) > size ||
			len(AppendViewReply(nil, 1, ViewReply{}, make([]Region, n+1))) <= size {
			t.Errorf("RegionsIn(%d) = %d is not the most that fit", size, n)
		}
	}
}
