package iwarp

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/soft"
	"github.com/rdmakv/rdmakv/rdma/iwarp/internal/proto"
)

// Buffers are lent to a connection while bytes move and go back when it is
// idle, so that a thousand idle connections own none.
const (
	// txTarget is how many bytes the transmitter frames before it writes: what one
	// system call takes. The last FPDU may begin just below it.
	txTarget = 128 << 10
	txFirst  = 32 << 10 // of the first one
	// txFrames is how many frames at most go with one system call: the peer has
	// something to do while the rest is made.
	txFrames = 32
	txCap    = txTarget + proto.MaxFPDULen
	// txInlineBudget bounds what one goroutine writes on behalf of others
	// before it hands over to a writer goroutine: PostSend must return and the
	// reader must read.
	txInlineBudget = 1 << 20

	// copyUnlocked is the payload in bytes from which the transmitter lets go
	// of QP.Mu while it copies and checksums.
	copyUnlocked = 2 << 10
)

// A txBuffer is FPDUs on their way to the socket.
type txBuffer struct {
	b      []byte
	off    int      // bytes of b already written
	refs   []txRef  // what stands between them (gather.go); none while the socket is waited for
	apart  int      // bytes of refs
	pieces [][]byte // of one write
	sock   sockWriter
}

var txPool = sync.Pool{New: func() any { return &txBuffer{b: make([]byte, 0, txCap)} }}

// A transmitter is the outgoing direction. QP.Mu guards its fields; those of the first
// group belong to the goroutine that has set busy, also without Mu.
type transmitter struct {
	q *qp

	buf     *txBuffer // set while busy
	target  int       // bytes of the next buffer: the first ones are short, so that the peer has something to do soon
	most    int       // bytes that the socket took whole, of buffers with pieces of regions (gather.go)
	bulk    bool      // it is one of device.bulk
	sendMSN uint32    // of the SEND being framed, or the last one
	readMSN uint32
	rtr     RTR    // the frame to begin with, if any
	first   uint64 // SQ.Next when the buffer was begun: what is framed in it

	busy      bool
	framing   bool             // it copies program memory without Mu
	silent    bool             // an acceptor sends nothing before the first FPDU from the peer
	respTurn  bool             // fairness between responses and requests
	peerReset bool             // the peer has reset the connection: the reader looks whether it said why
	term      *proto.Terminate // what to tell the peer of a dead QP, if anything
	finished  bool             // the last bytes, Terminate or none, have been dealt with
	burst     int              // completions of the reader's last round
	ringing   bool             // a goroutine has let others run first and kicks then
	rings     atomic.Bool      // the next goroutine that looks is to ring
}

// kick sends what can be sent. The caller holds Mu. If there is a transmitter already
// kick returns at once: the transmitter looks again before it stops.
func (tx *transmitter) kick() {
	if tx.busy || tx.q.wire.conn == nil || !tx.pending() {
		return
	}
	tx.busy = true
	tx.buf, tx.target = txPool.Get().(*txBuffer), txTarget
	if tx.q.pd.dev.PDs.N() < 2 { // the first buffer needs no turn then
		tx.target = txFirst
	}
	tx.transmit()
}

// doorbell is kick for a poster. If the last round completed several requests, the
// goroutines that wait for them are about to run, and each will post its next one. So
// the first poster lets them run, and then one system call takes what all of them
// posted. A lone poster never waits. The caller holds Mu; doorbell releases it while
// others run.
func (tx *transmitter) doorbell() {
	switch {
	case tx.ringing:
		return // the goroutine that rings will kick
	case tx.burst < burstMin || tx.busy:
		tx.kick()
		return
	}
	tx.ringing = true
	tx.q.Mu.Unlock()
	runtime.Gosched()
	tx.q.Mu.Lock()
	tx.ringing = false
	tx.kick()
}

// ring sends what was posted since a round that completed many requests at once.
func (tx *transmitter) ring() {
	tx.q.Mu.Lock()
	defer tx.q.Mu.Unlock()
	if tx.rings.Load() {
		tx.rings.Store(false)
		tx.ringing = false
		tx.kick()
	}
}

// burstMin is the number of completions, or of reads, in one round from which on more are
// expected at once.
const burstMin = 4

// pending reports whether fill would produce anything.
func (tx *transmitter) pending() bool {
	if tx.q.StateLocked() == rdma.QPError {
		return !tx.finished
	}
	if tx.peerReset {
		return false
	}
	return tx.rtr != 0 || tx.q.resp.ready() || tx.sendReady()
}

