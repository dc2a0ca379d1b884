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

// RKey is 0 without a remote right: some devices have a key nevertheless.
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

// emptySGL is a list without bytes as siw requires it for READs and receives: with
// no entry at all it takes an old one for a READ, and refuses a receive.
func emptySGL(out *[ibv.MaxSGE]ibv.SGE) uint32 {
	out[0] = ibv.SGE{}
	return 1
}

// fillSGL checks a scatter/gather list and writes it as addresses and lkeys.
// Entries without bytes are left out: they are lawful, and siw's kernel driver
// dies of them.
func fillSGL(p *pd, limit int, sgl []rdma.SGE, out *[ibv.MaxSGE]ibv.SGE, right rdma.Access) (uint32, error) {
	if len(sgl) > limit {
		return 0, fmt.Errorf("%w: %d scatter/gather entries, the limit is %d", rdma.ErrInvalid, len(sgl), limit)
	}
	total, n := uint64(0), 0
	for i := range sgl {
		s := &sgl[i]
		m, ok := s.MR.(*mr)
		switch {
		case !ok || m == nil || m.pd != p:
			return 0, fmt.Errorf("%w: entry %d is no region of this protection domain", rdma.ErrInvalid, i)
		case m.closed.Load():
			return 0, fmt.Errorf("%w: the region of entry %d was closed", rdma.ErrInvalid, i)
		case s.Off > uint64(len(m.buf)) || uint64(s.Len) > uint64(len(m.buf))-s.Off:
			return 0, fmt.Errorf("%w: entry %d: %d bytes at %d in a region of %d", rdma.ErrInvalid, i, s.Len, s.Off, len(m.buf))
		case m.access&right != right:
			return 0, fmt.Errorf("%w: the region of entry %d has no AccessLocalWrite", rdma.ErrInvalid, i)
		}
		if s.Len > 0 {
			total += uint64(s.Len)
			out[n] = ibv.SGE{Addr: m.hw.Addr + s.Off, Len: s.Len, LKey: m.hw.LKey}
			n++
		}
	}
	if total > uint64(p.dev.attr.MaxMsgSize) {
		return 0, fmt.Errorf("%w: %d bytes, the limit is %d", rdma.ErrInvalid, total, p.dev.attr.MaxMsgSize)
	}
	return uint32(n), nil
}
