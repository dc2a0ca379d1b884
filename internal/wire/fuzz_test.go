package wire

import (
	"bytes"
	"testing"
)

// FuzzMessage gives every parser arbitrary bytes. What parses must encode to
// the very same bytes: nothing is ignored, nothing is read from elsewhere.
func FuzzMessage(f *testing.F) {
	for _, msg := range allMessages() {
		f.Add(msg)
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		h, err := ParseHeader(msg)
		if err != nil {
			return
		}
		_ = h.String()
		msg = bytes.Clone(msg)
		clear(msg[offSequence:HeaderSize]) // the seal: FuzzOpen looks at it
		again, err := reencode(h, Body(msg))
		if err != nil {
			return
		}
		if !bytes.Equal(msg, again) {
			t.Fatalf("not canonical: %v\n%x\n%x", h, msg, again)
		}
	})
}

// FuzzBody tries one body with every parser, whatever header it came with: a
// hostile peer chooses the type, too.
func FuzzBody(f *testing.F) {
	for _, msg := range allMessages() {
		f.Add(Body(msg))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if m, err := ParseMoved(body); err == nil && !bytes.Equal(Body(AppendMoved(nil, TypeGet, 1, m)), body) {
			t.Fatalf("moved not canonical: %x", body)
		}
		if m, err := ParseNotLeader(body); err == nil && !bytes.Equal(Body(AppendNotLeader(nil, TypePut, 1, m)), body) {
			t.Fatalf("not-leader not canonical: %x", body)
		}
		for typ := TypeHello; typ <= MaxRequest; typ++ {
			for _, typ := range [...]Type{typ, typ.Reply()} {
				h := Header{Version: VersionMax, Type: typ, ID: 1}
				again, err := reencodeBody(h, body)
				if err == nil && !bytes.Equal(again[HeaderSize:], body) {
					t.Fatalf("%v not canonical:\n%x\n%x", typ, body, again[HeaderSize:])
				}
			}
		}
	})
}

// FuzzPrivate tries the private data of a connection.
func FuzzPrivate(f *testing.F) {
	connect, accept, _ := handshake("s")
	f.Add(connect)
	f.Add(accept)
	f.Add(AppendReject(nil, Reject{Min: 2, Max: 2, Status: StatusAuth}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := ParseConnect(b); err == nil {
			c.Choose()
			again := AppendConnect(nil, nil, c)
			if !bytes.Equal(again[:ConnectSize-MACSize], b[:ConnectSize-MACSize]) {
				t.Fatalf("connect not canonical: %x", b)
			}
		}
		if a, err := ParseAccept(b); err == nil {
			again := AppendAccept(nil, nil, connect, a)
			if !bytes.Equal(again[:AcceptSize-MACSize], b[:AcceptSize-MACSize]) {
				t.Fatalf("accept not canonical: %x", b)
			}
		}
		if r, err := ParseReject(b); err == nil && !bytes.Equal(AppendReject(nil, r), b) {
			t.Fatalf("reject not canonical: %x", b)
		}
		if VerifyConnect([]byte("another secret"), b) || VerifyAccept([]byte("another secret"), connect, b) || VerifyHello(b, []byte("another secret"), connect, accept) {
			t.Fatalf("a MAC was guessed: %x", b)
		}
	})
}
