package transport

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// speak sends messages on a way of questions, parts of questions and answers against credits, until it has ended.
func speak(ctx context.Context, e *end, credits int, messages []message) error {
	for _, m := range messages {
		for paid := m.kind == kindQuestion || m.kind == kindAnswer || m.kind == kindFailure; paid && credits == 0; {
			got, slot, err := e.hear(ctx)
			if err != nil {
				return err
			}
			if got.kind == kindCredit {
				credits += int(got.value)
			}
			if err := e.recv(slot); err != nil {
				return err
			}
		}
		if m.kind != kindCredit {
			credits--
		}
		if err := e.say(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// over waits until the way of an end has ended.
func over(t *testing.T, e *end) {
	t.Helper()
	select {
	case <-e.qp.Done():
	case <-time.After(teeth.Patience(20 * time.Second)):
		t.Error("the way goes on")
	}
}

// parts are so many messages.
func parts(n int, m message) (list []message) {
	for range n {
		list = append(list, m)
	}
	return list
}

// ids are so many whole messages of ids that rise from 1.
func ids(kind uint8, n int) (list []message) {
	for i := range n {
		list = append(list, message{kind: kind, value: uint32(1 + i), last: true})
	}
	return list
}

var (
	bytesOfPart = make([]byte, 16<<10-head)
	endless     = MaxAsk/len(bytesOfPart) + 2
)

// TestHostileAskers: whatever a node says that has the secret, its way ends when it breaks the protocol, what it has asked is given up, and
// nothing of it is left; others are answered.
func TestHostileAskers(t *testing.T) {
	l := newLatch()
	sites := &lan{sites: map[string]*site{}}
	a, evil := sites.open(t, "a", nil), sites.open(t, "evil", nil)
	b := sites.open(t, "b", func(c *Config) {
		c.Answer = func(ctx context.Context, node string, question []byte) ([]byte, error) {
			if node == "evil" {
				return l.answer(ctx, node, question)
			}
			return question, nil
		}
	})
	t.Cleanup(func() { a.end(t); evil.end(t); b.end(t) })
	question := func(id uint32) message { return message{kind: kindQuestion, value: id, last: true} }
	credit := message{kind: kindCredit, value: 8}
	for _, c := range []struct {
		name string
		says []message
	}{
		{"an id of 0", []message{credit, question(0)}},
		{"an id twice", []message{credit, question(1), question(1)}},
		{"ids that fall", []message{credit, question(7), question(6)}},
		{"a part within another question", []message{credit, {kind: kindQuestion, value: 1, body: []byte("x")}, question(2)}},
		{"an empty part", []message{credit, {kind: kindQuestion, value: 1}}},
		{"parts without an end", append([]message{credit}, parts(endless, message{kind: kindQuestion, value: 1, body: bytesOfPart})...)},
		{"more questions than may be", append([]message{credit}, ids(kindQuestion, MaxAsking+1)...)},
		{"thousands of questions", append([]message{credit}, ids(kindQuestion, 3000)...)},
		{"thousands of questions, and no credits", ids(kindQuestion, 3000)},
		{"an answer", []message{credit, {kind: kindAnswer, value: 1, last: true}}},
		{"an answer to its own question", []message{credit, question(1), {kind: kindAnswer, value: 1, last: true}}},
		{"a failure", []message{credit, {kind: kindFailure, value: 1, last: true, body: []byte{1}}}},
		{"no credits given", []message{{kind: kindCredit}}},
		{"too many at first", []message{{kind: kindCredit, value: maxCredits + 1}}},
		{"more than at first", []message{credit, {kind: kindCredit, value: 1}}},
		{"most of all", []message{credit, {kind: kindCredit, value: 1<<32 - 1}}},
		{"credits with a body", []message{{kind: kindCredit, value: 8, body: []byte("x")}}},
		{"a frame", []message{{kind: kindData, last: true}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, credits, err := evil.dial(within(t), outKey{"b", wire.LaneAsk})
			if err != nil {
				t.Fatal(err)
			}
			defer e.close()
			_ = speak(within(t), e, credits, c.says) // it may have ended meanwhile
			over(t, e)
			reach(t, "nothing is answered", func() bool { return b.answering() == 0 })
			if answer, err := a.Ask(within(t), "b", []byte("x")); err != nil || string(answer) != "x" {
				t.Errorf("another node: %q, %v", answer, err)
			}
		})
	}
}

// TestAnswersAreTaken: a node that gives no credits for answers has its way ended, and its questions hold no places.
func TestAnswersAreTaken(t *testing.T) {
	sites := &lan{sites: map[string]*site{}}
	evil := sites.open(t, "evil", nil)
	b := sites.open(t, "b", func(c *Config) { c.Stall, c.Answer = 50*time.Millisecond, echo })
	t.Cleanup(func() { evil.end(t); b.end(t) })
	for name, says := range map[string][]message{
		"none":           ids(kindQuestion, MaxAsking),
		"one for eight":  append([]message{{kind: kindCredit, value: 1}}, ids(kindQuestion, MaxAsking)...),
		"one for a part": append([]message{{kind: kindCredit, value: 1}}, message{kind: kindQuestion, value: 1, body: bytesOfPart}, message{kind: kindQuestion, value: 1, last: true, body: bytesOfPart}),
	} {
		t.Run(name, func(t *testing.T) {
			e, credits, err := evil.dial(within(t), outKey{"b", wire.LaneAsk})
			if err != nil {
				t.Fatal(err)
			}
			defer e.close()
			_ = speak(within(t), e, credits, says) // a machine that is slow may have ended it meanwhile
			over(t, e)
			reach(t, "the places of its answers are free", func() bool { return b.answering() == 0 })
		})
	}
}

// TestHostileAnswerers: whatever a node says in the place of an answer, who asks hears that the way was lost, the way ends, and no place is lost.
func TestHostileAnswerers(t *testing.T) {
	sites := &lan{sites: map[string]*site{}}
	a, hasty := sites.open(t, "a", nil), sites.open(t, "hasty", func(c *Config) { c.Stall = 50 * time.Millisecond })
	evil := sites.open(t, "b", nil)
	evil.stop()
	<-evil.done
	t.Cleanup(func() { a.end(t); hasty.end(t); evil.end(t) })
	answer := func(id uint32) message { return message{kind: kindAnswer, value: id, last: true} }
	failure := func(body []byte) message { return message{kind: kindFailure, value: 1, last: true, body: body} }
	for _, c := range []struct {
		name  string
		says  []message
		first error // of what the question ends with; nil: of an answer
	}{
		{"an answer to nothing", []message{answer(2)}, errProtocol},
		{"an answer of id 0", []message{answer(0)}, errProtocol},
		{"an answer twice", []message{answer(1), answer(1)}, nil},
		{"thousands of answers", ids(kindAnswer, 3000), nil},
		{"a failure behind the answer", []message{answer(1), failure([]byte{1})}, nil},
		{"a failure within the answer", []message{{kind: kindAnswer, value: 1, body: []byte("x")}, failure([]byte{1})}, errProtocol},
		{"an empty failure", []message{failure(nil)}, errProtocol},
		{"a failure of code 0", []message{failure([]byte("\x00text"))}, errProtocol},
		{"a failure that is too long", []message{failure(make([]byte, wire.MaxDetail+2))}, errProtocol},
		{"a failure without an end", []message{{kind: kindFailure, value: 1, body: []byte{1}}}, errProtocol},
		{"an empty part", []message{{kind: kindAnswer, value: 1}}, errProtocol},
		{"parts without an end", parts(endless, message{kind: kindAnswer, value: 1, body: bytesOfPart}), errProtocol},
		{"a question", []message{{kind: kindQuestion, value: 1, last: true}}, errProtocol},
		{"too many credits", []message{{kind: kindCredit, value: 2 * maxCredits}}, errProtocol},
		{"more credits than at first", []message{{kind: kindCredit, value: 1000}}, errProtocol},
		{"no credits", nil, rdma.ErrPeerGone},
	} {
		t.Run(c.name, func(t *testing.T) {
			spoken := make(chan struct{})
			go func() {
				defer close(spoken)
				req, err := evil.ln.Accept(within(t))
				if err != nil {
					return
				}
				_, e, err := evil.welcome(evil.dev, req)
				if err != nil {
					t.Errorf("it is not let in: %v", err)
					return
				}
				defer e.close()
				for asked := false; !asked; {
					m, slot, err := e.hear(within(t))
					if err != nil {
						return
					}
					asked = m.kind == kindQuestion
					e.recv(slot)
				}
				_ = speak(within(t), e, dials[wire.LaneAsk].grants(), c.says)
				over(t, e)
			}()
			from, question := a, []byte("x")
			if c.says == nil {
				from, question = hasty, make([]byte, MaxAsk) // which needs credits
			}
			_, err := from.Ask(within(t), "b", question)
			if _, lost := errors.AsType[*LostError](err); lost != (c.first != nil) || !errors.Is(err, c.first) {
				t.Errorf("it ends with %v", err)
			}
			<-spoken
			way := from.wayOf("b")
			reach(t, "the way has ended", func() bool { return way.ctx.Err() != nil && from.places("b") == 0 })
		})
	}
	t.Run("silence", func(t *testing.T) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			if req, err := evil.ln.Accept(t.Context()); err == nil {
				if _, e, err := evil.welcome(evil.dev, req); err == nil {
					defer e.close()
					over(t, e)
				}
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := a.Ask(ctx, "b", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it ends with %v", err)
		}
		a.Forget("b")
		<-done
	})
}

// TestFailures: what a failure says comes back as the same, whatever is in its text.
func TestFailures(t *testing.T) {
	for _, want := range []error{consensus.ErrBusy, consensus.ErrClosed, ErrNoAnswers} {
		e, err := parseFailure("b", message{last: true, body: appendFailure(nil, want)})
		if err != nil || e.Err != want || !errors.Is(e, want) {
			t.Errorf("%v comes back as %v, %v", want, e, err)
		}
	}
	e, err := parseFailure("b", message{last: true, body: []byte("\xfftext of a newer version")})
	if err != nil || e.Err != nil || e.Text != "text of a newer version" {
		t.Errorf("of a code that is not known: %+v, %v", e, err)
	}
}

// FuzzParseFailure: a failure is refused, or told as clean text that is not too long.
func FuzzParseFailure(f *testing.F) {
	f.Add(appendFailure(nil, consensus.ErrBusy), true)
	f.Add([]byte("\x01\xff\n\x1b"), true)
	f.Add([]byte{}, false)
	f.Fuzz(func(t *testing.T, b []byte, last bool) {
		e, err := parseFailure("b", message{last: last, body: b})
		switch {
		case err != nil && !errors.Is(err, errProtocol):
			t.Fatal(err)
		case err != nil:
			return
		case len(e.Text) > wire.MaxDetail || wire.CleanText([]byte(e.Text)) != e.Text || !last:
			t.Fatalf("% x is told as %q", b, e.Text)
		}
	})
}
