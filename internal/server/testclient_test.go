package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// A peer is a client that speaks raw messages over the fabric: it does what a
// test tells it, right or wrong. Not safe for concurrent use.
type peer struct {
	t    testing.TB
	dev  rdma.Device
	pd   rdma.PD
	cq   rdma.CQ
	qp   rdma.QP
	mem  *mem.Block
	mr   rdma.MR
	size int // of a receive and of the send buffer

	connect, accept []byte
	sealIn, sealOut *wire.Seal
	wel             wire.Welcome
	credits         int
	nextID          uint64
	packs           int      // messages of several replies that came
	replies         [][]byte // received and not yet asked for
	reads           []rdma.WC
	failed          error  // first completion with an error
	waiting         uint64 // a request whose reply has not been asked for
}

// Layout of the peer's memory: receives, then one send buffer, then a sink.
const (
	peerReceives = 80
	peerSize     = 16 << 10
	peerSink     = 1 << 20
	peerRecvBit  = 1 << 40
)

type peerOptions struct {
	secret    []byte
	connect   []byte // instead of the proper private data
	noHello   bool
	receives  int
	replySize uint32
	sink      int
	client    [16]byte
	fabric    rdma.Fabric // default iwarp, from the Go heap
	kind      mem.Kind    // with fabric: of the memory
	via       string      // address to connect to instead of the server's
	tenant    string      // whose secret it is
	words     bool        // it believes READs of replicated keys by words
	anew      bool        // it reads maps whose groups began with keys
}

func (o *peerOptions) features() (f uint16) {
	f = wire.FeaturePack
	if o.words {
		f |= wire.FeatureWords
	}
	if o.anew {
		f |= wire.FeatureAnew
	}
	return f
}

// dial connects and, unless told otherwise, says Hello.
func dial(t testing.TB, srv *Server, o peerOptions) *peer {
	t.Helper()
	p, err := tryDial(t, srv, o)
	if err != nil {
		t.Fatalf("dial: %v (sessions that this server has ended or refused: %s)", err, whyEnded(srv))
	}
	return p
}

// whyEnded tells why sessions of a server have ended, as far as there are any: a client that is refused hears less.
func whyEnded(srv *Server) (text string) {
	for c := range base.CauseCount {
		if n := srv.main.Counters.Ends[c].Load(); n > 0 {
			text += fmt.Sprintf("%v %d ", c, n)
		}
	}
	return text
}

func tryDial(t testing.TB, srv *Server, o peerOptions) (*peer, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	p := &peer{t: t, size: peerSize}
	t.Cleanup(p.close)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if o.fabric == nil {
		o.fabric, o.kind = iwarp.New(iwarp.Options{}), mem.Heap
	}
	p.dev, err = o.fabric.Open(ctx, "")
	must(err)
	p.pd, err = p.dev.AllocPD()
	must(err)
	p.cq, err = p.dev.CreateCQ(4096)
	must(err)
	if o.receives == 0 {
		o.receives = peerReceives
	}
	p.mem, err = mem.Alloc((peerReceives+1)*peerSize+max(o.sink, peerSink), mem.Options{Kind: o.kind, Tag: "test"})
	must(err)
	p.mr, err = p.pd.RegMR(p.mem.Bytes(), rdma.AccessLocalWrite|rdma.AccessRemoteRead)
	must(err)
	p.qp, err = p.pd.CreateQP(rdma.QPConfig{SendCQ: p.cq, RecvCQ: p.cq, Cap: rdma.QPCap{MaxSendWR: 1024, MaxRecvWR: 1024}, Access: rdma.AccessRemoteRead})
	must(err)
	for i := range o.receives {
		p.postRecv(i)
	}
	var nonce wire.Nonce
	rand.Read(nonce[:])
	p.connect = o.connect
	if p.connect == nil {
		p.connect = wire.AppendConnect(nil, o.secret, wire.Connect{Min: wire.VersionMin, Max: wire.VersionMax, Features: o.features(), Tenant: wire.TenantOf(o.tenant), Nonce: nonce})
	}
	addr := srv.Addrs()[0].String()
	if o.via != "" {
		addr = o.via
	}
	info, err := p.qp.Connect(ctx, addr, rdma.ConnParams{PrivateData: p.connect})
	if err != nil {
		if errors.Is(err, rdma.ErrRejected) {
			rej, perr := wire.ParseReject(wire.Unpad(info.PrivateData, wire.RejectSize))
			if perr != nil { // not by the acceptor: a listener that is closed rejects what waits at it
				return p, fmt.Errorf("%w: %w", err, perr)
			}
			return p, fmt.Errorf("%w: %w", err, rej.Status.Err())
		}
		return p, err
	}
	p.accept = wire.Unpad(info.PrivateData, wire.AcceptSize) // verbs has zeros behind it
	if _, err := wire.ParseAccept(p.accept); err != nil {
		return p, err
	}
	if o.connect == nil && !wire.VerifyAccept(o.secret, p.connect, p.accept) {
		return p, errors.New("the server's MAC is wrong")
	}
	p.sealOut, p.sealIn = wire.NewSeals(o.secret, p.connect, p.accept)
	if o.noHello {
		return p, nil
	}
	return p, p.hello(o)
}

