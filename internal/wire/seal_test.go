package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// sealCase seals the same Ping some times over and shows the last header.
func sealCase(t *testing.T, d *datadriven.TestData) string {
	nonce := Nonce{}
	copy(nonce[:], str(d, "nonce"))
	secret := str(d, "secret")
	connect := AppendConnect(nil, secret, Connect{Min: 4, Max: 4, Nonce: nonce})
	accept := AppendAccept(nil, secret, connect, Accept{Version: 4, Incarnation: 42})
	seal, server := NewSeals(secret, connect, accept)
	if string(str(d, "from")) == "server" {
		seal = server
	}
	var msg []byte
	for range max(1, num(t, d, "times")) {
		msg = AppendPing(nil, 1, Ping{Echo: 7})
		seal.Seal(msg)
	}
	return hex.Dump(msg)
}

// session returns both directions of both ends.
func sealedSession(secret string) (clientOut, clientIn, serverIn, serverOut *Seal) {
	connect, accept, _ := handshake(secret)
	clientOut, clientIn = NewSeals([]byte(secret), connect, accept)
	serverIn, serverOut = NewSeals([]byte(secret), connect, accept)
	return
}

// TestSeal: messages arrive once, in order and unaltered, or the receiver says
// so.
func TestSeal(t *testing.T) {
	out, in, serverIn, serverOut := sealedSession("s")
	next := func(s *Seal) []byte {
		msg := AppendPut(nil, 5, Put{Key: []byte("k"), Value: []byte("v")})
		s.Seal(msg)
		return msg
	}
	for range 3 {
		msg := next(out)
		want := bytes.Clone(msg)
		clear(want[offTag:HeaderSize])
		if err := serverIn.Open(msg); err != nil || !bytes.Equal(msg, want) {
			t.Fatalf("%v, %x", err, msg)
		}
		if err := in.Open(next(serverOut)); err != nil {
			t.Fatal(err)
		}
	}
	// Each attempt is on a copy of the receiver, as a session ends at the first.
	open := func(name string, msg []byte, want error) {
		t.Helper()
		try := *serverIn
		if err := try.Open(bytes.Clone(msg)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	last, msg := next(out), []byte(nil)
	if err := serverIn.Open(bytes.Clone(last)); err != nil {
		t.Fatal(err)
	}
	open("repeated", last, ErrTampered)
	left, msg := next(out), next(out)
	open("one left out", msg, ErrTampered)
	open("the right one", left, nil)
	open("one of the other direction", next(serverOut), ErrTampered)
	open("cut off", left[:HeaderSize-1], ErrShort)
	open("shortened", left[:len(left)-1], ErrTampered)
	open("lengthened", append(bytes.Clone(left), 0), ErrTampered)
	open("nothing", nil, ErrShort)
	for at := range left {
		for bit := range 8 {
			bad := bytes.Clone(left)
			bad[at] ^= 1 << bit
			open("a flipped bit", bad, ErrTampered)
		}
	}
	// The same number in another session, and under another secret.
	for _, other := range []string{"s", "other"} {
		connect, accept, _ := handshake(other)
		connect[9]++ // a nonce
		o, _ := NewSeals([]byte(other), connect, accept)
		var msg []byte
		for range 5 {
			msg = next(o)
		}
		if le.Uint64(msg[offSequence:]) != le.Uint64(left[offSequence:]) {
			t.Fatal("not the same number")
		}
		open("of another session of secret "+other, msg, ErrTampered)
	}
	out.Unseal()
	out.Unseal()
	open("posted after a post that failed", next(out), nil)
}

// TestSealWithoutSecret: the sequence counts, the tag is zero.
func TestSealWithoutSecret(t *testing.T) {
	out, _, in, _ := sealedSession("")
	a, b := AppendPing(nil, 1, Ping{}), AppendPing(nil, 2, Ping{})
	out.Seal(a)
	out.Seal(b)
	if !bytes.Equal(a[offTag:HeaderSize], make([]byte, TagSize)) {
		t.Errorf("tag %x", a[offTag:HeaderSize])
	}
	try := *in
	if err := try.Open(bytes.Clone(b)); !errors.Is(err, ErrTampered) {
		t.Error("out of order:", err)
	}
	try = *in
	bad := bytes.Clone(a)
	bad[offTag] = 1
	if err := try.Open(bad); !errors.Is(err, ErrTampered) {
		t.Error("a tag:", err)
	}
	if err := errors.Join(in.Open(a), in.Open(b)); err != nil {
		t.Error(err)
	}
}

func TestSealAllocatesNothing(t *testing.T) {
	out, _, in, _ := sealedSession("s")
	msg := AppendPut(nil, 5, Put{Key: []byte("k"), Value: make([]byte, 1024)})
	if n := testing.AllocsPerRun(100, func() {
		out.Seal(msg)
		if err := in.Open(msg); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzOpen gives the receiver arbitrary bytes: none of them has a right tag.
func FuzzOpen(f *testing.F) {
	out, _, _, _ := sealedSession("another")
	for _, msg := range allMessages() {
		out.Seal(msg)
		f.Add(msg, true)
		f.Add(msg, false)
	}
	f.Fuzz(func(t *testing.T, msg []byte, numbered bool) {
		_, _, in, _ := sealedSession("s")
		if numbered && len(msg) >= HeaderSize {
			le.PutUint64(msg[offSequence:], 1)
		}
		if err := in.Open(msg); err == nil {
			t.Fatalf("a tag was guessed: %x", msg)
		}
	})
}

func BenchmarkSeal(b *testing.B) {
	for _, size := range []int{64, 1024, 16 << 10} {
		out, _, in, _ := sealedSession("s")
		msg := AppendPut(nil, 5, Put{Key: []byte("k"), Value: make([]byte, size)})
		b.Run(hexSize(size), func(b *testing.B) {
			b.SetBytes(int64(len(msg)))
			for b.Loop() {
				out.Seal(msg)
				if err := in.Open(msg); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func hexSize(n int) string {
	return map[int]string{64: "64B", 1024: "1KiB", 16 << 10: "16KiB"}[n]
}
