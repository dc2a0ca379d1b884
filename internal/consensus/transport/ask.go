package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// Bounds of questions.
const (
	MaxAsk       = 1 << 20 // bytes of a question, and of an answer: a cluster's map (cluster.MaxMap) and much more
	MaxAsking    = 8       // questions to one node that have no answer yet
	MaxAnswering = 64      // questions of all nodes that are being answered

	// AskIdle is for how long a way of questions stays open on which nobody waits for an answer.
	AskIdle = time.Minute
)

// Errors of Ask. They are wrapped with what they are about.
var (
	// ErrSelf: the node is this one.
	ErrSelf = errors.New("transport: a node asks others, not itself")
	// ErrQuestion: the question has more than MaxAsk bytes; nothing was asked.
	ErrQuestion = errors.New("transport: the question is too large")
	// ErrOlder: the node does not know questions, and was not asked. It rejects their way without a reason, which a node of this version never
	// does; a fabric does so in its place if more requests wait than its listener keeps, and is taken for it.
	ErrOlder = errors.New("transport: the node is of an older version, which answers no questions: update it")
	// ErrNoAnswers: the node knows questions, and answers none (Config.Answer is nil).
	ErrNoAnswers = errors.New("transport: the node answers no questions")
)

// An AskError is what a node has said in the place of an answer.
type AskError struct {
	Node string
	Text string // what Config.Answer has said there; cleaned, at most wire.MaxDetail bytes
	// Err is consensus.ErrBusy (the node answers as many questions as it may, of all nodes or of this one: ask again later), consensus.ErrClosed,
	// ErrNoAnswers, or nil.
	Err error
}

func (e *AskError) Error() string {
	return fmt.Sprintf("transport: node %q gives no answer: %s", e.Node, e.Text)
}

func (e *AskError) Unwrap() error { return e.Err }

// A LostError says that the way of a question ended before the answer came. The node may have handled the question, or may do so still.
type LostError struct {
	Node string
	Err  error // why the way has ended
}

func (e *LostError) Error() string {
	return fmt.Sprintf("transport: the way to node %q ended before its answer came: %v; it may have handled the question: ask again if it may be asked twice", e.Node, e.Err)
}

func (e *LostError) Unwrap() error { return e.Err }

// Ask asks a node a question, and returns its answer, which is the caller's. The question stays the caller's, too: nothing is kept of it when
// Ask returns. Questions to one node go over one way, which is opened for the first and closed when none was asked for AskIdle. MaxAsking may be
// under way to a node; more wait. A question is handled at most once, because it is never sent again.
//
// Ask returns when ctx ends, with its error; the question may be handled all the same, and holds its place among the MaxAsking until its answer
// comes or its way ends. If nobody waits for any of the MaxAsking, the way is ended.
//
// Errors: ErrSelf, ErrQuestion, ErrOlder, consensus.ErrClosed (the transport is closed, or the node forgotten), rdma.ErrNoDevice (there is no route)
// and others of dialing, such as consensus.ErrBusy and *SetBackError: nothing was asked. *AskError: the node has refused the question, or failed at
// it. *LostError, ctx's: the outcome is not known.
func (t *Transport) Ask(ctx context.Context, node string, question []byte) (answer []byte, err error) {
	if node == t.c.Name {
		return nil, fmt.Errorf("%w: node %q", ErrSelf, node)
	}
	if len(question) > MaxAsk {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrQuestion, len(question), MaxAsk)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	a, err := t.asker(node)
	if err != nil {
		return nil, err
	}
	return a.ask(ctx, bytes.Clone(question))
}

// asker returns what asks a node.
func (t *Transport) asker(node string) (*asker, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil {
		return nil, consensus.ErrClosed
	}
	a := t.asks[node]
	if a == nil {
		if len(t.c.Routes(node)) == 0 {
			return nil, fmt.Errorf("%w: no route to node %s", rdma.ErrNoDevice, node)
		}
		a = &asker{t: t, node: node, places: make(chan struct{}, MaxAsking)}
		a.ctx, a.close = context.WithCancel(t.ctx)
		t.asks[node] = a
	}
	return a, nil
}

// An asker asks a node.
type asker struct {
	t      *Transport
	node   string
	ctx    context.Context
	close  context.CancelFunc
	places chan struct{} // one for each question that has no answer

	mu      sync.Mutex
	way     *asking // the last one that was opened; nil: none was
	dialing *dialing
}

// A dialing is a way that is being opened, for all who want to ask.
type dialing struct {
	done chan struct{} // closed when way or err is set
	way  *asking
	err  error
}

// ask asks when there is a place, and waits for the answer. The question is the asker's from then on.
func (a *asker) ask(ctx context.Context, question []byte) ([]byte, error) {
	select {
	case a.places <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-a.ctx.Done():
		return nil, consensus.ErrClosed
	}
	p, err := a.post(ctx, question)
	if err != nil {
		<-a.places
		return nil, err
	}
	select {
	case <-p.done:
		return p.answer, p.err
	case <-ctx.Done():
		p.way.abandon(p)
		return nil, ctx.Err()
	}
}

