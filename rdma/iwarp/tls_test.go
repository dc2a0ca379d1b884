package iwarp

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/rdmatest"
)

var loopback = []string{"127.0.0.1", "localhost"}

func TestTLSExchange(t *testing.T) {
	c := rdmatest.NewCA(t).Config(t, loopback, nil)
	for name, o := range map[string]Options{
		"rev 2":         {TLS: c},
		"rev 1":         {TLS: c, Revision: 1},
		"small FPDUs":   {TLS: c, MaxPayload: 64},
		"RTR by READ":   {TLS: c, RTR: RTRRead},
		"no RTR":        {TLS: c, NoPeerToPeer: true},
		"records of 1K": {TLS: func() *tls.Config { d := c.Clone(); d.DynamicRecordSizingDisabled = false; return d }()},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := connected(t, pairConfig{a: o, b: o, bcfg: rdma.QPConfig{Access: rdma.AccessRemoteRead}})
			if d := a.qp.Info().Detail; !strings.Contains(d, "TLS 1.3") || !strings.Contains(d, "no CRC") {
				t.Errorf("detail %q", d)
			}
			exchange(t, a, b)
		})
	}
}

// Large READs of several domains take turns (egress.go) over TLS as well.
func TestTLSLargeReads(t *testing.T) {
	c := rdmatest.NewCA(t).Config(t, loopback, nil)
	a, b := connected(t, pairConfig{a: Options{TLS: c}, b: Options{TLS: c}, bcfg: rdma.QPConfig{Access: rdma.AccessRemoteRead}})
	second, err := b.dev.AllocPD()
	check(t, err)
	t.Cleanup(func() { check(t, second.Close()) })
	const size, count = 1 << 20, 16
	am, bm := a.mr(size*count, rdma.AccessLocalWrite), b.mr(size, rdma.AccessRemoteRead)
	fill(bm.Bytes(), 7)
	for i := range uint64(count) {
		a.send(rdma.SendWR{ID: i, Op: rdma.OpRDMARead, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{MR: am, Off: i * size, Len: size}}, Remote: rdma.RemoteAddr{RKey: bm.RKey()}})
	}
	a.waitOK(count)
	for i := range count {
		if !bytes.Equal(am.Bytes()[i*size:][:size], bm.Bytes()) {
			t.Fatalf("READ %d brought other bytes", i)
		}
	}
}

// What is said cannot be read on the way; without TLS it can.
func TestTLSHidesTheBytes(t *testing.T) {
	c := rdmatest.NewCA(t).Config(t, loopback, nil)
	for _, o := range []Options{{}, {TLS: c}} {
		b := newEnd(t, New(o), rdma.QPConfig{})
		l, err := b.dev.Listen(t.Context(), "127.0.0.1:0")
		check(t, err)
		tap := newTap(t, l.Addr().String())
		secret := []byte("nobody on the way may read this")
		bm := b.mr(64, rdma.AccessLocalWrite)
		b.recv(rdma.RecvWR{ID: 1, SGL: []rdma.SGE{{MR: bm, Len: 64}}})
		accepted := make(chan error, 1)
		go func() {
			r, err := l.Accept(t.Context())
			if err == nil {
				_, err = r.Accept(t.Context(), b.qp, rdma.ConnParams{})
			}
			accepted <- err
		}()
		a := newEnd(t, New(o), rdma.QPConfig{})
		_, err = a.qp.Connect(t.Context(), tap.addr, rdma.ConnParams{PrivateData: []byte("and not this")})
		check(t, err)
		check(t, <-accepted)
		am := a.mr(64, rdma.AccessLocalWrite)
		copy(am.Bytes(), secret)
		a.send(rdma.SendWR{Op: rdma.OpSend, SGL: []rdma.SGE{{MR: am, Len: uint32(len(secret))}}})
		b.waitOK(1)
		if string(bm.Bytes()[:len(secret)]) != string(secret) {
			t.Error("the bytes did not arrive")
		}
		a.close()
		b.close()
		check(t, l.Close())
		seen := tap.all()
		if plain := strings.Contains(seen, string(secret)) && strings.Contains(seen, "MPA ID Req"); plain != (o.TLS == nil) {
			t.Errorf("TLS %v, and on the wire in the clear: %v", o.TLS != nil, plain)
		}
	}
}

