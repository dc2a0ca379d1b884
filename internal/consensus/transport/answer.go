package transport

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// The body of a failure, which is one SEND and marked as the last:
//
//	┌code┬text┐   text: at most wire.MaxDetail bytes
//	└1   ┴…   ┘
//
// The code is an index of failures; one that this version does not know is 1.
var failures = []error{
	1: nil, // Config.Answer has failed, and the text says how
	2: consensus.ErrBusy,
	3: consensus.ErrClosed,
	4: ErrNoAnswers,
}

// appendFailure appends the body that tells of an error.
func appendFailure(dst []byte, err error) []byte {
	code := byte(1)
	for i, f := range failures {
		if f != nil && errors.Is(err, f) {
			code = byte(i)
		}
	}
	text := err.Error()
	return append(append(dst, code), text[:min(len(text), wire.MaxDetail)]...)
}

// parseFailure reads a failure that a node tells.
func parseFailure(node string, m message) (*AskError, error) {
	if !m.last || len(m.body) == 0 || len(m.body) > 1+wire.MaxDetail || m.body[0] == 0 {
		return nil, fmt.Errorf("%w: a failure of %d bytes", errProtocol, len(m.body))
	}
	e := &AskError{Node: node, Text: wire.CleanText(m.body[1:])}
	if code := int(m.body[0]); code < len(failures) {
		e.Err = failures[code]
	}
	return e, nil
}

// answers counts the questions that are being answered; Transport.mu guards it. A question counts until its answer is sent, or its way has ended
// and Config.Answer has returned: a node that opens way after way has no more of them.
type answers struct {
	all int
	of  map[string]int // nodes
}

// begins counts a question of a node in; false: there is no place for it.
func (t *Transport) begins(node string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy.all == MaxAnswering || t.busy.of[node] == MaxAsking {
		return false
	}
	t.busy.all++
	t.busy.of[node]++
	return true
}

// answered counts it out.
func (t *Transport) answered(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy.all--
	if t.busy.of[node]--; t.busy.of[node] == 0 {
		delete(t.busy.of, node)
	}
}

// An answering is the end of a way that answers.
type answering struct {
	*talk
	last uint32 // the id of the last question that has begun; of listen alone
	open int    // questions that have begun, and whose answers are not sent; guarded by talk.mu
}

// answerAll answers the questions of a node until the way ends.
func (t *Transport) answerAll(node string, e *end) error {
	w := &answering{talk: newTalk(t.ctx, t, node, e, 0, 0)}
	return w.listen(w.hear, func() error { return nil })
}

// hear takes a part of a question. A node that has more under way on this way than MaxAsking breaks the protocol: it counts them longer than
// this one does.
func (w *answering) hear(m message) error {
	if m.kind != kindQuestion {
		return fmt.Errorf("%w: a message of kind %d", errProtocol, m.kind)
	}
	if w.part.id == 0 {
		if m.value <= w.last {
			return fmt.Errorf("%w: question %d behind %d", errProtocol, m.value, w.last)
		}
		w.last = m.value
		w.mu.Lock()
		w.open++
		open := w.open
		w.mu.Unlock()
		if open > MaxAsking {
			return fmt.Errorf("%w: more than %d questions", errProtocol, MaxAsking)
		}
	}
	question, whole, err := w.gather(m)
	if err != nil || !whole {
		return err
	}
	switch {
	case w.t.c.Answer == nil:
		w.reply(m.value, nil, ErrNoAnswers, nil)
	case !w.t.begins(w.node):
		w.reply(m.value, nil, fmt.Errorf("%w: %d questions of a node are answered at once, and %d of all", consensus.ErrBusy, MaxAsking, MaxAnswering), nil)
	default:
		w.t.running.Go(func() { w.answer(m.value, question) }) // Close waits for who calls hear, so not before this
	}
	return nil
}

// answer answers a question, and returns when the answer has left, or the way has ended. The question is counted out as its answer leaves, within
// mu: if that were later, a node that has the answer and asks another question would hear that it has MaxAsking under way.
func (w *answering) answer(id uint32, question []byte) {
	body, err := w.t.c.Answer(w.ctx, w.node, question)
	if err == nil && len(body) > MaxAsk {
		err = fmt.Errorf("the answer has %d bytes, at most %d are possible", len(body), MaxAsk)
	}
	left := make(chan struct{})
	w.reply(id, body, err, func() {
		w.t.answered(w.node)
		close(left)
	})
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-left:
		return
	case <-w.ctx.Done():
		_ = w.ended(w.ctx.Err())
	case <-limit.C:
		_ = w.ended(fmt.Errorf("%w: it has not taken an answer within %v", errProtocol, patience))
	}
	select { // the way has ended: nothing leaves any more, but this may have
	case <-left:
	default:
		w.t.answered(w.node)
	}
}

// reply queues an answer, or what err says. left is called when the last part is posted, if it is.
func (w *answering) reply(id uint32, body []byte, err error, left func()) {
	s := &speech{kind: kindAnswer, id: id, rest: body}
	if err != nil {
		s.kind, s.rest = kindFailure, appendFailure(nil, err)
	}
	s.left = func() {
		w.open--
		if left != nil {
			left()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.queue = append(w.queue, s)
		w.pump()
	}
}
