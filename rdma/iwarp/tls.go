package iwarp

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/setup"
	"github.com/rdmakv/rdmakv/rdma/iwarp/internal/proto"
)

// ErrTLS marks errors of the TLS handshake: the peers could not, or would not,
// prove to each other who they are. It comes together with rdma.ErrRejected.
var ErrTLS = errors.New("iwarp: TLS")

// With Options.TLS the whole stream, MPA and all, runs inside TLS 1.3:
//
//	TCP │ TLS handshake, both ends show certificates │ MPA request, reply │ FPDUs
//
// It is for networks that are not trusted: READs are confidential and cannot be
// forged, which no RDMA card offers. It costs the zero-copy receive path, some
// microseconds per exchange and the CPU's AES. tshark sees TLS, and a kernel
// siw or a card cannot be the peer. CRC32C is left out: every TLS record is
// authenticated.
//
// The set-up time bounds TCP, TLS and MPA together. Until its certificate is
// verified a peer costs a socket, a goroutine and what it sent, of which no
// more than handshakeBytes is read.

// handshakeBytes bounds what is read from a peer during a handshake: a chain of
// certificates takes some KiB.
const handshakeBytes = 64 << 10

// A stream carries the bytes of a connection: TCP, or TLS over it.
type stream interface {
	net.Conn
	CloseWrite() error
}

// secure is TLS over a TCP connection. Close and deadlines are those of TCP, so
// that Close does not wait for the peer to take TLS's closing alert.
type secure struct {
	*tls.Conn
	tcp  *net.TCPConn
	once sync.Once
}

// Close closes the TCP connection at once.
func (s *secure) Close() error { return s.tcp.Close() }

// CloseWrite ends the sending direction in TLS and in TCP. It may wait for the
// socket.
func (s *secure) CloseWrite() (err error) {
	s.once.Do(func() {
		err = errors.Join(s.Conn.CloseWrite(), s.tcp.CloseWrite())
	})
	return err
}

// A gauge counts down what may still be read, and keeps the first bytes.
type gauge struct {
	net.Conn
	left  int
	done  bool // the handshake is over
	first []byte
}

func (g *gauge) Read(b []byte) (int, error) {
	if g.done {
		return g.Conn.Read(b)
	}
	if g.left <= 0 {
		return 0, fmt.Errorf("%w: more than %d bytes of handshake", rdma.ErrProtocol, handshakeBytes)
	}
	n, err := g.Conn.Read(b[:min(len(b), g.left)])
	g.left -= n
	if keep := proto.FrameHeaderLen + proto.MaxPrivate - len(g.first); keep > 0 {
		g.first = append(g.first, b[:min(n, keep)]...)
	}
	return n, err
}

// checkTLS says what is missing for a connection on which both ends prove
// themselves.
func checkTLS(c *tls.Config) string {
	switch {
	case c == nil:
		return ""
	case len(c.Certificates) == 0 && (c.GetCertificate == nil || c.GetClientCertificate == nil):
		return "TLS without a certificate of our own"
	case c.RootCAs == nil || c.ClientCAs == nil:
		return "TLS without RootCAs and ClientCAs: both ends must know whom to believe"
	case c.InsecureSkipVerify:
		return "TLS with InsecureSkipVerify: the peer must prove itself"
	}
	return ""
}

// tlsFor is the configuration of one end. It sets everything that security
// needs by itself, whatever the caller has set.
func tlsFor(c *tls.Config) *tls.Config {
	c = c.Clone()
	c.MinVersion = tls.VersionTLS13
	c.MaxVersion = 0
	c.ClientAuth = tls.RequireAndVerifyClientCert
	// Connections live long, and a resumed connection would believe a
	// certificate that has expired since.
	c.SessionTicketsDisabled = true
	c.ClientSessionCache = nil
	c.NextProtos = []string{alpn}
	return c
}

// alpn keeps a certificate that is good for something else, HTTPS say, from
// being used across protocols.
const alpn = "rdmakv-iwarp"

// dialTLS runs the handshake of the connecting end.
func dialTLS(ctx context.Context, tcp *net.TCPConn, c *tls.Config, addr string) (stream, error) {
	if c == nil {
		return tcp, nil
	}
	c = tlsFor(c)
	if c.ServerName == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", rdma.ErrInvalid, err)
		}
		if host == "" {
			host = tcp.RemoteAddr().(*net.TCPAddr).IP.String()
		}
		c.ServerName = host
	}
	g := &gauge{Conn: tcp, left: handshakeBytes}
	s := &secure{Conn: tls.Client(g, c), tcp: tcp}
	if err := s.HandshakeContext(ctx); err != nil {
		return nil, tlsError(ctx, err)
	}
	// This end sends the last message of TLS 1.3: whether the peer accepts our
	// certificate shows with its first answer.
	g.done, g.first = true, nil
	return s, nil
}

// acceptTLS runs the handshake of the accepting end; the deadline of the
// connection bounds it.
func (r *connRequest) acceptTLS(c *tls.Config) error {
	if c == nil {
		r.stream = r.conn
		return nil
	}
	g := &gauge{Conn: r.conn, left: handshakeBytes}
	s := &secure{Conn: tls.Server(g, tlsFor(c)), tcp: r.conn}
	if err := s.Handshake(); err != nil {
		r.tlsFailed(err, g.first)
		return err
	}
	g.done, g.first = true, nil
	r.stream = s
	return nil
}