// seal makes msg the next one of this client's.
func (p *peer) seal(msg []byte) {
	if len(msg) >= wire.HeaderSize && p.sealOut != nil {
		p.sealOut.Seal(msg)
	}
}

func (p *peer) hello(o peerOptions) error {
	size := o.replySize
	if size == 0 {
		size = peerSize
	}
	id := p.id()
	msg := wire.AppendHello(nil, id, wire.Hello{ReplySize: size, ClientID: o.client, Name: []byte("test")})
	wire.SetCredits(msg, 2)
	wire.SignHello(msg, o.secret, p.connect, p.accept)
	p.send(msg)
	h, body, err := p.await(id)
	if err != nil {
		return err
	}
	if err := wire.ReplyError(h, body); err != nil {
		return err
	}
	p.wel, err = wire.ParseWelcome(append([]byte(nil), body...))
	return err
}

func (p *peer) id() uint64 { p.nextID++; return p.nextID }

func (p *peer) postRecv(i int) {
	n, err := p.qp.PostRecv([]rdma.RecvWR{{ID: peerRecvBit | uint64(i), SGL: []rdma.SGE{{MR: p.mr, Off: uint64(i * peerSize), Len: peerSize}}}})
	if n != 1 && !errors.Is(err, rdma.ErrNotConnected) {
		p.t.Errorf("test client: PostRecv: %v", err)
	}
}

// post posts one message n times, each with a number and a place of its own: all
// but the first lie in the sink. Their memory belongs to the fabric then.
func (p *peer) post(msg []byte, n int) {
	for i := range n {
		off := (peerReceives + i) * peerSize
		copy(p.mem.Bytes()[off:], msg)
		p.seal(p.mem.Bytes()[off : off+len(msg)])
		p.postSend(off, len(msg))
	}
}

func (p *peer) postSend(off, n int) {
	p.qp.PostSend([]rdma.SendWR{{ID: 1, Op: rdma.OpSend, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{MR: p.mr, Off: uint64(off), Len: uint32(n)}}}})
}

// send posts one message and waits until its memory may be used again.
func (p *peer) send(msg []byte) {
	p.t.Helper()
	p.post(msg, 1)
	p.poll(func() bool { return p.takeSend() })
}

func (p *peer) takeSend() bool {
	for i, wc := range p.reads {
		if wc.ID == 1 {
			p.reads = append(p.reads[:i], p.reads[i+1:]...)
			return true
		}
	}
	return false
}