// post puts a question on a way to the node.
func (a *asker) post(ctx context.Context, question []byte) (*pending, error) {
	for range 2 { // the way that is open may end before the question is on it; one that has just been opened hardly does
		way, err := a.open(ctx)
		if err != nil {
			return nil, err
		}
		if p := way.ask(question); p != nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("%w: the ways to node %q end as soon as they are open", rdma.ErrPeerGone, a.node)
}

// open returns a way to the node.
func (a *asker) open(ctx context.Context) (*asking, error) {
	a.mu.Lock()
	if a.way != nil && a.way.ctx.Err() == nil {
		defer a.mu.Unlock()
		return a.way, nil
	}
	d := a.dialing
	if d == nil {
		d = &dialing{done: make(chan struct{})}
		if !a.t.goes(func() { a.run(d) }) {
			a.mu.Unlock()
			return nil, consensus.ErrClosed
		}
		a.dialing = d
	}
	a.mu.Unlock()
	select {
	case <-d.done:
		return d.way, d.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// run opens a way, and serves it until it ends.
func (a *asker) run(d *dialing) {
	e, credits, err := a.t.dial(a.ctx, outKey{a.node, wire.LaneAsk})
	switch {
	case err == nil:
		d.way = newAsking(a, e, credits)
	case a.ctx.Err() != nil:
		d.err = consensus.ErrClosed
	default:
		d.err = fmt.Errorf("transport: node %q is not asked: %w", a.node, err)
	}
	a.mu.Lock()
	a.dialing, a.way = nil, d.way
	a.mu.Unlock()
	close(d.done)
	if d.way == nil {
		return
	}
	err = d.way.serve()
	e.close()
	if a.ctx.Err() == nil && !errors.Is(err, errIdle) {
		a.t.c.Logger.Info("a way to a node has ended", "node", a.node, "lane", wire.LaneAsk, "err", err)
	}
}

// Why a way of questions is ended by the end that asks.
var (
	errIdle      = errors.New("transport: nobody has asked for a while")
	errAbandoned = errors.New("transport: nobody waits any more for what was asked")
	errIDs       = errors.New("transport: the ids of questions are used up")
)

// An asking is the end of a way that asks.
type asking struct {
	*talk
	a *asker

	// guarded by talk.mu
	asked     map[uint32]*pending // what has no answer
	abandoned int                 // of asked
	last      uint32              // id
	used      time.Time           // when somebody asked or was answered
}

// A pending is a question that has no answer yet. answer and err are set before done is closed.
type pending struct {
	way       *asking
	s         *speech
	done      chan struct{}
	answer    []byte
	err       error
	abandoned bool
}

func newAsking(a *asker, e *end, credits int) *asking {
	w := &asking{talk: newTalk(a.ctx, a.t, a.node, e, credits, e.grants()), a: a, asked: map[uint32]*pending{}, used: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pump()
	return w
}

// ask sends a question, which is the way's from then on. Its place is given back when it has an answer, or the way ends. nil: the way has
// ended, and nothing was asked.
func (w *asking) ask(question []byte) *pending {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == math.MaxUint32 {
		w.fail(errIDs)
	}
	if w.err != nil {
		return nil
	}
	w.last++
	p := &pending{way: w, s: &speech{kind: kindQuestion, id: w.last, rest: question}, done: make(chan struct{})}
	w.asked[w.last], w.used = p, time.Now()
	w.queue = append(w.queue, p.s)
	w.pump()
	return p
}

// abandon is that nobody waits for an answer any more. A question of which nothing was sent is not asked.
func (w *asking) abandon(p *pending) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asked[p.s.id] != p {
		return
	}
	if i := slices.Index(w.queue, p.s); i >= 0 && !p.s.begun {
		w.queue = slices.Delete(w.queue, i, i+1)
		w.settle(p, nil, errAbandoned)
		return
	}
	p.abandoned = true
	w.used = time.Now()
	if w.abandoned++; w.abandoned == MaxAsking {
		w.fail(errAbandoned)
	}
}

// settle gives a question its answer, and its place back. Caller holds mu.
func (w *asking) settle(p *pending, answer []byte, err error) {
	delete(w.asked, p.s.id)
	if p.abandoned {
		w.abandoned--
	} else {
		w.used = time.Now()
	}
	p.answer, p.err = answer, err
	<-w.a.places
	close(p.done)
}

// serve takes answers until the way ends.
func (w *asking) serve() error {
	err := w.listen(w.hear, w.rest)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.a.ctx.Err() != nil {
		err = consensus.ErrClosed
	}
	for _, p := range w.asked {
		w.settle(p, nil, &LostError{w.node, err})
	}
	w.queue, w.part = nil, gathered{} // the asker keeps the way until it opens another one
	return err
}

// rest ends the way if nobody has waited for an answer for AskIdle.
func (w *asking) rest() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.asked) == w.abandoned && time.Since(w.used) >= AskIdle {
		w.fail(errIdle) // within mu, so that nobody asks meanwhile
		return errIdle
	}
	return nil
}

// hear takes a part of an answer, or a failure.
func (w *asking) hear(m message) error {
	if m.kind != kindAnswer && m.kind != kindFailure {
		return fmt.Errorf("%w: a message of kind %d", errProtocol, m.kind)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.asked[m.value]
	if p == nil || slices.Index(w.queue, p.s) >= 0 {
		return fmt.Errorf("%w: an answer to question %d, which was not asked, or has one", errProtocol, m.value)
	}
	if m.kind == kindFailure {
		failed, err := parseFailure(w.node, m)
		if err == nil && w.part.id != 0 {
			err = fmt.Errorf("%w: a failure within answer %d", errProtocol, w.part.id)
		}
		if err == nil {
			w.settle(p, nil, failed)
		}
		return err
	}
	body, whole, err := w.gather(m)
	if whole {
		w.settle(p, body, nil)
	}
	return err
}