// sending reports whether there is a transmitter: a writer, which waits for the socket.
func (tx *transmitter) sending() bool {
	tx.q.Mu.Lock()
	defer tx.q.Mu.Unlock()
	return tx.busy
}

// sendReady reports whether the next request may go out: not behind a fence
// while READs are under way, and no READ beyond ORD.
func (tx *transmitter) sendReady() bool {
	q := tx.q
	if q.SQ.Next == q.SQ.Tail || tx.silent || q.StateLocked() != rdma.QPRTS {
		return false
	}
	w := q.SQ.At(q.SQ.Next)
	if w.Fence && w.Sent == 0 && q.req.reads > 0 {
		return false
	}
	return w.Op != rdma.OpRDMARead || q.req.reads < q.ORD
}

// transmit fills and writes without waiting, until there is nothing left, the socket is
// full or the budget is spent; in the last two cases a writer goroutine carries on. The
// caller holds Mu and has set busy; transmit returns with Mu held.
func (tx *transmitter) transmit() {
	q := tx.q
	for budget := tx.inlineBudget(); ; {
		tx.fill()
		tb := tx.buf
		if tb.off == len(tb.b) {
			tx.stop()
			return
		}
		if q.wire.secure == nil {
			budget -= tb.len()
			q.Mu.Unlock()
			err := tx.tryWrite(tb)
			q.Mu.Lock()
			if err != nil {
				tx.failed(err)
				return
			}
			q.RetireLocked()
		} // else: TLS knows no write that does not wait
		if tb.off < len(tb.b) || budget <= 0 {
			if q.rx.gone {
				// The QP is dead, and the rest reaches no peer. If a writer began now,
				// Close, which may wait for the workers already, would not know of it;
				// while there is a reader, Close waits for that.
				tx.failed(nil)
				return
			}
			q.Workers.Add(1)
			go tx.writer()
			return
		}
		tb.b, tb.off = tb.b[:0], 0
		tx.afterWrite()
	}
}

// tryWrite gives the socket what it takes without waiting. It bypasses RawConn, whose
// deadline is for goroutines that wait; the transmitter keeps the socket open.
func (tx *transmitter) tryWrite(tb *txBuffer) error {
	if len(tb.refs) > 0 {
		if err := tx.gather(tb); err != nil {
			return err
		}
	}
	for tb.off < len(tb.b) {
		n, err := sockWrite(tx.q.wire.fd, tb.b[tb.off:])
		switch {
		case err == nil:
			tb.off += n
		case err == syscall.EAGAIN:
			return nil
		case err != syscall.EINTR:
			return err
		}
	}
	return nil
}

// writer carries on where transmit stopped, and waits for the socket. For each buffer
// it waits as long as TCP would wait for a dead peer, because a peer that is alive and
// does not read is no better.
func (tx *transmitter) writer() {
	q := tx.q
	defer q.Workers.Done()
	q.Mu.Lock()
	defer q.Mu.Unlock()
	for {
		tb := tx.buf
		if tb.off < len(tb.b) {
			if q.StateLocked() != rdma.QPError {
				_ = q.wire.conn.SetWriteDeadline(time.Now().Add(q.pd.dev.fabric.opts.PeerTimeout))
			}
			q.Mu.Unlock()
			n, err := q.wire.conn.Write(tb.b[tb.off:])
			q.Mu.Lock()
			tb.off += n
			if err != nil {
				tx.failed(err)
				return
			}
		}
		tb.b, tb.off = tb.b[:0], 0
		tx.afterWrite()
		turn := tx.takeTurn()
		tx.fill()
		q.RetireLocked()
		if turn || len(tb.refs) > 0 {
			// The write belongs to the turn, too: it is most of the work. Over TLS,
			// where a write may wait, the turn ends before it.
			q.Mu.Unlock()
			var err error
			if q.wire.secure == nil {
				err = tx.tryWrite(tb)
			}
			if turn {
				q.pd.dev.egress.give()
			}
			q.Mu.Lock()
			if err != nil {
				tx.failed(err)
				return
			}
			if len(tb.b) > 0 {
				continue
			}
		}
		if len(tb.b) == 0 {
			if q.StateLocked() != rdma.QPError {
				_ = q.wire.conn.SetWriteDeadline(time.Time{})
			}
			tx.stop()
			return
		}
	}
}

