package transport

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// An out is a lane of messages to a node.
type out struct {
	t     *Transport
	key   outKey
	limit int
	wake  chan struct{} // capacity 1: there is something to send

	ctx   context.Context
	close context.CancelFunc

	mu    sync.Mutex
	queue []byte // frames that wait, one behind the other

	posting sync.Mutex // who holds it posts
	way                // guarded by posting
}

// A way is what frames are posted to.
type way struct {
	e     *end // nil: there is none
	f     *flow
	whole []byte // that was taken off the queue
	batch []byte // the rest of it, to be posted
}

func newOut(t *Transport, key outKey) *out {
	o := &out{t: t, key: key, limit: QueueBulk, wake: make(chan struct{}, 1)}
	if key.lane == wire.LaneUrgent {
		o.limit = QueueUrgent
	}
	o.ctx, o.close = context.WithCancel(t.ctx)
	return o
}

// send queues messages, and posts them at once if the way is open and has room: to wake a goroutine for it would take longer.
func (o *out) send(b []byte) {
	o.mu.Lock()
	if len(o.queue)+len(b) > o.limit {
		o.mu.Unlock()
		return
	}
	o.queue = append(o.queue, b...)
	o.mu.Unlock()
	posted := false
	if o.posting.TryLock() {
		posted = o.e != nil && o.post()
		o.posting.Unlock()
	}
	if !posted {
		o.poke()
	}
}

// take returns what is queued, and keeps the memory of what was taken before.
func (o *out) take(spare []byte) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := o.queue
	o.queue = spare[:0]
	return b
}

// How long a node that cannot be reached is left alone.
const (
	backoffFirst = 20 * time.Millisecond
	backoffMost  = time.Second
)

// run opens the way, and opens it again when it has ended.
func (o *out) run() {
	backoff := backoffFirst
	told := ""
	for o.ctx.Err() == nil {
		select {
		case <-o.wake:
		case <-o.ctx.Done():
			return
		}
		e, credits, err := o.t.dial(o.ctx, o.key)
		if err != nil {
			o.take(nil) // it would be old when the way is open
			if text := err.Error(); text != told && o.ctx.Err() == nil {
				told = text
				o.t.c.Logger.Warn("a node is not reached", "node", o.key.node, "lane", o.key.lane, "err", err)
			}
			select {
			case <-time.After(backoff):
			case <-o.ctx.Done():
			}
			backoff = min(2*backoff, backoffMost)
			continue
		}
		backoff, told = backoffFirst, ""
		err = o.serve(e, credits)
		e.close()
		if o.ctx.Err() == nil {
			o.t.c.Logger.Info("a way to a node has ended", "node", o.key.node, "lane", o.key.lane, "err", err)
			o.poke()
		}
	}
}

func (o *out) poke() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// A flow is what a way can send just now. Of as many SENDs as half of the slots the last one is signaled (selective signaling): the SENDs of a
// queue pair complete in order, so its completion stands for those before it, and listen is woken once for all of them. A SEND that fails
// completes in any case.
type flow struct {
	mu       sync.Mutex
	free     []int // slots
	posted   []int // slots, in the order in which they were claimed
	signaled int   // of posted
	silent   int   // how many of posted stand behind the last one that is signaled
	slots    int
	credits  int
	most     int // credits
	err      error
}

// claim takes a slot and a credit; ok false: there is none. It says whether the SEND is to be signaled: if none of those that fill the slots
// were, no slot would ever be free again.
func (f *flow) claim() (slot int, signaled, ok bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.free)
	if f.err != nil || n == 0 || f.credits == 0 {
		return 0, false, false, f.err
	}
	slot, f.free = f.free[n-1], f.free[:n-1]
	f.credits--
	f.posted = append(f.posted, slot)
	f.silent++
	if signaled = f.silent >= max(1, f.slots/2); signaled {
		f.signaled++
		f.silent = 0
	}
	return slot, signaled, true, nil
}

// give gives back slots whose SENDs have completed, with those that were claimed before them, and credits.
func (f *flow) give(slots []int, credits int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, slot := range slots {
		i := slices.Index(f.posted, slot)
		if i < 0 || f.signaled == 0 {
			return fmt.Errorf("transport: slot %d has completed and was not posted", slot)
		}
		f.free = append(f.free, f.posted[:i+1]...)
		f.posted = slices.Delete(f.posted, 0, i+1)
		f.signaled--
	}
	if f.credits += credits; f.credits > f.most {
		return fmt.Errorf("%w: %d credits, of %d", errProtocol, f.credits, f.most)
	}
	return nil
}

