package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"testing"
)

var (
	nodeSecret = []byte("secret")
	nodeHello  = NodeHello{Cluster: [16]byte{7}, Store: [16]byte{8}, From: []byte("n1"), To: []byte("node-2"), Openings: []Opening{{3, 9}, {2, 5}}}
)

// opening is what two nodes say to each other.
func opening() (connect, accept, hello []byte) {
	connect = AppendNodeConnect(nil, nodeSecret, NodeConnect{Lane: LaneBulk, Nonce: Nonce{1, 2, 3}})
	accept = AppendNodeAccept(nil, nodeSecret, connect, 1, Nonce{4, 5, 6})
	return connect, accept, AppendNodeHello(nil, nodeSecret, connect, accept, nodeHello)
}

// TestNodeOpening: the bytes are those of the format, and each flipped bit is found.
func TestNodeOpening(t *testing.T) {
	connect, accept, hello := opening()
	for _, c := range []struct {
		name string
		got  []byte
		want string
	}{
		{"connect", connect, "524b4e310102000001020300000000000000000000000000" + hex.EncodeToString(connect[24:])},
		{"accept", accept, "524b4e310100000004050600000000000000000000000000" + hex.EncodeToString(accept[24:])},
		{"hello", hello[FullMACSize:], "07000000000000000000000000000000" + "08000000000000000000000000000000" + "0200" + "0600" + "0200" + "0000" +
			"0300000000000000" + "0900000000000000" + "0200000000000000" + "0500000000000000" + "6e31" + "6e6f64652d32"},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s is %s, expected %s", c.name, got, c.want)
		}
	}
	if len(connect) != NodeConnectSize || len(accept) != NodeAcceptSize || NodeConnectSize > 56 {
		t.Errorf("sizes %d and %d", len(connect), len(accept))
	}
	c, err := ParseNodeConnect(connect)
	if err != nil || c.Lane != LaneBulk || c.Nonce != (Nonce{1, 2, 3}) || !IsNode(connect) {
		t.Errorf("connect: %+v %v", c, err)
	}
	h, err := ParseNodeHello(hello)
	if err != nil || h.Cluster != nodeHello.Cluster || h.Store != nodeHello.Store || !slices.Equal(h.Openings, nodeHello.Openings) || string(h.From) != "n1" || string(h.To) != "node-2" {
		t.Errorf("hello: %+v %v", h, err)
	}
	if !VerifyNodeConnect(nodeSecret, connect) || !VerifyNodeAccept(nodeSecret, connect, accept) || !VerifyNodeHello(hello, nodeSecret, connect, accept) {
		t.Fatal("what was signed does not verify")
	}
	other := []byte("secret\x00")
	if VerifyNodeConnect(other, connect) || VerifyNodeAccept(other, connect, accept) || VerifyNodeHello(hello, other, connect, accept) {
		t.Error("another secret verifies")
	}
	for bit := range 8 * len(connect) {
		b := bytes.Clone(connect)
		b[bit/8] ^= 1 << (bit % 8)
		if VerifyNodeConnect(nodeSecret, b) || VerifyNodeAccept(nodeSecret, b, accept) || VerifyNodeHello(hello, nodeSecret, b, accept) {
			t.Errorf("bit %d of connect", bit)
		}
	}
	for bit := range 8 * len(accept) {
		b := bytes.Clone(accept)
		b[bit/8] ^= 1 << (bit % 8)
		if VerifyNodeAccept(nodeSecret, connect, b) || VerifyNodeHello(hello, nodeSecret, connect, b) {
			t.Errorf("bit %d of accept", bit)
		}
	}
	for bit := range 8 * len(hello) {
		b := bytes.Clone(hello)
		b[bit/8] ^= 1 << (bit % 8)
		if VerifyNodeHello(b, nodeSecret, connect, accept) {
			t.Errorf("bit %d of hello", bit)
		}
	}
	for n := range len(hello) {
		if _, err := ParseNodeHello(hello[:n]); err == nil {
			t.Errorf("a hello of %d bytes is taken", n)
		}
	}
	if VerifyNodeHello(hello[:3], nodeSecret, connect, accept) || VerifyNodeAccept(nodeSecret, connect, nil) {
		t.Error("what is too short verifies")
	}
}

