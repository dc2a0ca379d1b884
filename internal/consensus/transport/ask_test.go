package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// An answerer is what a Config.Answer can be.
type answerer func(ctx context.Context, node string, question []byte) ([]byte, error)

// echo answers who asked, and what.
func echo(_ context.Context, node string, question []byte) ([]byte, error) {
	return append([]byte(node+": "), question...), nil
}

// asks makes node a, and node b, which answers.
func asks(t *testing.T, answer answerer) (a, b *site) {
	l := &lan{sites: map[string]*site{}}
	a = l.open(t, "a", nil)
	b = l.open(t, "b", func(c *Config) { c.Answer = answer })
	t.Cleanup(func() { a.end(t); b.end(t) })
	return a, b
}

// within bounds a test that would hang.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), teeth.Patience(20*time.Second))
	t.Cleanup(cancel)
	return ctx
}

// reach waits until f holds.
func reach(t *testing.T, what string, f func() bool) {
	t.Helper()
	for limit := time.Now().Add(teeth.Patience(20 * time.Second)); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("it does not come to this: %s", what)
		}
	}
}

// wayOf is the way of questions that is open to a node; nil: there is none.
func (t *Transport) wayOf(node string) *asking {
	t.mu.Lock()
	a := t.asks[node]
	t.mu.Unlock()
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.way
}

// places are how many questions to a node have no answer.
func (t *Transport) places(node string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a := t.asks[node]; a != nil {
		return len(a.places)
	}
	return 0
}

// answering are how many questions are being answered.
func (t *Transport) answering() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy.all == 0 && len(t.busy.of) > 0 {
		return -1
	}
	return t.busy.all
}

// TestAsk: questions of any size are answered, each with its own answer, over one way, and the question stays the caller's.
func TestAsk(t *testing.T) {
	a, b := asks(t, func(_ context.Context, node string, question []byte) ([]byte, error) {
		if node != "a" {
			return nil, fmt.Errorf("node %q asks", node)
		}
		for i := range question {
			question[i]++ // it is its own
		}
		return question, nil
	})
	ctx := within(t)
	part := 16<<10 - head
	var first *asking
	for _, size := range []int{0, 1, part - 1, part, part + 1, 2 * part, 100_000, MaxAsk - 1, MaxAsk} {
		question := make([]byte, size)
		rand.NewChaCha8([32]byte{byte(size)}).Read(question)
		before, want := bytes.Clone(question), bytes.Clone(question)
		for i := range want {
			want[i]++
		}
		answer, err := a.Ask(ctx, "b", question)
		if err != nil || !bytes.Equal(answer, want) {
			t.Fatalf("%d bytes: %d come back, %v", size, len(answer), err)
		}
		if !bytes.Equal(question, before) {
			t.Errorf("%d bytes: the question is changed", size)
		}
		if first == nil {
			first = a.wayOf("b")
		}
	}
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			question := bytes.Repeat([]byte{byte(i)}, i*997)
			answer, err := a.Ask(ctx, "b", question)
			if err != nil || !bytes.Equal(answer, bytes.Repeat([]byte{byte(i + 1)}, i*997)) {
				t.Errorf("question %d beside others: %d bytes, %v", i, len(answer), err)
			}
		})
	}
	all.Wait()
	if a.wayOf("b") != first {
		t.Error("another way was opened")
	}
	reach(t, "nothing is left of them", func() bool { return a.places("b") == 0 && b.answering() == 0 })
}