// waits reports whether the other node owes something: a SEND that is signaled is not completed, or there is no
// credit. Both come soon, or never: the other end may have gone without a word.
func (f *flow) waits() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.signaled > 0 || f.credits == 0
}

func (f *flow) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

// serve sends what is queued until the way ends. One goroutine posts, another one takes
// completions.
func (o *out) serve(e *end, credits int) error {
	f := &flow{free: e.free, slots: e.sends, credits: credits, most: credits}
	e.free = nil
	o.open(way{e: e, f: f})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.fail(o.listen(e, f))
		o.poke()
	}()
	err := o.push(f)
	o.open(way{})
	e.qp.Disconnect()
	<-ended
	return err
}

// open has frames posted to a way from here on, and nobody posts to the one before when it returns.
func (o *out) open(w way) {
	o.posting.Lock()
	defer o.posting.Unlock()
	o.way = w
}

// push posts what is queued, whenever there is something that nobody has posted, until the way ends.
func (o *out) push(f *flow) error {
	for {
		o.posting.Lock()
		o.post()
		o.posting.Unlock()
		if err := f.why(); err != nil {
			return err
		}
		select {
		case <-o.wake:
		case <-o.ctx.Done():
			return o.ctx.Err()
		}
	}
}

// post posts what is queued, as far as there are slots and credits: listen pokes when there are more. False: the way has failed.
// Caller holds posting.
func (o *out) post() bool {
	for {
		if len(o.batch) == 0 {
			o.whole = o.take(o.whole)
			if o.batch = o.whole; len(o.batch) == 0 {
				return true
			}
		}
		slot, signaled, ok, err := o.f.claim()
		if err != nil {
			return false
		}
		if !ok {
			return true
		}
		n := copy(o.e.sendSlot(slot)[head:], o.batch)
		o.batch = o.batch[n:]
		if err := o.e.post(slot, n, message{kind: kindData, last: len(o.batch) == 0}, signaled); err != nil {
			o.f.fail(err)
			return false
		}
	}
}

func (f *flow) why() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// listen takes completions until the way ends, or the other node owes something for too long.
func (o *out) listen(e *end, f *flow) error {
	late := false
	for {
		wait, cancel := context.WithTimeout(o.ctx, o.t.c.Stall)
		err := e.poll(wait)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && o.ctx.Err() == nil {
			waits := f.waits()
			if waits && late {
				return fmt.Errorf("neither completions nor credits for %v: %w", o.t.c.Stall, rdma.ErrPeerGone)
			}
			late = waits
			continue
		}
		if err != nil {
			return err
		}
		late = false
		credits := 0
		for len(e.done) > 0 {
			m, slot, err := e.hear(o.ctx)
			if err != nil {
				return err
			}
			if m.kind != kindCredit || m.value == 0 || int64(m.value) > int64(f.most) {
				return fmt.Errorf("%w: a message of kind %d, value %d", errProtocol, m.kind, m.value)
			}
			credits += int(m.value)
			if err := e.recv(slot); err != nil {
				return err
			}
		}
		if err := f.give(e.free, credits); err != nil {
			return err
		}
		e.free = e.free[:0]
		o.poke()
	}
}

// maxCredits is how many credits a way can have.
const maxCredits = 1 << 10

// dial opens a way to a node.
func (t *Transport) dial(ctx context.Context, key outKey) (e *end, credits int, err error) {
	routes := t.c.Routes(key.node)
	err = fmt.Errorf("%w: no route to node %s", rdma.ErrNoDevice, key.node)
	for _, r := range routes {
		if e, credits, err = t.dialRoute(ctx, key, r); err == nil || errors.Is(err, ErrOlder) {
			return e, credits, err
		}
	}
	return nil, 0, err
}

