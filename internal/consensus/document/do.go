package document

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

// Do proposes an entry and returns what Content.Apply has answered to it, when it is applied here. entry is the caller's again when Do returns.
//
// Errors: consensus.ErrNotLeader: it is not applied, and never will be; so it is with ErrBusy, ErrTooLarge, and with the engine's others, of a
// replica that does not run. ErrFull: it is applied and has changed nothing. consensus.ErrUnknown: it may be applied or not, now or later; when
// ctx ended, its error is wrapped, too. An error of ctx without ErrUnknown: nothing was proposed.
func (r *Replica) Do(ctx context.Context, entry []byte) (answer []byte, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(entry) > MaxEntry {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", consensus.ErrTooLarge, len(entry), MaxEntry)
	}
	w, err := r.waiting.enter()
	if err != nil {
		return nil, err
	}
	defer r.waiting.leave(w)
	if err := r.c.Engine.Propose(r.c.Group, w.reign.term, appendEntry(make([]byte, 0, entryHead+len(entry)), w.name, w.reign.term, entry)); err != nil {
		return nil, fmt.Errorf("document: not proposed: %w", err)
	}
	return r.await(ctx, w)
}

// await returns what comes of an entry that was proposed.
func (r *Replica) await(ctx context.Context, w *waiter) ([]byte, error) {
	over := (<-chan struct{})(w.reign.over)
	var late <-chan time.Time
	var why error
	for why == nil {
		select {
		case o := <-w.outcome:
			return o.answer, o.err
		case <-over:
			over = nil
			t := time.NewTimer(settles)
			defer t.Stop()
			late = t.C
		case <-late:
			why = fmt.Errorf("%w: its leader fell, and no later one is heard of: ask for the document, and decide again", consensus.ErrUnknown)
		case <-ctx.Done():
			why = fmt.Errorf("%w: %w", consensus.ErrUnknown, ctx.Err())
		case <-r.ended:
			why = fmt.Errorf("%w: the replica was stopped", consensus.ErrUnknown)
		}
	}
	select {
	case o := <-w.outcome: // it has come at the same time
		return o.answer, o.err
	default:
		return nil, why
	}
}

// settles is for how long an entry of a leader that fell is waited for. The next one is elected within half a second, mostly, and what it applies tells.
const settles = 2 * time.Second

// mostWaiting bounds the calls of Do that wait.
const mostWaiting = 1024

// Read returns the document with all that was acknowledged before the call, by whatever leader. Errors: those of the
// engine's Barrier; consensus.ErrNotLeader above all.
func (r *Replica) Read(ctx context.Context) (Content, error) {
	if err := r.c.Engine.Barrier(ctx, r.c.Group); err != nil {
		return nil, fmt.Errorf("document: read: %w", err)
	}
	return r.Content(), nil
}

// A reign is a term in which this replica leads.
type reign struct {
	term uint64
	over chan struct{} // closed when it leads no more
}

// An outcome is what has come of an entry.
type outcome struct {
	answer []byte
	err    error
}

// A waiter is a call of Do.
type waiter struct {
	name
	reign   *reign
	outcome chan outcome // capacity 1
}

// waiting are the calls of Do that wait. Their entries are in the log's hands, or about to be.
type waiting struct {
	mu     sync.Mutex
	all    map[name]*waiter
	reign  *reign // nil: this replica does not lead
	newest uint64 // the term of the newest entry that was applied
}

func (w *waiting) init() { w.all = map[name]*waiter{} }

func (w *waiting) len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.all)
}

// enter takes in a call before its entry is proposed: later, the entry might be applied before anybody waits for it.
//
// Errors: consensus.ErrNotLeader, consensus.ErrBusy.
func (w *waiting) enter() (*waiter, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.reign == nil || w.reign.term < w.newest:
		return nil, fmt.Errorf("document: not proposed: %w", consensus.ErrNotLeader)
	case len(w.all) >= mostWaiting:
		return nil, fmt.Errorf("%w: %d entries wait", consensus.ErrBusy, len(w.all))
	}
	call := &waiter{newName(), w.reign, make(chan outcome, 1)}
	w.all[call.name] = call
	return call, nil
}

func (w *waiting) leave(call *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, call.name)
}

// leads says that this replica leads in a term.
func (w *waiting) leads(term uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endLocked()
	w.reign = &reign{term, make(chan struct{})}
}

// follows says that it does not lead.
func (w *waiting) follows() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endLocked()
}

func (w *waiting) endLocked() {
	if w.reign != nil {
		close(w.reign.over)
		w.reign = nil
	}
}

// applied says that an entry of a term was applied; what has come of one of that name whoever waits for it is told. Entries
// of earlier terms, which were not applied, never will be: no term in a log is lower than the one before it.
func (w *waiting) applied(term uint64, n name, o outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if call := w.all[n]; call != nil && call.reign.term == term {
		delete(w.all, n)
		call.outcome <- o
	}
	if term <= w.newest {
		return
	}
	w.newest = term
	for n, call := range w.all {
		if call.reign.term < term {
			delete(w.all, n)
			call.outcome <- outcome{err: fmt.Errorf("document: another leader's entries took its place: %w", consensus.ErrNotLeader)}
		}
	}
}

// lost says that nobody will hear here what has come of the entries that wait.
func (w *waiting) lost(term uint64, why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.newest = max(w.newest, term)
	for n, call := range w.all {
		delete(w.all, n)
		call.outcome <- outcome{err: fmt.Errorf("%w: %w", consensus.ErrUnknown, why)}
	}
}