// TestAskRefused: what cannot be asked, and what is not answered, is told by its type.
func TestAskRefused(t *testing.T) {
	a, b := asks(t, func(_ context.Context, _ string, question []byte) ([]byte, error) {
		switch string(question) {
		case "busy":
			return nil, fmt.Errorf("of my own: %w", consensus.ErrBusy)
		case "closed":
			return nil, consensus.ErrClosed
		case "long":
			return make([]byte, MaxAsk+1), nil
		case "text":
			return nil, errors.New("the disk\x1b[31m\nis " + strings.Repeat("full", 1000))
		}
		return nil, nil
	})
	ctx := within(t)
	if _, err := a.Ask(ctx, "a", nil); !errors.Is(err, ErrSelf) {
		t.Errorf("itself: %v", err)
	}
	if _, err := a.Ask(ctx, "nobody", nil); !errors.Is(err, rdma.ErrNoDevice) {
		t.Errorf("nobody: %v", err)
	}
	if _, err := a.Ask(ctx, "b", make([]byte, MaxAsk+1)); !errors.Is(err, ErrQuestion) {
		t.Errorf("too large: %v", err)
	}
	if _, err := b.Ask(ctx, "a", nil); !errors.Is(err, ErrNoAnswers) {
		t.Errorf("a node that answers nothing: %v", err)
	}
	for question, want := range map[string]struct {
		err  error
		text string
	}{
		"busy":   {consensus.ErrBusy, "of my own: " + consensus.ErrBusy.Error()},
		"closed": {consensus.ErrClosed, consensus.ErrClosed.Error()},
		"long":   {nil, fmt.Sprintf("the answer has %d bytes", MaxAsk+1)},
		"text":   {nil, "the disk?[31m?is full"},
	} {
		answer, err := a.Ask(ctx, "b", []byte(question))
		failed, ok := errors.AsType[*AskError](err)
		if !ok || answer != nil || failed.Node != "b" || failed.Err != want.err || !strings.HasPrefix(failed.Text, want.text) || len(failed.Text) > wire.MaxDetail {
			t.Errorf("%s: %+v, %v", question, failed, err)
		} else if want.err != nil && !errors.Is(err, want.err) || strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%s: %v", question, err)
		}
	}
	if answer, err := a.Ask(ctx, "b", nil); err != nil || len(answer) != 0 {
		t.Errorf("an empty answer: %d bytes, %v", len(answer), err)
	}
	a.Transport.Close()
	if _, err := a.Ask(ctx, "b", nil); !errors.Is(err, consensus.ErrClosed) {
		t.Errorf("behind the end: %v", err)
	}
}

// A latch holds answers back.
type latch struct {
	entered chan struct{}
	goOn    chan struct{}
	ended   atomic.Int64 // whose contexts have
}

func newLatch() *latch { return &latch{entered: make(chan struct{}, 1000), goOn: make(chan struct{})} }

func (l *latch) answer(ctx context.Context, _ string, question []byte) ([]byte, error) {
	l.entered <- struct{}{}
	select {
	case <-l.goOn:
		return question, nil
	case <-ctx.Done():
		l.ended.Add(1)
		return nil, ctx.Err()
	}
}

func (l *latch) enter(t *testing.T) {
	t.Helper()
	select {
	case <-l.entered:
	case <-time.After(teeth.Patience(20 * time.Second)):
		t.Fatal("it is not asked")
	}
}

