package parts

import (
	"context"
	"sync"

	"github.com/rdmakv/rdmakv/client/internal/base"
)

// A work runs functions, atOnce at a time, until the first fails.
type work struct {
	ctx    context.Context
	tokens chan struct{}
	wg     sync.WaitGroup

	mu  sync.Mutex
	err error
}

func newWork(ctx context.Context) *work {
	return &work{ctx: ctx, tokens: make(chan struct{}, atOnce)}
}

// run runs f beside others, once there is room. false: one has failed, or the time is over, and f
// was not run.
func (w *work) run(f func() error) bool {
	select {
	case w.tokens <- struct{}{}:
	case <-w.ctx.Done():
		w.fail(base.AsTimeout(w.ctx.Err()))
		return false
	}
	if w.failed() != nil {
		<-w.tokens
		return false
	}
	w.wg.Go(func() {
		defer func() { <-w.tokens }()
		if err := f(); err != nil {
			w.fail(err)
		}
	})
	return true
}

func (w *work) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

func (w *work) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// wait waits for all, and returns the first error.
func (w *work) wait() error {
	w.wg.Wait()
	return w.failed()
}
