package security

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// A peer is a client that does what a test tells it, right or wrong. Not safe for
// concurrent use.
type peer struct {
	t   testing.TB
	dev rdma.Device
	pd  rdma.PD
	cq  rdma.CQ
	qp  rdma.QP
	mem *mem.Block
	mr  rdma.MR

	tenant, word    string
	connect, accept []byte // what both ends said
	hello           []byte // as it was sent, sealed
	in, out         *wire.Seal
	welcome         wire.Welcome
	lastID          uint64
	inbox           [][]byte
	ended           []rdma.WC // of SENDs and READs
}

const (
	peerReceives = 16
	peerSize     = 16 << 10
	peerRecvBit  = 1 << 40
	peerSendID   = 1
	peerReadID   = 2
)

// newPeer makes a queue pair with receives, connected to nothing.
func newPeer(t testing.TB) *peer {
	t.Helper()
	p := &peer{t: t}
	t.Cleanup(p.close)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var err error
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	p.dev, err = newFabric().Open(ctx, "")
	must(err)
	p.pd, err = p.dev.AllocPD()
	must(err)
	p.cq, err = p.dev.CreateCQ(512)
	must(err)
	p.mem, err = mem.Alloc((peerReceives+2)*peerSize, mem.Options{Tag: "test"})
	must(err)
	access := rdma.AccessLocalWrite
	if p.dev.Attr().Caps.Has(rdma.CapReadSinkWrite) {
		access |= rdma.AccessRemoteWrite
	}
	p.mr, err = p.pd.RegMR(p.mem.Bytes(), access)
	must(err)
	p.qp, err = p.pd.CreateQP(rdma.QPConfig{SendCQ: p.cq, RecvCQ: p.cq, Cap: rdma.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSGE: 1}})
	must(err)
	for i := range peerReceives {
		p.postRecv(i)
	}
	return p
}

func (p *peer) close() {
	if p.qp != nil {
		p.qp.Close()
	}
	if p.cq != nil {
		p.cq.Close()
	}
	if p.mr != nil {
		p.mr.Close()
		p.mem.Free()
	}
	if p.pd != nil {
		p.pd.Close()
	}
	if p.dev != nil {
		p.dev.Close()
	}
}

func (p *peer) postRecv(i int) {
	p.qp.PostRecv([]rdma.RecvWR{{ID: peerRecvBit | uint64(i), SGL: []rdma.SGE{{MR: p.mr, Off: uint64(i * peerSize), Len: peerSize}}}})
}

// reach connects with private data; nil means those of the tenant. The error has
// the status of a refusal.
func (p *peer) reach(addr string, connect []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if connect == nil {
		var nonce wire.Nonce
		rand.Read(nonce[:])
		connect = wire.AppendConnect(nil, []byte(p.word), wire.Connect{
			Min: wire.VersionMin, Max: wire.VersionMax, Tenant: wire.TenantOf(p.tenant), Nonce: nonce,
		})
	}
	p.connect = connect
	info, err := p.qp.Connect(ctx, addr, rdma.ConnParams{PrivateData: connect})
	if errors.Is(err, rdma.ErrRejected) {
		rej, perr := wire.ParseReject(wire.Unpad(info.PrivateData, wire.RejectSize))
		if perr != nil {
			return fmt.Errorf("%w, and its private data says nothing: %v", err, perr)
		}
		return fmt.Errorf("%w: %w", err, rej.Status.Err())
	}
	if err != nil {
		return err
	}
	p.accept = wire.Unpad(info.PrivateData, wire.AcceptSize)
	if _, err := wire.ParseAccept(p.accept); err != nil {
		return err
	}
	p.out, p.in = wire.NewSeals([]byte(p.word), p.connect, p.accept)
	return nil
}

// open is the whole handshake of a tenant.
func (r *rig) open(tenant, word string) *peer {
	r.t.Helper()
	p := newPeer(r.t)
	p.tenant, p.word = tenant, word
	if err := p.reach(r.addr(), nil); err != nil {
		r.t.Fatal(err)
	}
	if err := p.sayHello(); err != nil {
		r.t.Fatal(err)
	}
	return p
}

func (p *peer) sayHello() error {
	p.lastID++
	msg := wire.AppendHello(nil, p.lastID, wire.Hello{ReplySize: peerSize, Name: []byte("peer")})
	wire.SetCredits(msg, 2)
	wire.SignHello(msg, []byte(p.word), p.connect, p.accept)
	p.out.Seal(msg)
	p.hello = append([]byte(nil), msg...)
	p.raw(msg)
	h, body, err := p.await(p.lastID)
	if err != nil {
		return err
	}
	if err := wire.ReplyError(h, body); err != nil {
		return err
	}
	p.welcome, err = wire.ParseWelcome(append([]byte(nil), body...))
	return err
}

