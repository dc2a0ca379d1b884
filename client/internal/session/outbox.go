package session

import (
	"runtime"
	"sync"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// An outbox posts the requests of a session in the order of their numbers, those
// of many callers with one doorbell:
//
//	caller A   number, queue ─ let others run ─ post A B C ─ wait for the reply
//	caller B   number, queue ───────────────────────────── wait for the reply
//	caller C   number, queue ───────────────────────────── wait for the reply
//
// One caller at a time posts, what the others have queued too. Where several
// requests are under way, replies come several at a time, and each caller that
// one wakes sends its next request: so the one that posts lets those run first. A caller
// that is alone posts at once.
//
// Only the last request of a post is signaled: the sends of a queue pair
// complete in order, so its completion frees the buffers of all.
//
// Small requests that are posted together travel as packs, if the server takes them: one message,
// in the buffer of the first, under one seal (internal/wire/pack.go). Each has its slot, its credit
// and its reply as if it had travelled alone.
type outbox struct {
	mu      sync.Mutex
	posting bool    // a caller posts, and will look into queue again
	queue   []*Slot // not posted, oldest first

	packs bool // both ends have named the feature; set before the first message
	most  int  // bytes of a message that the server takes; set behind Hello, before others post

	// These are of the caller that posts.
	seal  *wire.Seal // of what is sent
	batch []*Slot
	wrs   []rdma.SendWR
}

const (
	// companyMin is from how many requests under way on others are let run
	// before a post.
	companyMin = 3
	// outboxRounds bounds how often a caller posts what others have queued
	// meanwhile before a goroutine takes that over.
	outboxRounds = 4
	// packedMost bounds the requests that are copied into a pack: to copy more costs what a
	// message of their own does.
	packedMost = 2 << 10
)

// send has the request in sl's buffer posted. An error
// means that it was not and will not be. A request that is still queued when the
// connection ends is lost like one that was posted.
func (l *link) send(sl *Slot) error {
	o := &l.outbox
	o.mu.Lock()
	o.queue = append(o.queue, sl)
	if o.posting {
		o.mu.Unlock()
		return nil
	}
	o.posting = true
	if l.life.users.Load() >= companyMin {
		o.mu.Unlock()
		runtime.Gosched()
		o.mu.Lock()
	}
	err := l.postQueued()
	if err != nil && len(o.batch) == 1 && len(o.queue) == 0 {
		o.seal.Unseal() // no message was numbered behind it
		o.posting = false
		o.mu.Unlock()
		return err
	}
	for i := 1; err == nil && len(o.queue) > 0; i++ {
		if i == outboxRounds {
			go l.postRest() // what is queued keeps the session in use
			o.mu.Unlock()
			return nil
		}
		err = l.postQueued()
	}
	l.posted(err)
	return nil
}

// enqueue queues the request in sl's buffer, which PostQueued posts, or another call.
func (l *link) enqueue(sl *Slot) {
	o := &l.outbox
	o.mu.Lock()
	o.queue = append(o.queue, sl)
	o.mu.Unlock()
}

// PostQueued posts the requests of Slot.Queue with one doorbell, unless another call is about
// to. If the queue pair does not take them they are lost as requests are that were posted.
func (l *link) PostQueued() {
	o := &l.outbox
	o.mu.Lock()
	if o.posting || len(o.queue) == 0 {
		o.mu.Unlock()
		return
	}
	o.posting = true
	o.mu.Unlock()
	l.postRest()
}

// postRest posts what is queued until there is nothing.
func (l *link) postRest() {
	o := &l.outbox
	o.mu.Lock()
	var err error
	for err == nil && len(o.queue) > 0 {
		err = l.postQueued()
	}
	l.posted(err)
}

// postQueued posts everything that is queued, which is in o.batch then. It fails
// if the queue pair has not taken all. o.mu is held, but not while it posts.
func (l *link) postQueued() error {
	o := &l.outbox
	o.batch, o.queue = o.queue, o.batch[:0]
	o.wrs = o.wrs[:0]
	o.mu.Unlock()
	var last *Slot
	for rest := o.batch; len(rest) > 0; {
		n := l.pack(rest)
		for _, sl := range rest[:n] {
			sl.before, last = last, sl
		}
		first := rest[0]
		o.seal.Seal(first.Buf[:first.sgl[0].Len]) // numbered as it travels
		o.wrs = append(o.wrs, rdma.SendWR{Op: rdma.OpSend, SGL: first.sgl[:]})
		rest = rest[n:]
	}
	sent := l.d.NewOp()
	sent.OnDetached(last.onSent)
	end := &o.wrs[len(o.wrs)-1]
	end.ID, end.Flags = sent.ID(), rdma.SendSignaled
	n, err := l.QP.PostSend(o.wrs)
	if n == len(o.wrs) {
		l.d.Detach(sent) // onSent runs when the buffers are ours again
		err = nil
	} else {
		l.d.Release(sent)
	}
	o.mu.Lock()
	return err
}

// pack puts the first of these requests that may travel together into one message, in the
// buffer of the first; n is how many they are, and 1 if there is no pack. The buffers are the
// caller's that posts.
func (l *link) pack(slots []*Slot) (n int) {
	if !l.outbox.packs || len(slots) < 2 {
		return 1
	}
	size := wire.HeaderSize
	for n < min(len(slots), wire.MaxPacked) {
		sl := slots[n]
		length := int(sl.sgl[0].Len)
		size += wire.PackedSize(length)
		if length > packedMost || size > l.outbox.most || !wire.Packable(sl.Buf) {
			break
		}
		n++
	}
	if n < 2 {
		return 1
	}
	first := slots[0]
	msg := wire.PackInto(first.Buf, int(first.sgl[0].Len))
	for _, sl := range slots[1:n] {
		msg = wire.AppendPacked(msg, sl.Buf[:sl.sgl[0].Len])
	}
	first.sgl[0].Len = uint32(len(msg))
	return n
}

// posted ends posting. If the queue pair has refused something, the connection is
// over, and with it what is numbered: no buffer comes back by a completion of its
// own. It lets go of o.mu.
func (l *link) posted(err error) {
	o := &l.outbox
	var lost []*Slot
	if err != nil {
		lost = append(append(lost, o.batch...), o.queue...)
		o.queue = o.queue[:0]
	}
	o.posting = false
	o.mu.Unlock()
	if err == nil {
		return
	}
	l.life.Fail(postError(err))
	for _, sl := range lost {
		sl.before = nil
		sl.part()
	}
}