// dialRoute opens a way by a route, in the highest version that both ends speak. A node that speaks lower ones alone, and knows nothing else, rejects the request,
// and says which it speaks: then it is asked once more, in that one.
func (t *Transport) dialRoute(ctx context.Context, key outKey, r Route) (e *end, credits int, err error) {
	speaks := t.older.speaks(key.node, t.c.Speaks)
	e, credits, err = t.dialAs(ctx, key, r, speaks)
	var other *versionsError
	if !errors.As(err, &other) {
		return e, credits, err
	}
	high, ok := speaks.Common(other.speaks)
	if !ok || high == speaks.Max {
		return e, credits, err
	}
	t.older.note(key.node, high)
	return t.dialAs(ctx, key, r, wire.NodeVersions{Min: speaks.Min, Max: high})
}

// dialAs opens a way by a route as a node that speaks some versions.
func (t *Transport) dialAs(ctx context.Context, key outKey, r Route, speaks wire.NodeVersions) (e *end, credits int, err error) {
	ctx, cancel := context.WithTimeout(ctx, SetupTimeout)
	defer cancel()
	access := rdma.Access(0)
	if key.lane == wire.LaneState {
		access = rdma.AccessRemoteRead
	}
	if e, err = t.newEnd(r.Device, dials[key.lane], access); err != nil {
		return nil, 0, err
	}
	made := e
	defer func() {
		if err != nil {
			made.close()
		}
	}()
	c := wire.NodeConnect{Versions: speaks, Lane: key.lane}
	if _, err := rand.Read(c.Nonce[:]); err != nil {
		return nil, 0, err
	}
	connect := wire.AppendNodeConnect(nil, t.c.Secret, c)
	info, err := e.qp.Connect(ctx, r.Addr, rdma.ConnParams{PrivateData: connect})
	if err != nil {
		private := info.PrivateData
		if key.lane == wire.LaneAsk {
			err = rejected(private, err)
		}
		return nil, 0, t.foreign(private, speaks, err)
	}
	accept := wire.Unpad(info.PrivateData, wire.NodeAcceptSize)
	if !wire.VerifyNodeAccept(t.c.Secret, connect, accept) {
		return nil, 0, fmt.Errorf("transport: %s does not know the cluster's secret", r.Addr)
	}
	hello := wire.AppendNodeHello(nil, t.c.Secret, connect, accept, wire.NodeHello{
		Cluster: t.c.Cluster, Store: t.c.Store, From: []byte(t.c.Name), To: []byte(key.node), Openings: t.c.Openings,
	})
	if err := e.say(ctx, message{kind: kindHello, body: hello}); err != nil {
		return nil, 0, err
	}
	m, slot, err := e.hear(ctx)
	if err != nil {
		return nil, 0, err
	}
	if m.kind == kindRefusal {
		return nil, 0, t.setBack(key.node, m.body, connect, accept)
	}
	if m.kind != kindWelcome || m.value == 0 || m.value > maxCredits {
		return nil, 0, fmt.Errorf("%w: kind %d for a welcome", errProtocol, m.kind)
	}
	return e, int(m.value), e.recv(slot)
}

// setBack handles the refusal of a node: what it has seen of this one is told, if it is none of this one's openings. A refusal of an opening
// that this node knows of tells of a fault of the other one, and ends nothing but the way.
func (t *Transport) setBack(by string, refusal, connect, accept []byte) error {
	seen, genuine := wire.ParseNodeRefusal(refusal, t.c.Secret, connect, accept)
	if !genuine {
		return fmt.Errorf("%w: a refusal that answers another way", errProtocol)
	}
	if slices.Contains(t.c.Openings, seen) {
		return fmt.Errorf("%w: node %s refuses this one for its own start in epoch %d", errProtocol, by, seen.Epoch)
	}
	if t.c.SetBack != nil {
		t.c.SetBack(by, seen)
	}
	return &SetBackError{Node: t.c.Name, Seen: seen, Says: t.c.Openings[0]}
}

// Meet returns when a node has let this one speak (Config.Admit), with its *SetBackError, or with the last error when ctx ends. It tries again until then.
func (t *Transport) Meet(ctx context.Context, node string) error {
	for rest := backoffFirst; ; rest = min(2*rest, backoffMost/4) {
		e, _, err := t.dial(ctx, outKey{node, wire.LaneUrgent})
		if err == nil {
			e.qp.Disconnect()
			e.close()
			return nil
		}
		var back *SetBackError
		if errors.As(err, &back) {
			return err
		}
		select {
		case <-time.After(rest):
		case <-ctx.Done():
			return err
		case <-t.ctx.Done():
			return consensus.ErrClosed
		}
	}
}
