package wire

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// handshake makes both private data and a signed Hello.
func handshake(secret string) (connect, accept, hello []byte) {
	connect = AppendConnect(nil, []byte(secret), Connect{Min: 4, Max: 4, Nonce: Nonce{1}})
	accept = AppendAccept(nil, []byte(secret), connect, Accept{Version: 4, Nonce: Nonce{2}, Incarnation: 42})
	hello = AppendHello(nil, 1, Hello{ReplySize: 1 << 16, Name: []byte("c")})
	SignHello(hello, []byte(secret), connect, accept)
	return connect, accept, hello
}

func TestEveryBitIsUnderTheMAC(t *testing.T) {
	secret := []byte("the secret")
	connect, accept, hello := handshake("the secret")
	flips := func(what string, b []byte, verify func([]byte) bool) {
		if !verify(b) {
			t.Fatalf("%s: does not verify at all", what)
		}
		for i := range len(b) * 8 {
			bad := bytes.Clone(b)
			bad[i/8] ^= 1 << (i % 8)
			if verify(bad) {
				t.Errorf("%s: bit %d may be flipped", what, i)
			}
		}
		if verify(b[:len(b)-1]) || verify(append(bytes.Clone(b), 0)) {
			t.Errorf("%s: another length verifies", what)
		}
	}
	flips("connect", connect, func(b []byte) bool { return VerifyConnect(secret, b) })
	flips("accept", accept, func(b []byte) bool { return VerifyAccept(secret, connect, b) })
	flips("accept, its connect", connect, func(b []byte) bool { return VerifyAccept(secret, b, accept) })
	flips("hello", Body(hello), func(b []byte) bool { return VerifyHello(b, secret, connect, accept) })
	flips("hello, its connect", connect, func(b []byte) bool { return VerifyHello(Body(hello), secret, b, accept) })
	flips("hello, its accept", accept, func(b []byte) bool { return VerifyHello(Body(hello), secret, connect, b) })
}

// TestReplay: what was captured on one connection is of no use on another,
// whose nonces differ.
func TestReplay(t *testing.T) {
	secret := []byte("the secret")
	connect, _, hello := handshake("the secret")
	fresh := AppendAccept(nil, secret, connect, Accept{Version: 1, Nonce: Nonce{3}, Incarnation: 42})
	if VerifyHello(Body(hello), secret, connect, fresh) {
		t.Error("a captured Hello verifies under another server nonce")
	}
	other := AppendConnect(nil, secret, Connect{Min: 1, Max: 1, Nonce: Nonce{9}})
	if VerifyAccept(secret, other, fresh) {
		t.Error("a captured Accept answers another request")
	}
}

func TestSecrets(t *testing.T) {
	connect, accept, hello := handshake("one")
	for _, secret := range []string{"", "two", "one\x00", "on"} {
		if VerifyConnect([]byte(secret), connect) || VerifyAccept([]byte(secret), connect, accept) || VerifyHello(Body(hello), []byte(secret), connect, accept) {
			t.Errorf("secret %q verifies what %q signed", secret, "one")
		}
	}
	// Public: no secret on both sides.
	connect, accept, hello = handshake("")
	if !VerifyConnect(nil, connect) || !VerifyAccept(nil, connect, accept) || !VerifyHello(Body(hello), nil, connect, accept) {
		t.Error("without a secret the public handshake fails")
	}
}

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		c      Connect
		want   uint8
		status Status
	}{
		{Connect{Min: 4, Max: 4}, 4, StatusOK},
		{Connect{Min: 1, Max: 9}, 4, StatusOK},
		{Connect{Min: 1, Max: 3}, 0, StatusVersion},
		{Connect{Min: 5, Max: 9}, 0, StatusVersion},
		{Connect{Min: 4, Max: 4, Features: 0x0001}, 4, StatusOK},
		{Connect{Min: 4, Max: 4, Features: 0x0100}, 0, StatusProtocol},
	} {
		if v, st := c.c.Choose(); v != c.want || st != c.status {
			t.Errorf("%+v: %d, %v", c.c, v, st)
		}
	}
}

