package clienttest

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// A Mapped fabric is iwarp between a server and clients of one process, but that
// the clients' QPs are rdma.DirectReaders: they see the server's memory.
type Mapped struct {
	rdma.Fabric
	mu      sync.Mutex
	regions atomic.Pointer[map[uint32]rdma.MR] // by rkey
	// Unmapped: as if the memory were not to be seen.
	Unmapped atomic.Bool
	Copies   atomic.Int64 // READs done directly, if counting
	Counting bool
}

// NewMapped is such a fabric.
func NewMapped() *Mapped {
	f := &Mapped{Fabric: iwarp.New(iwarp.Options{})}
	f.regions.Store(&map[uint32]rdma.MR{})
	return f
}

func (f *Mapped) change(fn func(map[uint32]rdma.MR)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := maps.Clone(*f.regions.Load())
	fn(next)
	f.regions.Store(&next)
}

func (f *Mapped) Open(ctx context.Context, name string) (rdma.Device, error) {
	d, err := f.Fabric.Open(ctx, name)
	return mappedDevice{d, f}, err
}

type mappedDevice struct {
	rdma.Device
	f *Mapped
}

func (d mappedDevice) AllocPD() (rdma.PD, error) {
	pd, err := d.Device.AllocPD()
	return mappedPD{pd, d.f}, err
}

type mappedPD struct {
	rdma.PD
	f *Mapped
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
	f *Mapped
}

func (m mappedMR) Close() error {
	m.f.change(func(all map[uint32]rdma.MR) { delete(all, m.RKey()) })
	return m.MR.Close()
}

type mappedQP struct {
	rdma.QP
	f *Mapped
}

// ReadDirect: a wrong rkey is one that is not mapped; PostSend judges it.
func (q *mappedQP) ReadDirect(sink []byte, remote rdma.RemoteAddr) rdma.Status {
	if q.f.Counting {
		q.f.Copies.Add(1)
	}
	mr := (*q.f.regions.Load())[remote.RKey]
	off := remote.Addr
	if mr != nil {
		off -= mr.Addr()
	}
	switch {
	case mr == nil || q.f.Unmapped.Load():
		return rdma.StatusLocQPOpErr
	case off > mr.Len() || uint64(len(sink)) > mr.Len()-off:
		q.QP.Disconnect()
		return rdma.StatusRemAccessErr
	}
	mem.LoadWords(sink, mr.Bytes()[off:off+uint64(len(sink))])
	return rdma.StatusSuccess
}

// A mappedListener hands the QP that is behind a mapped one to the server that accepts.
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