// TestNodeVersions: what ends say of their versions, and which one they come to. A request or a rejection of version 1 alone has the bytes that programs know which know nothing else.
func TestNodeVersions(t *testing.T) {
	one, two, three, late := NodeVersions{1, 1}, NodeVersions{1, 2}, NodeVersions{2, 3}, NodeVersions{3, 4}
	for _, c := range []struct {
		a, b NodeVersions
		want uint8 // 0: none
	}{{one, one, 1}, {one, two, 1}, {two, two, 2}, {two, three, 2}, {three, late, 3}, {one, three, 0}, {two, late, 0}} {
		for _, x := range [][2]NodeVersions{{c.a, c.b}, {c.b, c.a}} {
			if v, ok := x[0].Common(x[1]); ok != (c.want != 0) || ok && v != c.want {
				t.Errorf("%v and %v: %d, %v, want %d", x[0], x[1], v, ok, c.want)
			}
		}
	}
	for v, want := range map[NodeVersions]string{{}: "01020000", one: "01020000", two: "02020100", three: "03020200"} {
		b := AppendNodeConnect(nil, nodeSecret, NodeConnect{Versions: v, Lane: LaneBulk})
		if v.Max == 0 {
			v = one
		}
		if c, err := ParseNodeConnect(b); err != nil || c.Versions != v || hex.EncodeToString(b[4:8]) != want {
			t.Errorf("%v: %x, read as %v, %v", v, b[4:8], c.Versions, err)
		}
		for version := range uint8(5) {
			accept := AppendNodeAccept(nil, nodeSecret, b, version, Nonce{})
			if ok := VerifyNodeAccept(nodeSecret, b, accept); ok != (version >= v.Min && version <= v.Max) {
				t.Errorf("%v is accepted in version %d: %v", v, version, ok)
			}
		}
		reject := AppendNodeReject(nil, b, two, NodeRefused)
		told := two
		if v == one {
			told = one
		}
		if why, speaks, err := ParseNodeReject(append(reject, make([]byte, 100)...)); why != NodeRefused || speaks != told || err != nil {
			t.Errorf("%v is rejected with %x: %v, %v, %v", v, reject, why, speaks, err)
		}
	}
}