// raw posts a message as it is.
func (p *peer) raw(msg []byte) {
	off := peerReceives * peerSize
	copy(p.mem.Bytes()[off:], msg)
	p.qp.PostSend([]rdma.SendWR{{ID: peerSendID, Op: rdma.OpSend, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{MR: p.mr, Off: uint64(off), Len: uint32(len(msg))}}}})
	p.poll(func() bool { _, ok := p.end(peerSendID); return ok })
}

// end takes the completion of a SEND or READ.
func (p *peer) end(id uint64) (rdma.WC, bool) {
	for i, wc := range p.ended {
		if wc.ID == id {
			p.ended = append(p.ended[:i], p.ended[i+1:]...)
			return wc, true
		}
	}
	return rdma.WC{}, false
}

// poll takes completions until done says so or the connection is dead.
func (p *peer) poll(done func() bool) {
	p.t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	var wcs [16]rdma.WC
	dead := 0
	for !done() {
		n, err := p.cq.Poll(wcs[:])
		if err != nil {
			p.t.Fatalf("poll: %v", err)
		}
		for _, wc := range wcs[:n] {
			if wc.ID&peerRecvBit == 0 {
				p.ended = append(p.ended, wc)
			} else if wc.Status == rdma.StatusSuccess {
				i := int(wc.ID &^ peerRecvBit)
				p.inbox = append(p.inbox, append([]byte(nil), p.mem.Bytes()[i*peerSize:][:wc.ByteLen]...))
				p.postRecv(i)
			}
		}
		switch {
		case n > 0:
			continue
		case time.Now().After(deadline):
			p.t.Fatal("peer: nothing happened for a minute")
		}
		select {
		case <-p.qp.Done():
			if dead++; dead > 50 { // what was flushed has come by now
				return
			}
		default:
		}
		time.Sleep(200 * time.Microsecond)
	}
}

// await returns the reply to a request, or why there is none.
func (p *peer) await(id uint64) (wire.Header, []byte, error) {
	p.t.Helper()
	var found []byte
	var bye error
	p.poll(func() bool {
		for len(p.inbox) > 0 && found == nil {
			msg := p.inbox[0]
			p.inbox = p.inbox[1:]
			if err := p.in.Open(msg); err != nil {
				bye = err
				return true
			}
			h, err := wire.ParseHeader(msg)
			switch {
			case err != nil:
				p.t.Fatalf("reply: %v", err)
			case h.Type == wire.TypeGoodbye:
				bye = wire.ParseGoodbye(h, wire.Body(msg))
			case h.ID == id:
				found = msg
			}
		}
		return found != nil
	})
	if found == nil {
		return wire.Header{}, nil, errors.Join(errDead, bye, p.qp.Err())
	}
	h, _ := wire.ParseHeader(found)
	return h, wire.Body(found), nil
}

// errDead: the connection ended before the reply.
var errDead = errors.New("no reply")

// call sends a request under a fresh id and returns the body of its reply.
func (p *peer) call(encode func(id uint64) []byte) ([]byte, error) {
	p.t.Helper()
	p.lastID++
	msg := encode(p.lastID)
	p.out.Seal(msg)
	p.raw(msg)
	h, body, err := p.await(p.lastID)
	if err != nil {
		return nil, err
	}
	return body, wire.ReplyError(h, body)
}

// regions asks for the region table.
func (p *peer) regions() []wire.Region {
	p.t.Helper()
	body, err := p.call(func(id uint64) []byte { return wire.AppendViewRequest(nil, id, wire.ViewRequest{}) })
	if err != nil {
		p.t.Fatal(err)
	}
	m, err := wire.ParseViewReply(body)
	if err != nil {
		p.t.Fatal(err)
	}
	var out []wire.Region
	for i := range m.Count() {
		out = append(out, m.Region(i))
	}
	return out
}

// read READs the first bytes of a region. nil: they are here.
func (p *peer) read(reg wire.Region) error {
	p.t.Helper()
	return p.readAt(reg.Addr, reg.RKey)
}

const peerSinkOff = (peerReceives + 1) * peerSize

func (p *peer) readAt(addr uint64, rkey uint32) error {
	p.t.Helper()
	clear(p.sink())
	n, err := p.qp.PostSend([]rdma.SendWR{{
		ID: peerReadID, Op: rdma.OpRDMARead, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{MR: p.mr, Off: peerSinkOff, Len: 64}},
		Remote: rdma.RemoteAddr{Addr: addr, RKey: rkey},
	}})
	if n == 0 {
		return err
	}
	var wc rdma.WC
	ok := false
	p.poll(func() bool { wc, ok = p.end(peerReadID); return ok })
	if !ok {
		return errDead
	}
	return wc.Status.Err()
}

func (p *peer) sink() []byte { return p.mem.Bytes()[peerSinkOff:][:64] }

// gone waits until the connection is dead.
func (p *peer) gone() {
	p.t.Helper()
	p.poll(func() bool { return false })
	select {
	case <-p.qp.Done():
	default:
		p.t.Error("the connection lives")
	}
}