// tlsFailed ends a connection whose handshake failed here. It reads, for a
// moment, what the peer has sent meanwhile: closing with unread bytes would
// reset the connection, and our alert, which says what is wrong, would be lost.
func (r *connRequest) tlsFailed(err error, first []byte) {
	defer r.l.dev.fabric.pending.remove(r) // until then it counts
	var plain tls.RecordHeaderError
	if errors.As(err, &plain) {
		r.tlsHint(first)
	}
	_ = r.conn.SetDeadline(time.Now().Add(lingerTimeout))
	_ = r.conn.CloseWrite()
	_, _ = io.CopyN(io.Discard, r.conn, handshakeBytes)
	_ = r.conn.Close()
}

// tlsHint answers a peer that speaks MPA without TLS in MPA, so that its
// program can say what is wrong.
func (r *connRequest) tlsHint(first []byte) {
	req, err := readMPA(io.MultiReader(bytes.NewReader(first), r.conn), false)
	if err != nil {
		return
	}
	r.req, r.stream = req, r.conn
	r.refuse([]byte(wantsTLS))
}

const wantsTLS = "iwarp: this listener wants TLS (tls.cert, tls.key, tls.ca)"

// rejection is the refusal of a peer, with its reason if that is one of this
// package's own, which are text.
func rejection(rep *proto.Frame) error {
	err := fmt.Errorf("%w by the peer (MPA revision %d, %d bytes of private data)", rdma.ErrRejected, rep.Revision, len(rep.Private))
	if string(rep.Private) == wantsTLS {
		return fmt.Errorf("%w: %w: %s", err, ErrTLS, wantsTLS)
	}
	return err
}

// tlsError says what went wrong in a handshake, and what to do.
func tlsError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("TLS handshake: %w", setup.CtxError(ctx))
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || isReset(err) {
		return fmt.Errorf("%w: %w: the peer hung up: if it does not speak TLS, set tls.cert, tls.key and tls.ca at both ends or at none: %w", rdma.ErrPeerGone, ErrTLS, err)
	}
	text := explainTLS(err)
	if text == "" {
		return setup.Error(ctx, "TLS handshake", err)
	}
	return fmt.Errorf("%w: %w: %s: %w", rdma.ErrRejected, ErrTLS, text, err)
}

// explainTLS puts a fault of a handshake into the words of the configuration.
// It returns "" for an error that is not of TLS.
func explainTLS(err error) string {
	var (
		authority x509.UnknownAuthorityError
		invalid   x509.CertificateInvalidError
		host      x509.HostnameError
		plain     tls.RecordHeaderError
		remote    *net.OpError
	)
	switch {
	case errors.As(err, &authority):
		return "the peer's certificate is not of a CA that tls.ca names"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		if now := time.Now(); invalid.Cert != nil && now.Before(invalid.Cert.NotBefore) {
			return "the peer's certificate is not valid yet: compare the clocks"
		}
		return "the peer's certificate has expired"
	case errors.As(err, &invalid):
		return "the peer's certificate does not serve"
	case errors.As(err, &host):
		return "the peer's certificate is for another host: give it this name or address, or connect by one that it has"
	case errors.As(err, &plain):
		return "the peer does not speak TLS: set tls.cert, tls.key and tls.ca at both ends or at none"
	case errors.As(err, &remote) && remote.Op == "remote error":
		switch text := remote.Err.Error(); {
		case strings.Contains(text, "unknown certificate authority"):
			return "the peer does not take our certificate: it is not of a CA that the peer's tls.ca names"
		case strings.Contains(text, "expired certificate"):
			return "the peer does not take our certificate: it has expired, or the clocks differ"
		case strings.Contains(text, "bad certificate"):
			return "the peer does not take our certificate: not of the peer's tls.ca, expired, or not for clients"
		case strings.Contains(text, "certificate required"):
			return "the peer wants a certificate of ours"
		case strings.Contains(text, "protocol version"):
			return "the peer does not speak TLS 1.3"
		}
		return "the peer refused the handshake"
	case strings.Contains(err.Error(), "tls: "):
		return "the handshake failed"
	}
	return ""
}

// idleRead is how much of the first record is read before a buffer is taken
// from the pool, because an idle connection should not keep one.
const idleRead = 1 << 10

// readSecure is the loop of the reader over TLS, until the connection ends. It
// waits in TLS's Read, because TLS cannot say that a record is there, as TCP
// can say that a socket is readable.
func (rx *receiver) readSecure() error {
	var first [idleRead]byte
	for {
		var n int
		var err error
		if rx.buf == nil {
			n, err = rx.q.wire.conn.Read(first[:])
			if n > 0 {
				rx.buf = rxPool.Get().(*rxBuffer)
				rx.start, rx.end = 0, copy(rx.buf.b, first[:n])
			}
		} else {
			n, err = rx.q.wire.conn.Read(rx.buf.b[rx.end:])
			rx.end += n
		}
		if n > 0 && !rx.round() {
			return nil
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil // the peer said goodbye
			}
			return err
		}
		if rx.start == rx.end && rx.buf != nil {
			rx.dropBuffer()
		}
	}
}

// describe names what protects the connection.
func (s *secure) describe() string {
	state := s.ConnectionState()
	return tls.VersionName(state.Version) + " " + tls.CipherSuiteName(state.CipherSuite)
}