// TestAskBounds: MaxAsking questions are under way to a node, and the others wait, each as long as its context allows.
func TestAskBounds(t *testing.T) {
	l := newLatch()
	a, b := asks(t, l.answer)
	ctx := within(t)
	got := make(chan error, MaxAsking+1)
	ask := func() {
		_, err := a.Ask(ctx, "b", []byte("x"))
		got <- err
	}
	for range MaxAsking {
		go ask()
		l.enter(t)
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := a.Ask(short, "b", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one more: %v", err)
	}
	go ask()
	if n := b.answering(); n != MaxAsking {
		t.Errorf("%d are answered at once", n)
	}
	close(l.goOn)
	for range MaxAsking + 1 {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
}

// TestAskIsLeft: who asks leaves when its context ends; an answer that comes late is dropped, and the way goes on. When nobody waits for any of the
// questions that fill it, the way ends, and with it the contexts of those who answer.
func TestAskIsLeft(t *testing.T) {
	l := newLatch()
	a, b := asks(t, l.answer)
	leave := func(n int) {
		t.Helper()
		ctx, cancel := context.WithCancel(within(t))
		got := make(chan error, n)
		for range n {
			go func() {
				_, err := a.Ask(ctx, "b", []byte("left"))
				got <- err
			}()
			l.enter(t)
		}
		cancel()
		for range n {
			if err := <-got; !errors.Is(err, context.Canceled) {
				t.Errorf("it ends with %v", err)
			}
		}
	}
	leave(MaxAsking - 1)
	way := a.wayOf("b")
	if n := a.places("b"); n != MaxAsking-1 {
		t.Errorf("%d places are taken while answers may come late", n)
	}
	close(l.goOn)
	reach(t, "late answers give places back", func() bool { return a.places("b") == 0 })
	if answer, err := a.Ask(within(t), "b", []byte("on time")); err != nil || string(answer) != "on time" {
		t.Errorf("behind late answers: %q, %v", answer, err)
	}
	if a.wayOf("b") != way {
		t.Error("late answers end the way")
	}

	l.goOn = make(chan struct{}) // nobody reads it now
	for len(l.entered) > 0 {
		<-l.entered
	}
	leave(MaxAsking)
	reach(t, "nobody waits, and nobody answers", func() bool { return l.ended.Load() == MaxAsking && a.places("b") == 0 && b.answering() == 0 })
	close(l.goOn)
	if answer, err := a.Ask(within(t), "b", []byte("again")); err != nil || string(answer) != "again" || a.wayOf("b") == way {
		t.Errorf("over a new way: %q, %v", answer, err)
	}
}

// TestAskIsLost: a question whose way ends before the answer is one whose outcome is not known; it is not asked again, and who answers it hears so.
func TestAskIsLost(t *testing.T) {
	for name, end := range map[string]func(a, b *site){
		"forgotten by who asks":    func(a, _ *site) { a.Forget("b") },
		"forgotten by who answers": func(_, b *site) { b.Forget("a") },
		"who asks is closed":       func(a, _ *site) { a.Transport.Close() },
		"who answers is closed":    func(_, b *site) { b.Transport.Close() },
		"released by who asks":     func(a, _ *site) { a.Release(context.Background(), a.dev) },
		"released by who answers":  func(_, b *site) { b.Release(context.Background(), b.dev) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLatch()
			a, b := asks(t, l.answer)
			got := make(chan error, 1)
			go func() {
				_, err := a.Ask(within(t), "b", []byte("x"))
				got <- err
			}()
			l.enter(t)
			end(a, b)
			err := <-got
			if lost, ok := errors.AsType[*LostError](err); !ok || lost.Node != "b" {
				t.Errorf("it ends with %v", err)
			}
			if strings.HasPrefix(name, "who asks is closed") && !errors.Is(err, consensus.ErrClosed) {
				t.Errorf("of a closed one: %v", err)
			}
			reach(t, "who answers hears that the way has ended", func() bool { return l.ended.Load() == 1 && b.answering() == 0 && a.places("b") == 0 })
			if len(l.entered) > 0 {
				t.Error("it is asked again")
			}
		})
	}
	t.Run("and the next one is answered", func(t *testing.T) {
		a, b := asks(t, echo)
		for range 3 {
			if answer, err := a.Ask(within(t), "b", []byte("x")); err != nil || string(answer) != "a: x" {
				t.Fatalf("%q, %v", answer, err)
			}
			b.Forget("a")
			way := a.wayOf("b")
			reach(t, "the way has ended", func() bool { return way.ctx.Err() != nil })
		}
		a.Forget("b")
		if answer, err := a.Ask(within(t), "b", []byte("y")); err != nil || string(answer) != "a: y" {
			t.Errorf("after it was forgotten: %q, %v", answer, err)
		}
	})
}

// TestAskTwoSides: both ask each other at once, and within an answer.
func TestAskTwoSides(t *testing.T) {
	l := &lan{sites: map[string]*site{}}
	var a, b *site
	a = l.open(t, "a", func(c *Config) { c.Answer = echo })
	b = l.open(t, "b", func(c *Config) {
		c.Answer = func(ctx context.Context, node string, question []byte) ([]byte, error) {
			return b.Ask(ctx, node, question)
		}
	})
	t.Cleanup(func() { a.end(t); b.end(t) })
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			from, to := a, "b"
			if i%2 == 1 {
				from, to = b, "a"
			}
			question := bytes.Repeat([]byte{byte(i)}, i*5000)
			answer, err := from.Ask(within(t), to, question)
			if err != nil || !bytes.Equal(answer, append([]byte("b: "), question...)) {
				t.Errorf("question %d: %d bytes, %v", i, len(answer), err)
			}
		})
	}
	all.Wait()
}

