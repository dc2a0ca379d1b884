package soft

import (
	"fmt"

	"github.com/rdmakv/rdmakv/rdma"
)

// An SGE is a piece of a registered region, as posted. It is checked when it is
// used.
type SGE struct {
	MR  *MR
	Off uint64
	Len uint32
}

// An SGL is a scatter/gather list. Up to two entries need no allocation. It is
// checked twice: its shape when it is posted, and what it names when it is used.
type SGL struct {
	n     int
	total uint64 // bytes; at most MaxSGE × 4 GiB, so no overflow
	first [2]SGE
	more  []SGE // entries from the third on; its array is reused
}

// Len returns the number of entries.
func (l *SGL) Len() int { return l.n }

// Total returns the sum of the entries' lengths in bytes.
func (l *SGL) Total() uint64 { return l.total }

// At returns an entry.
func (l *SGL) At(i int) *SGE {
	if i < len(l.first) {
		return &l.first[i]
	}
	return &l.more[i-len(l.first)]
}

// set takes over the entries of a work request, at most limit, of regions of this
// kind. It refuses (ErrInvalid) only what can never be right; closed regions,
// other PDs and bounds show when the request is carried out, as in hardware.
func (l *SGL) set(list []rdma.SGE, limit int, kind *Kind) error {
	if len(list) > limit {
		return fmt.Errorf("%w: %d scatter/gather entries, the limit is %d", rdma.ErrInvalid, len(list), limit)
	}
	l.n, l.total, l.more = 0, 0, l.more[:0]
	for i := range list {
		m, ok := list[i].MR.(*MR)
		if !ok || m == nil || m.kind != kind {
			return fmt.Errorf("%w: scatter/gather entry %d names no memory region of this fabric", rdma.ErrInvalid, i)
		}
		e := SGE{MR: m, Off: list[i].Off, Len: list[i].Len}
		if i < len(l.first) {
			l.first[i] = e
		} else {
			l.more = append(l.more, e)
		}
		l.n++
		l.total += uint64(e.Len)
	}
	return nil
}

// clear drops references, so that a request that is over keeps no region alive.
func (l *SGL) clear() {
	l.first = [2]SGE{}
	clear(l.more[:cap(l.more)])
	l.more = l.more[:0]
	l.n, l.total = 0, 0
}

// Check reports whether every entry may be used by owner with the right need.
func (l *SGL) Check(owner *PD, need rdma.Access) bool {
	for i := range l.n {
		e := l.At(i)
		if e.MR.pd != owner || e.MR.access&need != need || !e.MR.Within(e.Off, e.Len) || e.MR.Closed() {
			return false
		}
	}
	return true
}

// Scatter copies src to the bytes from off of the list. It returns false if a
// region was closed or an entry is out of bounds.
func (l *SGL) Scatter(off uint64, src []byte) bool {
	for i := 0; i < l.n && len(src) > 0; i++ {
		e := l.At(i)
		if off >= uint64(e.Len) {
			off -= uint64(e.Len)
			continue
		}
		n := min(uint64(e.Len)-off, uint64(len(src)))
		if !e.MR.Within(e.Off, e.Len) || !e.MR.Acquire() {
			return false
		}
		copy(e.MR.buf[e.Off+off:e.Off+uint64(e.Len)], src[:n])
		e.MR.Release()
		src, off = src[n:], 0
	}
	return len(src) == 0
}

// Gather fills dst with the bytes from off of the list. It returns false in the
// cases of Scatter, and if the list is too short.
func (l *SGL) Gather(dst []byte, off uint64) bool {
	for i := 0; i < l.n && len(dst) > 0; i++ {
		e := l.At(i)
		if off >= uint64(e.Len) {
			off -= uint64(e.Len)
			continue
		}
		if !e.MR.Within(e.Off, e.Len) || !e.MR.Acquire() {
			return false
		}
		n := copy(dst, e.MR.buf[e.Off+off:e.Off+uint64(e.Len)])
		e.MR.Release()
		dst, off = dst[n:], 0
	}
	return len(dst) == 0
}