func TestPrivateFaults(t *testing.T) {
	connect, accept, _ := handshake("s")
	if _, err := ParseConnect([]byte("RK")); !errors.Is(err, ErrShort) {
		t.Errorf("short: %v", err)
	}
	if _, err := ParseConnect([]byte("HTTP/1.1 400 Bad")); !errors.Is(err, ErrMagic) {
		t.Errorf("another program: %v", err)
	}
	if _, err := ParseConnect(append(bytes.Clone(connect), 0)); !errors.Is(err, ErrTrailing) {
		t.Errorf("long: %v", err)
	}
	bad := bytes.Clone(connect)
	bad[4], bad[5] = 5, 4
	if _, err := ParseConnect(bad); !errors.Is(err, ErrRange) {
		t.Errorf("min above max: %v", err)
	}
	// A request of version 2 is shorter; it is told apart from garbage.
	old := bytes.Clone(connect[:40])
	old[4], old[5] = 1, 2
	if c, err := ParseConnect(old); !errors.Is(err, ErrVersion) || c.Max != 2 {
		t.Errorf("version 2: %+v, %v", c, err)
	}
	bad = bytes.Clone(accept)
	bad[4] = 9
	if _, err := ParseAccept(bad); !errors.Is(err, ErrVersion) {
		t.Errorf("version nobody asked for: %v", err)
	}
	if _, err := ParseReject(AppendReject(nil, Reject{Min: 1, Max: 1})); !errors.Is(err, ErrRange) {
		t.Errorf("a refusal that says ok: %v", err)
	}
}

func TestStatuses(t *testing.T) {
	seen := map[string]bool{}
	for s := range Status(statusCount) {
		name := s.String()
		if name == "" || strings.Contains(name, "(") || seen[name] {
			t.Errorf("status %d: name %q", s, name)
		}
		seen[name] = true
		if s == StatusOK {
			if s.Err() != nil {
				t.Error("StatusOK is an error")
			}
			continue
		}
		err := &RemoteError{Status: s, Detail: "words"}
		if !errors.Is(err, s.Err()) || StatusOf(err) != s || err.Error() != "words" {
			t.Errorf("%v: RemoteError does not carry it", s)
		}
		if s.Err().Error() == "" {
			t.Errorf("%v has no text", s)
		}
	}
	if got := Status(999).String(); got != "Status(999)" {
		t.Error(got)
	}
	if StatusOf(errors.New("other")) != StatusInternal || StatusOf(nil) != StatusOK {
		t.Error("StatusOf")
	}
}

func TestTexts(t *testing.T) {
	long := strings.Repeat("é", MaxDetail)
	msg := AppendError(nil, TypeGet, 1, StatusInternal, long)
	if n := len(Body(msg)); n > MaxDetail || n < MaxDetail-1 {
		t.Errorf("text of %d bytes", n)
	}
	h, _ := ParseHeader(msg)
	err := ReplyError(h, []byte("a\x1b[31mred\n\xff"))
	if err.Error() != "a?[31mred??" {
		t.Errorf("%q", err.Error())
	}
}

func TestUnpad(t *testing.T) {
	secret := []byte("a secret")
	c := AppendConnect(nil, secret, Connect{Min: VersionMin, Max: VersionMax})
	a := AppendAccept(nil, secret, c, Accept{Version: VersionMax})
	r := AppendReject(nil, Reject{Min: VersionMin, Max: VersionMax, Status: StatusBusy})
	for _, m := range []struct {
		b    []byte
		size int
	}{{c, ConnectSize}, {a, AcceptSize}, {r, RejectSize}} {
		if len(m.b) != m.size {
			t.Fatalf("%d bytes, want %d", len(m.b), m.size)
		}
		for _, zeros := range []int{0, 1, 8, 148} {
			padded := append(append([]byte{}, m.b...), make([]byte, zeros)...)
			if got := Unpad(padded, m.size); !bytes.Equal(got, m.b) {
				t.Errorf("%d bytes and %d zeros: %x", m.size, zeros, got)
			}
		}
		if tail := append(append([]byte{}, m.b...), 0, 1); len(Unpad(tail, m.size)) != len(tail) {
			t.Error("bytes that are no padding were cut off")
		}
		if len(Unpad(m.b[:5], m.size)) != 5 {
			t.Error("short data was changed")
		}
	}
}
