package sim

import (
	"context"
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// bubble runs f where time costs nothing.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// A station is a host with one of everything.
type station struct {
	t    *testing.T
	host *Host
	dev  rdma.Device
	pd   rdma.PD
	cq   rdma.CQ
	qp   rdma.QP
}

func (s *station) ok(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%s: %v", s.host.name, err)
	}
}

func newStation(t *testing.T, net *Network, name, addr string) *station {
	t.Helper()
	h, err := net.Host(name, addr)
	if err != nil {
		t.Fatal(err)
	}
	s := &station{t: t, host: h}
	s.open()
	return s
}

// open begins a life.
func (s *station) open() {
	s.t.Helper()
	var err error
	s.dev, err = s.host.Open(context.Background(), "")
	s.ok(err)
	s.pd, err = s.dev.AllocPD()
	s.ok(err)
	s.cq, err = s.dev.CreateCQ(256)
	s.ok(err)
	s.newQP()
}

func (s *station) newQP() {
	s.t.Helper()
	var err error
	s.qp, err = s.pd.CreateQP(rdma.QPConfig{SendCQ: s.cq, RecvCQ: s.cq, Access: rdma.AccessRemoteRead, Cap: rdma.QPCap{MaxInline: 64}})
	s.ok(err)
}

func (s *station) reg(n int) rdma.MR {
	s.t.Helper()
	block, err := mem.Alloc(n, mem.Options{Kind: mem.Heap, Tag: "sim test"})
	s.ok(err)
	mr, err := s.pd.RegMR(block.Bytes(), rdma.AccessLocalWrite|rdma.AccessRemoteRead)
	s.ok(err)
	return mr
}

// joined makes two stations, a connected to b.
func joined(t *testing.T, net *Network) (a, b *station) {
	t.Helper()
	a, b = newStation(t, net, "a", "10.0.0.1"), newStation(t, net, "b", "10.0.0.2")
	if err := join(a, b); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// join connects a's QP to b's at b's port 7.
func join(a, b *station) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l, err := b.dev.Listen(ctx, "10.0.0.2:7")
	if err != nil {
		return err
	}
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		r, err := l.Accept(ctx)
		if err == nil {
			_, err = r.Accept(ctx, b.qp, rdma.ConnParams{})
		}
		accepted <- err
	}()
	if _, err := a.qp.Connect(ctx, "10.0.0.2:7", rdma.ConnParams{}); err != nil {
		cancel()
		<-accepted
		return err
	}
	return <-accepted
}

func (s *station) post(wr rdma.SendWR) {
	s.t.Helper()
	wr.Flags |= rdma.SendSignaled
	if n, err := s.qp.PostSend([]rdma.SendWR{wr}); n != 1 {
		s.t.Fatalf("%s: PostSend: %v", s.host.name, err)
	}
}

func (s *station) read(id uint64, sink, src rdma.MR, n uint32) {
	s.t.Helper()
	s.post(rdma.SendWR{ID: id, Op: rdma.OpRDMARead, SGL: []rdma.SGE{{MR: sink, Len: n}}, Remote: rdma.RemoteAddr{Addr: src.Addr(), RKey: src.RKey()}})
}

func (s *station) send(id uint64, text string) {
	s.t.Helper()
	s.post(rdma.SendWR{ID: id, Op: rdma.OpSend, Flags: rdma.SendInline, Inline: []byte(text)})
}

// poll returns a completion, nil if there is none within d.
func (s *station) poll(d time.Duration) *rdma.WC {
	s.t.Helper()
	for end := time.Now().Add(d); ; time.Sleep(d / 1000) {
		var wcs [1]rdma.WC
		n, err := s.cq.Poll(wcs[:])
		s.ok(err)
		if n == 1 {
			return &wcs[0]
		}
		if !time.Now().Before(end) {
			return nil
		}
	}
}

func (s *station) want(id uint64, st rdma.Status) {
	s.t.Helper()
	wc := s.poll(time.Minute)
	if wc == nil || wc.ID != id || wc.Status != st {
		s.t.Fatalf("%s: completion %+v, want %d with %v", s.host.name, wc, id, st)
	}
}

func (s *station) close() {
	s.t.Helper()
	s.ok(s.qp.Close())
}

// set writes every word of a region.
func set(mr rdma.MR, v uint64) {
	b := mr.Bytes()
	for i := 0; i+8 <= len(b); i += 8 {
		storeWord(b[i:], v)
	}
}

func words(b []byte) (list []uint64) {
	for ; len(b) >= 8; b = b[8:] {
		list = append(list, binary.NativeEndian.Uint64(b))
	}
	return list
}
