package iwarp

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp/internal/proto"
)

// A rawPeer is the other end of a connection made of bytes: it can say
// anything, and sees exactly what is said.
type rawPeer struct {
	t    testing.TB
	conn net.Conn
	buf  []byte
	crc  bool
}

// acceptRaw connects a to a rawPeer that plays the listener and answers with
// rep, or as asked if nil.
func acceptRaw(t testing.TB, a *end, p rdma.ConnParams, rep func(req proto.Frame) []byte) (*rawPeer, error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	res := make(chan error, 1)
	go func() {
		_, err := a.qp.Connect(t.Context(), l.Addr().String(), p)
		res <- err
	}()
	c, err := l.Accept()
	check(t, err)
	t.Cleanup(func() { c.Close() })
	check(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	req, err := readMPA(c, false)
	check(t, err)
	o := Options{}.withDefaults()
	answer, terms := o.answer(&req, true, 128, 128, nil)
	b := answer.Append(nil)
	if rep != nil {
		b = rep(req)
	}
	_, err = c.Write(b)
	check(t, err)
	return &rawPeer{t: t, conn: c, crc: terms.crc}, <-res
}

// dialRaw connects a rawPeer, as the initiator, to b. The first frame, if any,
// is sent before b.Accept returns.
func dialRaw(t testing.TB, b *end, req proto.Frame, first []byte) *rawPeer {
	t.Helper()
	l, err := b.dev.Listen(t.Context(), "127.0.0.1:0")
	check(t, err)
	defer func() { check(t, l.Close()) }()
	c, err := net.Dial("tcp", l.Addr().String())
	check(t, err)
	t.Cleanup(func() { c.Close() })
	check(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = c.Write(req.Append(nil))
	check(t, err)
	r, err := l.Accept(t.Context())
	check(t, err)
	res := make(chan error, 1)
	go func() {
		_, err := r.Accept(t.Context(), b.qp, rdma.ConnParams{})
		res <- err
	}()
	rep, err := readMPA(c, true)
	check(t, err)
	p := &rawPeer{t: t, conn: c, crc: rep.CRC}
	p.write(first)
	check(t, <-res)
	return p
}

// plainRequest is revision 2 with CRC, peer-to-peer with WRITE.
func plainRequest() proto.Frame {
	o := Options{}.withDefaults()
	return o.request(true, 16, 16, nil)
}

func (p *rawPeer) write(b []byte) {
	p.t.Helper()
	if _, err := p.conn.Write(b); err != nil {
		p.t.Logf("raw write: %v", err) // the other end may have hung up
	}
}

// frame makes an FPDU of the parts.
func (p *rawPeer) frame(parts ...[]byte) []byte {
	b, start := proto.BeginFPDU(nil)
	for _, x := range parts {
		b = append(b, x...)
	}
	return proto.EndFPDU(b, start, p.crc)
}

func (p *rawPeer) send(parts ...[]byte) { p.t.Helper(); p.write(p.frame(parts...)) }

// next returns the next ULPDU, or an error at the end of the stream.
func (p *rawPeer) next() ([]byte, error) {
	for {
		u, n, _, err := proto.NextFPDU(p.buf, p.crc)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			p.buf = p.buf[n:]
			return u, nil
		}
		chunk := make([]byte, 4096)
		k, err := p.conn.Read(chunk)
		if k == 0 && err != nil {
			return nil, err
		}
		p.buf = append(p.buf, chunk[:k]...)
	}
}

func (p *rawPeer) must() (proto.Segment, []byte) {
	p.t.Helper()
	u, err := p.next()
	check(p.t, err)
	s, payload, bad := proto.ParseSegment(u)
	if bad != 0 {
		p.t.Fatalf("our own segment is bad: %v", bad)
	}
	return s, payload
}

// terminated skips to the Terminate and checks that the stream ends behind it:
// one only.
func (p *rawPeer) terminated() proto.Terminate {
	p.t.Helper()
	for {
		s, payload := p.must()
		if s.Op != proto.OpTerminate {
			continue
		}
		if !s.Last || s.MSN != 1 || s.MO != 0 || s.QN != proto.QueueTerminate {
			p.t.Fatalf("Terminate header %+v", s)
		}
		t, ok := proto.ParseTerminate(payload)
		if !ok {
			p.t.Fatalf("Terminate %x", payload)
		}
		if _, err := p.next(); !errors.Is(err, io.EOF) {
			p.t.Fatalf("after the Terminate: %v, want EOF", err)
		}
		_ = p.conn.Close() // else the other end waits for it, as long as it lingers
		return t
	}
}

// rtrWrite is the frame that opens a peer-to-peer connection.
func rtrWrite(crc bool) []byte {
	b, start := proto.BeginFPDU(nil)
	return proto.EndFPDU(proto.AppendTagged(b, proto.OpWrite, true, 0, 0), start, crc)
}