// poll takes completions until done says so, the connection dies or time is up.
func (p *peer) poll(done func() bool) {
	p.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	var wcs [32]rdma.WC
	for !done() {
		n, err := p.cq.Poll(wcs[:])
		if err != nil {
			p.t.Fatalf("poll: %v", err)
		}
		for _, wc := range wcs[:n] {
			p.complete(wc)
		}
		if n > 0 {
			continue
		}
		if time.Now().After(deadline) {
			p.t.Fatal("test client: nothing happened for 30 s")
		}
		p.cq.Arm()
		if n, _ := p.cq.Poll(wcs[:1]); n > 0 {
			p.complete(wcs[0])
			continue
		}
		select {
		case <-p.qp.Done(): // flushed work may still be coming
			if p.failed == nil {
				p.failed = p.qp.Err()
			}
			if n, _ := p.cq.Poll(wcs[:1]); n > 0 {
				p.complete(wcs[0])
				continue
			}
			return
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		p.cq.Wait(ctx)
		cancel()
	}
}

func (p *peer) complete(wc rdma.WC) {
	if wc.Status != rdma.StatusSuccess {
		if p.failed == nil {
			p.failed = wc.Status.Err()
		}
		p.reads = append(p.reads, wc)
		return
	}
	if wc.ID&peerRecvBit == 0 {
		p.reads = append(p.reads, wc)
		return
	}
	i := int(wc.ID &^ peerRecvBit)
	msg := append([]byte(nil), p.mem.Bytes()[i*peerSize:][:wc.ByteLen]...)
	if err := p.sealIn.Open(msg); err != nil {
		p.t.Errorf("message of the server: %v", err)
	}
	for _, m := range p.unpack(msg) {
		if h, err := wire.ParseHeader(m); err == nil {
			p.credits += int(h.Credits)
		}
		p.replies = append(p.replies, m)
	}
	p.postRecv(i)
}

// unpack returns the replies in a message, each as if it had come alone.
func (p *peer) unpack(msg []byte) (all [][]byte) {
	h, err := wire.ParseHeader(msg)
	if err != nil || h.Type != wire.TypePack.Reply() {
		return [][]byte{msg}
	}
	pack := wire.Body(msg)
	n, err := wire.ParsePack(h, pack)
	if err != nil {
		p.t.Errorf("a pack of the server: %v", err)
	}
	p.packs++
	for range n {
		_, body, rest, _ := wire.NextPacked(pack)
		m := append(bytes.Clone(pack[:len(pack)-len(rest)-len(body)]), make([]byte, wire.SequenceSize+wire.TagSize)...)
		all, pack = append(all, append(m, body...)), rest
	}
	return all
}

// await returns the reply to a request, or why the connection died.
func (p *peer) await(id uint64) (wire.Header, []byte, error) {
	p.t.Helper()
	var msg []byte
	p.poll(func() bool {
		for i, m := range p.replies {
			h, err := wire.ParseHeader(m)
			if err != nil {
				p.t.Fatalf("reply does not parse: %v", err)
			}
			if h.ID == id {
				msg = m
				p.replies = append(p.replies[:i], p.replies[i+1:]...)
				return true
			}
		}
		return false
	})
	if msg == nil {
		return wire.Header{}, nil, fmt.Errorf("no reply: %w", p.qp.Err())
	}
	h, _ := wire.ParseHeader(msg)
	return h, wire.Body(msg), nil
}

// documentOf begins a document whose argument fits into the message.
func documentOf(kind wire.DocumentKind, argument string) func(id uint64) []byte {
	return func(id uint64) []byte {
		return wire.AppendDocument(nil, id, wire.Document{Kind: kind, Total: uint32(len(argument)), Argument: []byte(argument)})
	}
}

// document reads a document, whose argument it sends in parts of at most room bytes.
func (p *peer) document(kind wire.DocumentKind, argument []byte, room int) ([]byte, error) {
	p.t.Helper()
	var text []byte
	m := wire.Document{Kind: kind, Total: uint32(len(argument)), Argument: argument[:min(room, len(argument))]}
	for {
		body, err := p.call(func(id uint64) []byte { return wire.AppendDocument(nil, id, m) })
		if err != nil {
			return nil, err
		}
		part, err := wire.ParseDocumentReply(body)
		if err != nil || m.Serial != 0 && part.Serial != m.Serial || int(part.Offset) != len(text) {
			p.t.Fatal(part, err)
		}
		m.Serial = part.Serial
		sent := int(m.Offset) + len(m.Argument)
		if m.Total > 0 && part.Wants != (sent < len(argument)) {
			p.t.Fatalf("%d bytes of %d are sent, and more is wanted: %v", sent, len(argument), part.Wants)
		}
		if part.Wants {
			m.Offset, m.Argument = uint32(sent), argument[sent:min(sent+room, len(argument))]
			continue
		}
		if text = append(text, part.Data...); len(text) == int(part.Total) {
			return text, nil
		}
		m = wire.Document{Kind: kind, Serial: part.Serial, From: uint32(len(text))}
	}
}

// call sends a request and returns the body of its reply, or its refusal.
func (p *peer) call(encode func(id uint64) []byte) ([]byte, error) {
	p.t.Helper()
	id := p.id()
	msg := encode(id)
	p.send(msg)
	h, body, err := p.await(id)
	if err != nil {
		return nil, err
	}
	if want := wire.Type(msg[1]).Reply(); h.Type != want {
		p.t.Fatalf("reply of type %v to %v", h.Type, want)
	}
	return body, wire.ReplyError(h, body)
}

// Shorthands for the usual requests.

func (p *peer) put(key, value string) error {
	p.t.Helper()
	_, err := p.call(func(id uint64) []byte {
		return wire.AppendPut(nil, id, wire.Put{Key: []byte(key), Value: []byte(value)})
	})
	return err
}

func (p *peer) get(key string, maxInline uint32) (wire.GetReply, error) {
	p.t.Helper()
	body, err := p.call(func(id uint64) []byte {
		return wire.AppendGet(nil, id, wire.Get{Key: []byte(key), MaxInline: maxInline})
	})
	if err != nil {
		return wire.GetReply{}, err
	}
	r, err := wire.ParseGetReply(body)
	if err != nil {
		p.t.Fatal(err)
	}
	return r, nil
}

func (p *peer) ping() error {
	p.t.Helper()
	_, err := p.call(func(id uint64) []byte { return wire.AppendPing(nil, id, wire.Ping{Echo: 7}) })
	return err
}

// regions pages through the view.
func (p *peer) regions() (view wire.ViewReply, all []wire.Region) {
	p.t.Helper()
	for {
		body, err := p.call(func(id uint64) []byte {
			return wire.AppendViewRequest(nil, id, wire.ViewRequest{From: uint32(len(all))})
		})
		if err != nil {
			p.t.Fatalf("view: %v", err)
		}
		if view, err = wire.ParseViewReply(body); err != nil {
			p.t.Fatal(err)
		}
		for i := range view.Count() {
			all = append(all, view.Region(i))
		}
		if len(all) == int(view.Total) {
			return view, all
		}
	}
}

// sink is the memory that READs land in, and that large puts are taken from.
func (p *peer) sink() []byte { return p.mem.Bytes()[(peerReceives+1)*peerSize:] }

// read READs n bytes of the server's memory.
func (p *peer) read(addr uint64, rkey uint32, n int) ([]byte, error) {
	p.t.Helper()
	p.qp.PostSend([]rdma.SendWR{{
		ID: 2, Op: rdma.OpRDMARead, Flags: rdma.SendSignaled,
		SGL:    []rdma.SGE{{MR: p.mr, Off: (peerReceives + 1) * peerSize, Len: uint32(n)}},
		Remote: rdma.RemoteAddr{Addr: addr, RKey: rkey},
	}})
	var got *rdma.WC
	p.poll(func() bool {
		for i, wc := range p.reads {
			if wc.ID == 2 {
				got = &wc
				p.reads = append(p.reads[:i], p.reads[i+1:]...)
				return true
			}
		}
		return false
	})
	if got == nil {
		return nil, p.qp.Err()
	}
	if got.Status != rdma.StatusSuccess {
		return nil, got.Status.Err()
	}
	return p.sink()[:n], nil
}

// dead waits until the connection has ended and returns why.
func (p *peer) dead() error {
	p.t.Helper()
	select {
	case <-p.qp.Done():
		return p.qp.Err()
	case <-time.After(teeth.Patience(20 * time.Second)):
		p.t.Fatal("the connection did not end")
		return nil
	}
}

// goodbye drains what came and returns the Goodbye among it.
func (p *peer) goodbye() error {
	p.t.Helper()
	var bye error
	find := func() bool {
		for _, m := range p.replies {
			if h, err := wire.ParseHeader(m); err == nil && h.Type == wire.TypeGoodbye {
				bye = wire.ParseGoodbye(h, wire.Body(m))
			}
		}
		return bye != nil
	}
	p.poll(find)
	return bye
}

func (p *peer) close() {
	if p.qp != nil {
		p.qp.Close()
	}
	if p.mr != nil {
		p.mr.Close()
		p.mem.Free()
	}
	if p.pd != nil {
		p.pd.Close()
	}
	if p.cq != nil {
		p.cq.Close()
	}
	if p.dev != nil {
		p.dev.Close()
	}
	p.qp, p.mr, p.pd, p.cq, p.dev = nil, nil, nil, nil, nil
}
