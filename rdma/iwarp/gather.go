package iwarp

import (
	"syscall"

	"github.com/rdmakv/rdmakv/rdma/internal/soft"
	"github.com/rdmakv/rdmakv/rdma/iwarp/internal/proto"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// Where nobody sums the bytes up, neither a CRC nor TLS, the payload of a long READ response
// need not pass through the transmit buffer: the kernel takes it out of the region.
//
//	buffer   │len│header│first bytes│            │CRC│len│header│            │CRC│
//	region                           │ the rest  │                │  payload  │
//
// With a CRC that would be wrong: a writer could change the region between the sum and the
// write. The first mem.WholeWords bytes of a READ are copied in any case, word by word,
// because the kernel promises nothing for words.
//
// A region is held for one write that does not wait. What the socket does not take is copied
// into the buffer then, so that no peer that stops reading holds up MR.Close.

// On one machine a stream costs less the more one system call hands over. So a transmitter
// frames up to txMost bytes for one, if nearly nothing of it is copied. What the socket does
// not take is copied, and kept for as long as the peer does not read: therefore the bound
// is twice the most that the socket has taken whole, and falls to half where it did not take all; and
// only maxBulk transmitters of a device may have so much at a time, or peers that
// ask and do not read would take 1 MiB each.
const (
	txMost  = 1 << 20
	maxBulk = 16
)

// longest is how many bytes are framed for one system call at most. Where other domains may
// have to wait it is one buffer. The caller holds QP.Mu, and has set busy.
func (tx *transmitter) longest() int {
	d := tx.q.pd.dev
	if tx.most < txTarget || !tx.q.wire.bare() || d.PDs.N() >= 2 {
		return txTarget
	}
	if !tx.bulk {
		if d.bulk.Add(1) > maxBulk {
			d.bulk.Add(-1)
			return txTarget
		}
		tx.bulk = true
	}
	return min(2*tx.most, txMost)
}

// leaveBulk gives the transmitter's place among those to another one.
func (tx *transmitter) leaveBulk() {
	if tx.bulk {
		tx.bulk = false
		tx.q.pd.dev.bulk.Add(-1)
	}
}

// gatherMin is from how many bytes of payload on a segment is worth a place in the list.
const gatherMin = 2 * mem.WholeWords

// A txRef is a piece of a region between two bytes of a txBuffer.
type txRef struct {
	at int // bytes of the buffer before it
	p  []byte
	mr *soft.MR // acquired
}

// bare reports whether nothing sums up what the connection carries, and the kernel can be
// given pieces of regions.
func (w *wire) bare() bool { return gathers && !w.crc && w.secure == nil }

// len is the number of bytes that are to be written, those behind off and the pieces.
func (tb *txBuffer) len() int { return len(tb.b) - tb.off + tb.apart }

// refer puts a piece of a region behind what the buffer has; mr is acquired for it.
func (tb *txBuffer) refer(p []byte, mr *soft.MR) {
	tb.refs = append(tb.refs, txRef{len(tb.b), p, mr})
	tb.apart += len(p)
}

// drop lets go of the pieces from the nth on.
func (tb *txBuffer) drop(n int) {
	for i := range tb.refs[n:] {
		r := &tb.refs[n+i]
		tb.apart -= len(r.p)
		r.mr.Release()
		*r = txRef{}
	}
	tb.refs = tb.refs[:n]
}

// gather writes buffer and pieces without waiting, once. Behind it there are no pieces any more:
// they are written, or what is left of them is copied into the buffer.
func (tx *transmitter) gather(tb *txBuffer) error {
	list, at := tb.pieces[:0], tb.off
	for i := range tb.refs {
		r := &tb.refs[i]
		list = append(list, tb.b[at:r.at], r.p)
		at = r.at
	}
	if at < len(tb.b) {
		list = append(list, tb.b[at:])
	}
	defer func() {
		clear(list)
		tb.pieces = list[:0]
		tb.drop(0)
	}()
	n, err := tb.sock.writeMany(tx.q.wire.fd, list)
	switch {
	case err == syscall.EAGAIN, err == syscall.EINTR:
		n = 0
	case err != nil:
		return err
	case n == tb.len():
		tx.most = max(tx.most, n)
		tb.off = len(tb.b)
		return nil
	}
	tx.most = min(tx.most/2, n)
	rest := txPool.Get().(*txBuffer)
	for _, p := range list {
		k := min(n, len(p))
		n -= k
		rest.b = append(rest.b, p[k:]...)
	}
	tb.b, rest.b = rest.b, tb.b[:0]
	tb.off = 0
	txPool.Put(rest)
	return nil
}

// appendReadAround frames n bytes of r's source as appendReadResponse does, but leaves all behind
// the first mem.WholeWords bytes of the READ where they are. The caller holds an access to
// the region; took says that it is the buffer's now.
func (tb *txBuffer) appendReadAround(r *response, n uint32, last bool) (took bool) {
	dst, start := proto.BeginFPDU(tb.b)
	dst = proto.AppendTagged(dst, proto.OpReadResponse, last, r.SinkSTag, r.SinkTO+uint64(r.sent))
	from, words := r.SourceTO+uint64(r.sent), uint32(0)
	if r.sent < mem.WholeWords {
		words = min(n, mem.WholeWords-r.sent)
		at := len(dst)
		dst = dst[:at+int(words)]
		mem.Copy(dst[at:], r.mr.Bytes(), from)
	}
	tb.b = dst
	if n > words {
		took = true
		tb.refer(r.mr.Bytes()[from+uint64(words):][:n-words], r.mr)
	}
	tb.b = proto.EndFPDUAround(tb.b, start, int(n-words))
	return took
}
