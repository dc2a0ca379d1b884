package verbs

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// A pd groups MRs, QPs and SRQs that may meet.
type pd struct {
	dev *device
	hw  *ibv.PD

	mu     sync.Mutex
	closed bool
	users  int // MRs, QPs, SRQs
}

// Device returns the parent.
func (p *pd) Device() rdma.Device { return p.dev }

func (p *pd) use() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("%w: protection domain", rdma.ErrClosed)
	}
	p.users++
	return nil
}

func (p *pd) unuse() {
	p.mu.Lock()
	p.users--
	p.mu.Unlock()
}

// Close fails with ErrBusy while MRs, QPs or SRQs of it are open.
func (p *pd) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	if p.users > 0 {
		return fmt.Errorf("%w: protection domain has %d open MRs, QPs and SRQs", rdma.ErrBusy, p.users)
	}
	if err := p.hw.Close(); err != nil {
		return classify(err)
	}
	p.closed = true
	p.dev.unuse()
	return nil
}

// An mr is registered memory. Pages of any size will do: the device is told of
// an address and a length.
type mr struct {
	pd     *pd
	hw     *ibv.MR
	buf    []byte
	access rdma.Access
	closed atomic.Bool // no post takes it any more
	mu     sync.Mutex  // one Close at a time
	gone   bool
}

// RegMR registers buf.
func (p *pd) RegMR(buf []byte, access rdma.Access) (rdma.MR, error) {
	if err := p.dev.checkAccess(access); err != nil {
		return nil, opError("register", "", err)
	}
	switch {
	case len(buf) == 0:
		return nil, opError("register", "", fmt.Errorf("%w: a region of 0 bytes", rdma.ErrInvalid))
	case uint64(len(buf)) > p.dev.attr.MaxMRSize:
		return nil, opError("register", "", fmt.Errorf("%w: %d bytes, the limit is %d", rdma.ErrInvalid, len(buf), p.dev.attr.MaxMRSize))
	case access&(rdma.AccessRemoteWrite|rdma.AccessRemoteAtomic) != 0 && access&rdma.AccessLocalWrite == 0:
		return nil, opError("register", "", fmt.Errorf("%w: AccessRemoteWrite and AccessRemoteAtomic need AccessLocalWrite", rdma.ErrInvalid))
	}
	if err := p.use(); err != nil {
		return nil, err
	}
	hw, err := p.hw.RegMR(addrOf(buf), len(buf), ibv.Access(access))
	if err != nil {
		p.unuse()
		return nil, opError("register", "", fmt.Errorf("%d bytes: %w", len(buf), classify(err)))
	}
	return &mr{pd: p, hw: hw, buf: buf, access: access}, nil
}

// checkAccess refuses unknown rights and those that the device cannot give.
// The values of rdma.Access are those of enum ibv_access_flags.
func (d *device) checkAccess(a rdma.Access) error {
	const knownRights = rdma.AccessLocalWrite | rdma.AccessRemoteMask
	if a&^knownRights != 0 {
		return fmt.Errorf("%w: unknown access rights %#x", rdma.ErrInvalid, uint32(a&^knownRights))
	}
	if a&rdma.AccessRemoteAtomic != 0 && !d.attr.Caps.Has(rdma.CapAtomics) {
		return fmt.Errorf("%w: remote atomics", rdma.ErrNotSupported)
	}
	return nil
}

func (m *mr) PD() rdma.PD         { return m.pd }
func (m *mr) Bytes() []byte       { return m.buf }
func (m *mr) Addr() uint64        { return m.hw.Addr }
func (m *mr) Len() uint64         { return uint64(len(m.buf)) }
func (m *mr) LKey() uint32        { return m.hw.LKey }
func (m *mr) Access() rdma.Access { return m.access }

// RKey is 0 without a remote right: some devices have a key all the same.
func (m *mr) RKey() uint32 {
	if m.access&rdma.AccessRemoteMask == 0 {
		return 0
	}
	return m.hw.RKey
}

// Close deregisters.
func (m *mr) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone {
		return nil
	}
	m.closed.Store(true)
	if err := m.hw.Close(); err != nil {
		return opError("deregister", "", classify(err))
	}
	m.gone = true
	m.pd.unuse()
	return nil
}