// afterWrite ends the sending direction once the last bytes of a dead QP are in the
// socket.
func (tx *transmitter) afterWrite() {
	q := tx.q
	if !tx.finished {
		return
	}
	if q.wire.secure == nil {
		_ = q.wire.conn.CloseWrite()
		return
	}
	// TLS has a last message of its own, and may wait for the socket. Once the
	// reader has gone nothing waits for it, and the connection is closed anyway.
	if !q.rx.gone {
		q.Workers.Add(1)
		go func() {
			defer q.Workers.Done()
			_ = q.wire.conn.CloseWrite()
		}()
	}
}

// stop ends this transmitter's turn. Everything is written, and the caller holds Mu.
func (tx *transmitter) stop() {
	tx.afterWrite()
	tx.release()
	tx.q.settle()
}

// release gives the buffer back: there is no transmitter any more. QP.Mu is held.
func (tx *transmitter) release() {
	tb := tx.buf
	tb.drop(0)
	tb.b, tb.off = tb.b[:0], 0
	tx.buf = nil
	if cap(tb.b) <= txCap { // else it has grown for what a socket did not take
		txPool.Put(tb)
	}
	tx.leaveBulk()
	tx.busy = false
	if tx.q.rx.gone {
		_ = tx.q.wire.conn.Close()
	}
}

// failed ends the connection: nothing can be sent on it any more. But a peer that
// refused something says so in a Terminate and closes, and a request that we send
// meanwhile makes its kernel reset the connection. Then the reason is still unread in
// our socket. So after a reset the reader, which finds either the Terminate or the end
// of the stream, decides how the connection has ended.
func (tx *transmitter) failed(err error) {
	q := tx.q
	tx.release()
	if q.StateLocked() != rdma.QPError && !q.rx.gone && isReset(err) {
		tx.peerReset = true
		tx.unsend()
		_ = q.wire.conn.SetReadDeadline(time.Now().Add(lingerTimeout))
		return
	}
	tx.finished = true
	q.FailLocked(lost("write", err))
	// This is done also when the QP was dead before: nothing is left to say, and the
	// reader must not wait for an answer.
	_ = q.wire.conn.SetReadDeadline(time.Now())
	q.settle()
}

// unsend takes back that the requests of the lost buffer were carried out, as far as
// they have no completion yet: they fail with the connection.
func (tx *transmitter) unsend() {
	q := tx.q
	first := max(q.SQ.Head, tx.first)
	for i := first; i < q.SQ.Next; i++ {
		if w := q.SQ.At(i); w.Op != rdma.OpRDMARead { // the reader knows of READs
			w.Done = false
		}
	}
	q.SQ.Next = first
}

// isReset reports whether a write failed because the peer has closed.
func isReset(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// fill frames what may go out into the transmit buffer, about tx.target bytes, in turns
// one response and one request. The buffer itself takes no more than txCap. The caller
// holds Mu; fill may release it while it copies.
func (tx *transmitter) fill() {
	q := tx.q
	tb := tx.buf
	tx.first = q.SQ.Next
	defer func() { tx.target = min(2*tx.target, tx.longest()) }()
	for frames := 0; tb.len() < tx.target && len(tb.b) < txTarget && frames < txFrames; frames++ {
		start, refs := len(tb.b), len(tb.refs)
		if q.StateLocked() == rdma.QPError {
			tx.fillLast(tb)
			q.settle()
			return
		}
		ok := true
		switch {
		case tx.rtr != 0:
			tx.frameRTR(tb)
		case q.resp.ready() && (tx.respTurn || !tx.sendReady()):
			tx.respTurn = false
			ok = q.resp.frame(tb)
		case tx.sendReady():
			tx.respTurn = true
			ok = tx.frameRequest(tb)
		default:
			return
		}
		if !ok {
			tb.drop(refs) // a segment that was not completed
			tb.b = tb.b[:start]
		}
	}
}

// fillLast appends the Terminate, if there is one to send, once.
func (tx *transmitter) fillLast(tb *txBuffer) {
	if tx.finished {
		return
	}
	tx.finished = true
	if t := tx.term; t != nil {
		tb.b = proto.AppendTerminate(tb.b, t, tx.q.wire.crc)
	}
}

// lost is the end of a connection whose TCP stream broke.
func lost(what string, err error) soft.Cause {
	if err == nil || errors.Is(err, io.EOF) {
		err = errors.New("the peer closed the connection")
	}
	return soft.Cause{
		Err:  fmt.Errorf("%w: %s: %w", rdma.ErrPeerGone, what, err),
		Send: rdma.StatusRetryExcErr,
	}
}