// TestAskBusy: when all places for answers are taken, a node hears that it has to ask again later, over a way that goes on.
func TestAskBusy(t *testing.T) {
	l := newLatch()
	a, b := asks(t, l.answer)
	for range MaxAnswering { // those of other nodes
		if !b.begins("others" + fmt.Sprint(b.answering()/MaxAsking)) {
			t.Fatal("there is no place")
		}
	}
	_, err := a.Ask(within(t), "b", []byte("x"))
	if failed, ok := errors.AsType[*AskError](err); !ok || !errors.Is(err, consensus.ErrBusy) || failed.Node != "b" {
		t.Errorf("no place for any node: %v", err)
	}
	way := a.wayOf("b")
	for i := range MaxAnswering {
		b.answered("others" + fmt.Sprint(i/MaxAsking))
	}
	for range MaxAsking { // those of ways that have ended, whose answers are still made
		b.begins("a")
	}
	if _, err := a.Ask(within(t), "b", []byte("x")); !errors.Is(err, consensus.ErrBusy) {
		t.Errorf("no place for this node: %v", err)
	}
	for range MaxAsking {
		b.answered("a")
	}
	close(l.goOn)
	if answer, err := a.Ask(within(t), "b", []byte("x")); err != nil || string(answer) != "x" {
		t.Errorf("with places: %q, %v", answer, err)
	}
	if a.wayOf("b") != way {
		t.Error("the way has ended")
	}
}

// TestAskAdmitted: a node that may not speak asks nothing, and hears why.
func TestAskAdmitted(t *testing.T) {
	asked := atomic.Int64{}
	l := &lan{sites: map[string]*site{}}
	a := l.open(t, "a", nil)
	b := l.open(t, "b", func(c *Config) {
		c.Answer = func(context.Context, string, []byte) ([]byte, error) { asked.Add(1); return nil, nil }
		c.Admit = func(node string, _ [16]byte, openings []wire.Opening) error {
			return &SetBackError{Node: node, Seen: wire.Opening{Epoch: 5, Incarnation: 55}, Says: openings[0]}
		}
	})
	stranger := l.open(t, "stranger", func(c *Config) { c.Secret = []byte("another") })
	t.Cleanup(func() { a.end(t); b.end(t); stranger.end(t) })
	_, err := a.Ask(within(t), "b", nil)
	if back, ok := errors.AsType[*SetBackError](err); !ok || back.Seen.Epoch != 5 {
		t.Errorf("a node that was set back: %v", err)
	}
	if _, err := stranger.Ask(within(t), "b", nil); !errors.Is(err, rdma.ErrRejected) || errors.Is(err, ErrOlder) {
		t.Errorf("one without the secret: %v", err)
	}
	if asked.Load() > 0 {
		t.Error("they are answered")
	}
}

// TestAskOlder: a node of an older version rejects the way without a word, and who asks hears what that means; one that has no place now says so.
func TestAskOlder(t *testing.T) {
	for name, c := range map[string]struct {
		private []byte
		want    error
	}{
		"older":         {nil, ErrOlder},
		"older, padded": {make([]byte, 100), ErrOlder},
		"busy":          {wire.AppendNodeReject(nil, nil, wire.NodeSpeaks(), wire.NodeBusy), consensus.ErrBusy},
		"refused":       {wire.AppendNodeReject(nil, nil, wire.NodeSpeaks(), wire.NodeRefused), rdma.ErrRejected},
		"the fabric":    {[]byte("iwarp: listener closed"), rdma.ErrRejected},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := asks(t, echo)
			b.stop()
			<-b.done
			rejecting := make(chan struct{})
			go func() {
				defer close(rejecting)
				if req, err := b.ln.Accept(within(t)); err == nil {
					req.Reject(c.private)
				}
			}()
			_, err := a.Ask(within(t), "b", nil)
			<-rejecting
			if !errors.Is(err, c.want) || errors.Is(err, ErrOlder) != (c.want == ErrOlder) || errors.Is(err, consensus.ErrBusy) != (c.want == consensus.ErrBusy) {
				t.Errorf("it hears %v", err)
			}
			if n := a.places("b"); n != 0 {
				t.Errorf("%d places are taken", n)
			}
		})
	}
}
