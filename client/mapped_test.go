package client

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rdmakv/rdmakv/internal/memory"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// A mapped fabric is iwarp between a server and clients of one process, but that
// the clients' QPs are rdma.DirectReaders: they see the server's memory.
type mapped struct {
	rdma.Fabric
	mu      sync.Mutex
	regions atomic.Pointer[map[uint32]rdma.MR] // by rkey
	// unmapped: as if the memory were not to be seen.
	unmapped atomic.Bool
	copies   atomic.Int64 // READs done directly, if counting
	counting bool
}

func newMapped() *mapped {
	f := &mapped{Fabric: iwarp.New(iwarp.Options{})}
	f.regions.Store(&map[uint32]rdma.MR{})
	return f
}

func (f *mapped) change(fn func(map[uint32]rdma.MR)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := maps.Clone(*f.regions.Load())
	fn(next)
	f.regions.Store(&next)
}

func (f *mapped) Open(ctx context.Context, name string) (rdma.Device, error) {
	d, err := f.Fabric.Open(ctx, name)
	return mappedDevice{d, f}, err
}

type mappedDevice struct {
	rdma.Device
	f *mapped
}

func (d mappedDevice) AllocPD() (rdma.PD, error) {
	pd, err := d.Device.AllocPD()
	return mappedPD{pd, d.f}, err
}

type mappedPD struct {
	rdma.PD
	f *mapped
}

func (p mappedPD) RegMR(buf []byte, access rdma.Access) (rdma.MR, error) {
	mr, err := p.PD.RegMR(buf, access)
	if err == nil && access&rdma.AccessRemoteRead != 0 {
		p.f.change(func(m map[uint32]rdma.MR) { m[mr.RKey()] = mr })
		mr = mappedMR{mr, p.f}
	}
	return mr, err
}

func (p mappedPD) CreateQP(cfg rdma.QPConfig) (rdma.QP, error) {
	qp, err := p.PD.CreateQP(cfg)
	if err != nil {
		return nil, err
	}
	return &mappedQP{qp, p.f}, nil
}

type mappedMR struct {
	rdma.MR
	f *mapped
}

func (m mappedMR) Close() error {
	m.f.change(func(all map[uint32]rdma.MR) { delete(all, m.RKey()) })
	return m.MR.Close()
}

type mappedQP struct {
	rdma.QP
	f *mapped
}

// ReadDirect: a wrong rkey is one that is not mapped; PostSend judges it.
func (q *mappedQP) ReadDirect(sink []byte, remote rdma.RemoteAddr) rdma.Status {
	if q.f.counting {
		q.f.copies.Add(1)
	}
	mr := (*q.f.regions.Load())[remote.RKey]
	off := remote.Addr
	if mr != nil {
		off -= mr.Addr()
	}
	switch {
	case mr == nil || q.f.unmapped.Load():
		return rdma.StatusLocQPOpErr
	case off > mr.Len() || uint64(len(sink)) > mr.Len()-off:
		q.QP.Disconnect()
		return rdma.StatusRemAccessErr
	}
	memory.LoadWords(sink, mr.Bytes()[off:off+uint64(len(sink))])
	return rdma.StatusSuccess
}

// A mappedListener hands the QP that is behind a mapped one to whoever accepts.
type mappedListener struct{ rdma.Listener }

func (d mappedDevice) Listen(ctx context.Context, addr string) (rdma.Listener, error) {
	l, err := d.Device.Listen(ctx, addr)
	return mappedListener{l}, err
}

func (l mappedListener) Accept(ctx context.Context) (rdma.ConnRequest, error) {
	r, err := l.Listener.Accept(ctx)
	return mappedRequest{r}, err
}

type mappedRequest struct{ rdma.ConnRequest }

func (r mappedRequest) Accept(ctx context.Context, qp rdma.QP, p rdma.ConnParams) (rdma.ConnInfo, error) {
	return r.ConnRequest.Accept(ctx, qp.(*mappedQP).QP, p)
}

// startMapped is a node whose clients, dialled through the fabric it returns, READ
// directly.
func startMapped(t testing.TB, change func(*server.Config)) (*node, *mapped) {
	f := newMapped()
	n := startNodeOn(t, false, func(cfg *server.Config) {
		cfg.Fabric = f
		if change != nil {
			change(cfg)
		}
	})
	return n, f
}

// dialMapped is a client of such a node.
func (n *node) dialMapped(f *mapped, change func(*Config)) *Client {
	return n.dial(func(cfg *Config) {
		cfg.Fabric = f
		if change != nil {
			change(cfg)
		}
	})
}
