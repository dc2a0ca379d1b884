package sim

import (
	"fmt"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/soft"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// A key names a region to peers: the number, and the address of its first byte,
// which is the adapter's own and no pointer.
type key struct {
	number uint32
	base   uint64
}

// An mr is a registered region.
type mr struct {
	pd     *pd
	buf    []byte
	access rdma.Access
	key    key
	closed bool
	// frozen is the memory that peers read while the program is paused or after
	// it was killed. It outlives the registration.
	frozen []byte
}

// RegMR registers buf.
func (p *pd) RegMR(buf []byte, access rdma.Access) (rdma.MR, error) {
	d := p.dev
	if err := soft.CheckRegion(len(buf), access); err != nil {
		return nil, err
	}
	if uint64(len(buf)) > d.attr.MaxMRSize {
		return nil, fmt.Errorf("%w: a memory region of %d bytes, at most %d", rdma.ErrInvalid, len(buf), d.attr.MaxMRSize)
	}
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	if len(d.mrs) >= soft.MaxMRs {
		return nil, fmt.Errorf("%w: %d memory regions", rdma.ErrLimit, len(d.mrs))
	}
	if err := p.use(); err != nil {
		return nil, err
	}
	m := &mr{pd: p, buf: buf[:len(buf):len(buf)], access: access, key: d.newKey()}
	d.mrs[m.key.number] = m
	return m, nil
}

// newKey takes the key freed last, if keys come back, or the next of the
// device's sequence.
func (d *device) newKey() key {
	if k := len(d.spare); k > 0 && d.net.adverse.ReuseKeys {
		last := d.spare[k-1]
		d.spare = d.spare[:k-1]
		return last
	}
	for {
		d.keys++
		k := key{number: uint32(mix(d.origin + d.keys)), base: 1<<44 + d.keys<<36}
		if k.number != 0 && d.mrs[k.number] == nil {
			return k
		}
	}
}

// free gives a key back.
func (d *device) free(m *mr) {
	if d.net.adverse.ReuseKeys {
		d.spare = append(d.spare, m.key)
	}
}

func (m *mr) PD() rdma.PD         { return m.pd }
func (m *mr) Bytes() []byte       { return m.buf }
func (m *mr) Addr() uint64        { return m.key.base }
func (m *mr) Len() uint64         { return uint64(len(m.buf)) }
func (m *mr) LKey() uint32        { return m.key.number }
func (m *mr) Access() rdma.Access { return m.access }

// RKey is the key's number, or 0 if a peer has no use for it.
func (m *mr) RKey() uint32 {
	if m.access&rdma.AccessRemoteMask == 0 {
		return 0
	}
	return m.key.number
}

// within reports whether n bytes from off lie inside, without overflow.
func (m *mr) within(off uint64, n uint32) bool {
	size := uint64(len(m.buf))
	return off <= size && uint64(n) <= size-off
}

// Close deregisters: the responder works under the network's lock, so nothing
// is under way when this returns.
func (m *mr) Close() error {
	d := m.pd.dev
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	m.pd.users--
	switch {
	case d.life.dead: // the adapter reads its copy
	case d.life.paused && m.frozen != nil: // likewise, until the program runs again
	default:
		delete(d.mrs, m.key.number)
		d.free(m)
	}
	return nil
}

// readable returns the memory that a peer's READ of n bytes at addr is served
// from, or nil if it is refused.
func (p *pd) readable(at rdma.RemoteAddr, n uint32) (m *mr, off int) {
	m = p.dev.mrs[at.RKey]
	if m == nil || m.pd != p || m.access&rdma.AccessRemoteRead == 0 || m.closed && m.frozen == nil ||
		at.Addr < m.key.base || !m.within(at.Addr-m.key.base, n) {
		return nil, 0
	}
	return m, int(at.Addr - m.key.base)
}

// bytes is what peers read of the region.
func (m *mr) bytes() []byte {
	if m.frozen != nil {
		return m.frozen
	}
	return m.buf
}

// A piece is a part of a READ that is loaded at one instant.
type piece struct{ off, len int }

// pieces cuts n bytes of pages from off at multiples of size bytes.
func pieces(list []piece, pages []byte, off, n, size int) []piece {
	first := size - (int(mem.Skew(pages, 0))+off)%size // lines are counted from the region's start
	for at := 0; at < n; {
		k := min(first, n-at)
		list = append(list, piece{at, k})
		at += k
		first = size
	}
	return list
}