// A fault of a certificate is named where it is seen, and the other end is told
// as much as TLS tells.
func TestTLSRefusals(t *testing.T) {
	ca, other := rdmatest.NewCA(t), rdmatest.NewCA(t)
	good := ca.Config(t, loopback, nil)
	past := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }
	future := func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) }
	serverOnly := func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }
	stranger := other.Config(t, loopback, nil) // shown to ends that believe ca, but believing ca itself
	stranger.RootCAs, stranger.ClientCAs = ca.Pool(), ca.Pool()
	for name, tc := range map[string]struct {
		dial, listen *tls.Config
		want         string
	}{
		"server of another CA":   {good, stranger, "not of a CA that tls.ca names"},
		"server expired":         {good, ca.Config(t, loopback, past), "has expired"},
		"server not yet":         {good, ca.Config(t, loopback, future), "not valid yet"},
		"server of another host": {good, ca.Config(t, []string{"kv.example"}, nil), "for another host"},
		"client of another CA":   {stranger, good, "does not take our certificate"},
		"client expired":         {ca.Config(t, loopback, past), good, "does not take our certificate"},
		"client not for clients": {ca.Config(t, loopback, serverOnly), good, "does not take our certificate"},
		"server without TLS":     {good, nil, "if it does not speak TLS"},
		"client without TLS":     {nil, good, "this listener wants TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newEnd(t, New(Options{TLS: tc.listen}), rdma.QPConfig{})
			defer b.close()
			l, err := b.dev.Listen(t.Context(), "127.0.0.1:0")
			check(t, err)
			defer l.Close()
			go func() {
				if r, err := l.Accept(t.Context()); err == nil {
					t.Errorf("a request came through: %v", r.RemoteAddr())
				}
			}()
			a := newEnd(t, New(Options{TLS: tc.dial}), rdma.QPConfig{})
			defer a.close()
			_, err = a.qp.Connect(t.Context(), l.Addr().String(), rdma.ConnParams{})
			if !(errors.Is(err, rdma.ErrRejected) || errors.Is(err, rdma.ErrPeerGone)) || !errors.Is(err, ErrTLS) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

// The set-up time bounds the handshake at both ends, drop by drop too, and
// peers that talk properly are served meanwhile.
func TestTLSSlowPeers(t *testing.T) {
	c := rdmatest.NewCA(t).Config(t, loopback, nil)
	o := Options{TLS: c, SetupTimeout: 300 * time.Millisecond}

	// A listener that accepts and says nothing.
	deaf, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer deaf.Close()
	a := newEnd(t, New(o), rdma.QPConfig{})
	_, err = a.qp.Connect(t.Context(), deaf.Addr().String(), rdma.ConnParams{})
	if !errors.Is(err, rdma.ErrDeadline) {
		t.Errorf("a deaf listener: %v", err)
	}
	a.close()

	f := New(o)
	b := newEnd(t, f, rdma.QPConfig{})
	defer b.close()
	l, err := b.dev.Listen(t.Context(), "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	slow, err := net.Dial("tcp", l.Addr().String())
	check(t, err)
	defer slow.Close()
	ended := make(chan error, 1)
	go func() {
		hello := []byte{22, 3, 1, 2, 0, 1, 0, 1, 252}
		for i := 0; ; i++ { // a byte at a time, for ever
			if _, err := slow.Write(hello[i%len(hello) : i%len(hello)+1]); err != nil {
				ended <- err
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	silent, err := net.Dial("tcp", l.Addr().String())
	check(t, err)
	defer silent.Close()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("a peer that drips is still connected")
	}
	check(t, silent.SetReadDeadline(time.Now().Add(10*time.Second)))
	if _, err := io.ReadAll(silent); err != nil && errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a silent peer is still connected: %v", err)
	}
	f.pending.mu.Lock()
	left := len(f.pending.set)
	f.pending.mu.Unlock()
	if left != 0 {
		t.Errorf("%d peers are still being set up", left)
	}
}

// A peer that sends handshake for ever is cut off: its bytes are not gathered.
func TestTLSHandshakeIsBounded(t *testing.T) {
	c := rdmatest.NewCA(t).Config(t, loopback, nil)
	b := newEnd(t, New(Options{TLS: c}), rdma.QPConfig{})
	defer b.close()
	l, err := b.dev.Listen(t.Context(), "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	check(t, err)
	defer conn.Close()
	// Warning alerts do not end a handshake by themselves, and neither does a
	// ClientHello that has not come whole.
	record := append([]byte{22, 3, 1, 0x40, 0}, make([]byte, 0x4000)...)
	copy(record[5:], []byte{1, 0x00, 0xff, 0xff})
	sent := 0
	for sent < 100*handshakeBytes {
		n, err := conn.Write(record)
		sent += n
		if err != nil {
			break
		}
	}
	if sent >= 100*handshakeBytes {
		t.Errorf("%d bytes of handshake were taken", sent)
	}
}

func TestTLSOptionsAreChecked(t *testing.T) {
	good := rdmatest.NewCA(t).Config(t, loopback, nil)
	for name, spoil := range map[string]func(*tls.Config){
		"no certificate": func(c *tls.Config) { c.Certificates = nil },
		"no roots":       func(c *tls.Config) { c.RootCAs = nil },
		"no client CAs":  func(c *tls.Config) { c.ClientCAs = nil },
		"no checking":    func(c *tls.Config) { c.InsecureSkipVerify = true },
	} {
		c := good.Clone()
		spoil(c)
		if _, err := New(Options{TLS: c}).Open(t.Context(), ""); !errors.Is(err, rdma.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A configuration that asks for less security is put right.
	weak := good.Clone()
	weak.MinVersion, weak.ClientAuth = tls.VersionTLS10, tls.NoClientCert
	if c := tlsFor(weak); c.MinVersion != tls.VersionTLS13 || c.ClientAuth != tls.RequireAndVerifyClientCert || !c.SessionTicketsDisabled {
		t.Errorf("%+v", c)
	}
}

// Connections that come and go leave nothing behind.
func TestTLSLeavesNothing(t *testing.T) {
	c := rdmatest.NewCA(t).Config(t, loopback, nil)
	o := Options{TLS: c}
	before := runtime.NumGoroutine()
	for range 20 {
		a, b := connected(t, pairConfig{a: o, b: o})
		a.close()
		b.close()
	}
	var now int
	for range 200 {
		if now = runtime.NumGoroutine(); now <= before+2 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("%d goroutines before, %d after", before, now)
}

// A tap is a TCP relay that records what passed.
type tap struct {
	addr string
	buf  chan []byte
	done chan struct{}
}

func newTap(t *testing.T, to string) *tap {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	p := &tap{addr: l.Addr().String(), buf: make(chan []byte, 10000), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		in, err := l.Accept()
		_ = l.Close()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", to)
		if err != nil {
			_ = in.Close()
			return
		}
		copied := make(chan struct{}, 2)
		relay := func(dst, src net.Conn) {
			_, _ = io.Copy(dst, io.TeeReader(src, p))
			_ = dst.(*net.TCPConn).CloseWrite()
			copied <- struct{}{}
		}
		go relay(out, in)
		relay(in, out)
		<-copied
		<-copied
		_, _ = in.Close(), out.Close()
	}()
	return p
}

func (p *tap) Write(b []byte) (int, error) {
	p.buf <- append([]byte(nil), b...)
	return len(b), nil
}

func (p *tap) all() string {
	<-p.done
	close(p.buf)
	var out strings.Builder
	for b := range p.buf {
		out.Write(b)
	}
	return out.String()
}