// TestBadNodeConnects: private data that no node sends.
func TestBadNodeConnects(t *testing.T) {
	connect, _, _ := opening()
	for _, c := range []struct {
		name  string
		spoil func([]byte) []byte
		err   error
	}{
		{"empty", func([]byte) []byte { return nil }, ErrShort},
		{"a client's", func(b []byte) []byte { b[2] = 'V'; return b }, ErrMagic},
		{"of no version", func(b []byte) []byte { b[4] = 0; return b }, ErrVersion},
		{"of version 2, with no lowest one", func(b []byte) []byte { b[4] = 2; return b }, ErrRange},
		{"with a lowest version above its own", func(b []byte) []byte { b[4], b[6] = 2, 3; return b }, ErrRange},
		{"with a reserved byte", func(b []byte) []byte { b[4], b[6], b[7] = 2, 1, 1; return b }, ErrReserved},
		{"of no lane", func(b []byte) []byte { b[5] = 0; return b }, ErrRange},
		{"of an unknown lane", func(b []byte) []byte { b[5] = 5; return b }, ErrRange},
		{"with a reserved bit", func(b []byte) []byte { b[6] = 1; return b }, ErrReserved},
		{"short", func(b []byte) []byte { return b[:len(b)-1] }, ErrShort},
		{"long", func(b []byte) []byte { return append(b, 0) }, ErrTrailing},
	} {
		if _, err := ParseNodeConnect(c.spoil(bytes.Clone(connect))); !errors.Is(err, c.err) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if LaneUrgent.String() != "urgent" || LaneState.String() != "state" || LaneAsk.String() != "ask" || Lane(9).String() != "unknown" {
		t.Error("names of lanes")
	}
}

// TestBadNodeHellos: how many openings there may be, and which.
func TestBadNodeHellos(t *testing.T) {
	connect, accept, _ := opening()
	for name, list := range map[string][]Opening{
		"none": nil, "too many": slices.Repeat([]Opening{{1, 1}}, MaxOpenings+1), "of no incarnation": {{3, 9}, {2, 0}},
	} {
		h := nodeHello
		h.Openings = list
		if _, err := ParseNodeHello(AppendNodeHello(nil, nodeSecret, connect, accept, h)); !errors.Is(err, ErrRange) {
			t.Errorf("%s: %v", name, err)
		}
	}
	most := nodeHello
	most.Openings = slices.Repeat([]Opening{{1, 1}}, MaxOpenings)
	if h, err := ParseNodeHello(AppendNodeHello(nil, nodeSecret, connect, accept, most)); err != nil || len(h.Openings) != MaxOpenings {
		t.Errorf("the most: %d, %v", len(h.Openings), err)
	}
}

// TestNodeRefusal: a refusal says what was seen, and is that of this way alone.
func TestNodeRefusal(t *testing.T) {
	connect, accept, _ := opening()
	want := Opening{7, 1<<63 + 5}
	b := AppendNodeRefusal(nil, nodeSecret, connect, accept, want)
	if got, ok := ParseNodeRefusal(b, nodeSecret, connect, accept); !ok || got != want || len(b) != NodeRefusalSize {
		t.Errorf("%+v, %v", got, ok)
	}
	for bit := range 8 * len(b) {
		other := bytes.Clone(b)
		other[bit/8] ^= 1 << (bit % 8)
		if _, ok := ParseNodeRefusal(other, nodeSecret, connect, accept); ok {
			t.Errorf("bit %d", bit)
		}
	}
	for n := range len(b) {
		if _, ok := ParseNodeRefusal(b[:n], nodeSecret, connect, accept); ok {
			t.Errorf("%d bytes", n)
		}
	}
	another := AppendNodeAccept(nil, nodeSecret, connect, 1, Nonce{9})
	if _, ok := ParseNodeRefusal(b, nodeSecret, connect, another); ok {
		t.Error("it is taken on another way")
	}
	if _, ok := ParseNodeRefusal(AppendNodeRefusal(nil, nodeSecret, connect, accept, Opening{7, 0}), nodeSecret, connect, accept); ok {
		t.Error("a refusal for no opening")
	}
}

// TestNodeReject: a rejection says why, padded or not; one without a reason is none of this version.
func TestNodeReject(t *testing.T) {
	busy := AppendNodeReject(nil, nil, NodeVersions{1, 1}, NodeBusy)
	if got := hex.EncodeToString(busy); got != "524b4e3101010000" || len(busy) != NodeRejectSize {
		t.Errorf("it is %s", got)
	}
	for _, c := range []struct {
		name string
		b    []byte
		why  NodeReject
		err  error
	}{
		{"busy", busy, NodeBusy, nil},
		{"padded", append(bytes.Clone(busy), make([]byte, 140)...), NodeBusy, nil},
		{"refused", AppendNodeReject(nil, nil, NodeVersions{1, 1}, NodeRefused), NodeRefused, nil},
		{"for a reason of a newer version", AppendNodeReject(nil, nil, NodeVersions{1, 1}, 77), NodeRefused, nil},
		{"for none", AppendNodeReject(nil, nil, NodeVersions{1, 1}, 0), 0, ErrRange},
		{"of an older version", nil, 0, ErrShort},
		{"of an older version, padded", make([]byte, 148), 0, ErrMagic},
		{"of the fabric", []byte("iwarp: listener closed"), 0, ErrMagic},
		{"of no version", []byte("RKN1\x00\x01\x00\x00"), 0, ErrVersion},
		{"of version 2, with no lowest one", []byte("RKN1\x02\x01\x00\x00"), 0, ErrRange},
		{"with a reserved bit", []byte("RKN1\x01\x01\x00\x01"), 0, ErrReserved},
		{"short", busy[:7], 0, ErrShort},
		{"long", append(bytes.Clone(busy), 1), 0, ErrTrailing},
	} {
		if why, _, err := ParseNodeReject(c.b); why != c.why || !errors.Is(err, c.err) {
			t.Errorf("%s: %d, %v", c.name, why, err)
		}
	}
}

// FuzzNode: what a stranger sends is refused or read, and never more.
func FuzzNode(f *testing.F) {
	connect, accept, hello := opening()
	f.Add(connect)
	f.Add(accept)
	f.Add(hello)
	f.Add(AppendNodeReject(nil, nil, NodeVersions{1, 1}, NodeBusy))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := ParseNodeConnect(b); err == nil && (c.Lane < LaneUrgent || c.Lane > LaneAsk || !IsNode(b)) {
			t.Fatalf("%+v", c)
		}
		if h, err := ParseNodeHello(b); err == nil {
			again := AppendNodeHello(nil, nodeSecret, connect, accept, h)
			if !bytes.Equal(again[FullMACSize:], b[FullMACSize:]) {
				t.Fatalf("% x is told as % x", b, again)
			}
		}
		if why, _, err := ParseNodeReject(b); err == nil && why != NodeBusy && why != NodeRefused {
			t.Fatalf("a rejection for reason %d", why)
		}
		VerifyNodeAccept(nodeSecret, connect, b)
	})
}
