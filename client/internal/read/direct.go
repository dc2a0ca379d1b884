package read

import (
	"sync"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/device"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A large value where the server's memory is mapped: each chunk is copied to where
// the caller wants it, and verified there while it is in the processor's cache. So
// there is one copy, and no buffer of the pool. What is behind the end of Dst until
// a chunk is verified is the caller's to overwrite in any case.
//
//	server's slab  │head│chunk│chunk│chunk│…
//	                      ▼     ▼             one copy each, then its checksum
//	Query.Dst           │chunk│chunk│…
//
// A chunk of which only a part is wanted, one whose length is no multiple of 8, and
// all of them if Dst does not begin with a word, go by way of a buffer, because a
// READ is of whole words.

// A chunkBuffer is what one call of readMapped uses.
type chunkBuffer struct {
	stripe int
	b      []byte // of layout.ChunkSize
}

var chunkPool = sync.Pool{New: func() any {
	return &chunkBuffer{stripe: int(nextStripe.Add(1) % base.Stripes), b: make([]byte, layout.ChunkSize)}
}}

// readMapped appends the wanted bytes of src to w.Dst, which has room for them. It fails with
// errUnmapped where memory is not mapped; then w.Dst has the bytes that came before.
func readMapped(s *session.Session, p *base.Limit, src *source, w *Query, from, to int64) error {
	if !s.Mapped() {
		return errUnmapped
	}
	buf := chunkPool.Get().(*chunkBuffer)
	defer chunkPool.Put(buf)
	next, last := int(from/layout.ChunkSize), int((to-1)/layout.ChunkSize)
	for next <= last {
		if err := p.Over(); err != nil {
			return err
		}
		grant := s.Lease.Grant() // before the first copy of the window
		if src.gone(grant) {
			return base.ErrOverwritten
		}
		end := min(next+base.WindowChunks, last+1)
		n, err := buf.copyWindow(s, src, w, next, end, from, to)
		if err == nil {
			err = src.counts(s, grant)
		}
		if err != nil {
			return err // nothing of this window is in w.Dst
		}
		w.Dst = w.Dst[:len(w.Dst)+n]
		next = end
	}
	return nil
}

// copyWindow puts what is wanted of chunks next to end-1 behind w.Dst's end, and returns how many
// bytes that is.
func (c *chunkBuffer) copyWindow(s *session.Session, src *source, w *Query, next, end int, from, to int64) (int, error) {
	at, read := len(w.Dst), 0
	room := w.Dst[:cap(w.Dst)]
	for i := next; i < end; i++ {
		off, n := src.item.ChunkRange(i)
		lo, hi := int(max(from-int64(off), 0)), int(min(to-int64(off), int64(n)))
		whole := (n + 7) &^ 7
		data := c.b[:whole]
		inPlace := hi-lo == whole && device.Aligned(room[at:])
		if inPlace {
			data = room[at:][:n:n]
		}
		status, known := s.ReadDirect(c.stripe, src.chunkPlace(i), data)
		if status == rdma.StatusSuccess && !known {
			return 0, base.ErrOverwritten // the region is not the view's any more
		}
		if err := directError(status, known); err != nil {
			return 0, err
		}
		read += whole
		if err := src.verify(s, i, data[:n]); err != nil {
			return 0, err
		}
		if !inPlace {
			copy(room[at:], data[lo:hi])
		}
		at += hi - lo
	}
	counts := s.Counts
	counts.ReadBatches.Add(1)
	counts.Reads.Add(uint64(end - next))
	counts.ReadBytes.Add(uint64(read))
	return at - len(w.Dst), nil
}
