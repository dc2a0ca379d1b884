package tcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"net/netip"
	"reflect"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

func goodEndpoint() Endpoint {
	return Endpoint{
		QPN: 0x123456, PSN: 0xfedcba, GID: netip.MustParseAddr("10.0.0.1").As16(), LID: 7, MTU: ibv.MTU4096, Link: ibv.LinkEthernet,
		IRD: 16, ORD: 128, GIDType: ibv.GIDRoCEv2,
	}
}

func goodFrames() []frame {
	long := make([]byte, MaxPrivate)
	for i := range long {
		long[i] = byte(i)
	}
	return []frame{
		{kind: frameRequest, end: goodEndpoint(), private: []byte("hello")},
		{kind: frameRequest, end: goodEndpoint()},
		{kind: frameReply, end: goodEndpoint(), private: long},
		{kind: frameReject, private: []byte("no")},
		{kind: frameReject, private: long},
		{kind: frameReady},
		{kind: frameBye},
	}
}

func TestExchangeRoundTrip(t *testing.T) {
	var all []byte
	for _, f := range goodFrames() {
		all = f.append(all)
	}
	r := bytes.NewReader(all)
	for _, want := range goodFrames() {
		got, err := readFrame(r)
		if err != nil {
			t.Fatalf("%v: %v", want.kind, err)
		}
		if got.kind != want.kind || got.end != want.end || !bytes.Equal(got.private, want.private) {
			t.Errorf("%+v became %+v", want, got)
		}
	}
	if _, err := readFrame(r); err != io.EOF {
		t.Errorf("behind the last: %v", err)
	}
}

// The bytes are the protocol: they do not change without a new version.
func TestExchangeBytes(t *testing.T) {
	f := frame{kind: frameRequest, end: goodEndpoint(), private: []byte{0xaa}}
	got := f.append(nil)
	want := []byte("RKQP\x01\x01\x00\x21" + "\x00\x12\x34\x56" + "\x00\xfe\xdc\xba" +
		"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x0a\x00\x00\x01" + "\x00\x07" + "\x05\x02\x10\x80\x02\x00" + "\xaa")
	want = binary.BigEndian.AppendUint32(want, crc32.Checksum(want, crc32.MakeTable(crc32.Castagnoli)))
	if !bytes.Equal(got, want) {
		t.Errorf("a request is\n%x, want\n%x", got, want)
	}
}

// reseal gives changed bytes a checksum that fits.
func reseal(b []byte) []byte {
	b = b[:len(b)-frameSum]
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func TestExchangeRefuses(t *testing.T) {
	request := func(change func(e *Endpoint)) []byte {
		f := frame{kind: frameRequest, end: goodEndpoint()}
		change(&f.end)
		return f.append(nil)
	}
	raw := func(change func(b []byte) []byte) []byte {
		f := frame{kind: frameRequest, end: goodEndpoint(), private: []byte("x")}
		return change(f.append(nil))
	}
	at := func(i int, v byte) []byte {
		return raw(func(b []byte) []byte { b[i] = v; return reseal(b) })
	}
	for _, c := range []struct {
		name string
		b    []byte
	}{
		{"magic", at(0, 'X')},
		{"version", at(4, 2)},
		{"kind 0", at(offKind, 0)},
		{"kind 99", at(offKind, 99)},
		{"a ready with a body", at(offKind, byte(frameReady))},
		{"checksum", raw(func(b []byte) []byte { b[20] ^= 1; return b })},
		{"length beyond the limit", at(offLength, 0xff)},
		{"too short for a request", raw(func(b []byte) []byte {
			b = b[:frameHeader+endpointSize-1+frameSum]
			binary.BigEndian.PutUint16(b[offLength:], endpointSize-1)
			return reseal(b)
		})},
		{"reserved byte", at(frameHeader+31, 1)},
		{"QPN 0", request(func(e *Endpoint) { e.QPN = 0 })},
		{"QPN of 25 bits", request(func(e *Endpoint) { e.QPN = 1 << 24 })},
		{"PSN of 25 bits", request(func(e *Endpoint) { e.PSN = 1 << 24 })},
		{"MTU 0", request(func(e *Endpoint) { e.MTU = 0 })},
		{"MTU 6", request(func(e *Endpoint) { e.MTU = 6 })},
		{"link 0", request(func(e *Endpoint) { e.Link = 0 })},
		{"no GID", request(func(e *Endpoint) { e.GID = ibv.GID{} })},
		{"no LID", request(func(e *Endpoint) { e.Link, e.GID, e.LID = ibv.LinkInfiniBand, ibv.GID{}, 0 })},
		{"GID type", request(func(e *Endpoint) { e.GIDType = 3 })},
	} {
		if f, err := readFrame(bytes.NewReader(c.b)); !errors.Is(err, rdma.ErrProtocol) {
			t.Errorf("%s: %+v, %v; want ErrProtocol", c.name, f, err)
		}
	}
	whole := raw(func(b []byte) []byte { return b })
	for n := range whole {
		if _, err := readFrame(bytes.NewReader(whole[:n])); err != io.EOF && err != io.ErrUnexpectedEOF {
			t.Errorf("%d bytes of %d: %v", n, len(whole), err)
		}
	}
}

func TestJudge(t *testing.T) {
	mine := goodEndpoint()
	theirs := mine
	if err := mine.judge(&theirs); err != nil {
		t.Error(err)
	}
	theirs.GIDType = ibv.GIDRoCEv1
	if err := mine.judge(&theirs); !errors.Is(err, rdma.ErrProtocol) {
		t.Errorf("RoCE v1 against v2: %v", err)
	}
	theirs = mine
	theirs.Link = ibv.LinkInfiniBand
	if err := mine.judge(&theirs); !errors.Is(err, rdma.ErrProtocol) {
		t.Errorf("InfiniBand against Ethernet: %v", err)
	}
}

func TestRandomPSN(t *testing.T) {
	seen := map[uint32]bool{}
	for range 64 {
		p := randomPSN()
		if p > maxQPN {
			t.Fatalf("PSN %#x has more than 24 bits", p)
		}
		seen[p] = true
	}
	if len(seen) < 32 {
		t.Errorf("%d different PSNs of 64", len(seen))
	}
}

// FuzzExchange: no bytes of a peer do more than fail, and what is taken means
// the same when it is written again.
func FuzzExchange(f *testing.F) {
	for _, g := range goodFrames() {
		f.Add(g.append(nil), false)
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), false)
	f.Add(make([]byte, 300), true)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if seal && len(b) >= frameHeader+frameSum { // so that the fuzzer gets past the checksum
			binary.BigEndian.PutUint32(b, exchangeMagic)
			b[4] = exchangeVersion
			binary.BigEndian.PutUint16(b[offLength:], uint16(len(b)-frameHeader-frameSum))
			b = reseal(b)
		}
		r := bytes.NewReader(b)
		got, err := readFrame(r)
		if err != nil {
			return
		}
		used := b[:len(b)-r.Len()]
		again := got.append(nil)
		if !bytes.Equal(again, used) {
			t.Errorf("%x was read as %+v, which is written %x", used, got, again)
		}
		second, err := readFrame(bytes.NewReader(again))
		if err != nil || !reflect.DeepEqual(got, second) {
			t.Errorf("%+v, then %+v, %v", got, second, err)
		}
	})
}
