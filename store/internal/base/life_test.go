package base

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

func testFence() *Fence { return NewFence(slog.New(slog.DiscardHandler), func(error) {}) }

// isClosed says whether a channel is closed once nothing goes on by itself. In a bubble
// of synctest only.
func isClosed(c <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestLifeEnds: what runs in a life ends with End, and with the fence.
func TestLifeEnds(t *testing.T) {
	for _, fenced := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fence := testFence()
			l := NewLife(fence)
			calls := 0
			l.Go(func() { l.Every(time.Second, func() { calls++ }) })
			done := l.Done()
			time.Sleep(3500 * time.Millisecond)
			if l.Over() || isClosed(done) || calls != 3 {
				t.Errorf("over %v, done %v, %d calls after 3.5 periods", l.Over(), isClosed(done), calls)
			}
			if fenced {
				fence.Fail(errors.New("the disk is gone"))
			} else {
				l.End()
			}
			if !l.Over() || !isClosed(done) {
				t.Errorf("fenced %v: over %v, done %v behind the end", fenced, l.Over(), isClosed(done))
			}
			if stopped := l.Ctx.Err() != nil; stopped == fenced || isClosed(l.Stop) != stopped {
				t.Errorf("fenced %v: stopped %v", fenced, stopped)
			}
			l.End()
		})
	}
}

// TestLifeUnfenced: a wait for what may never come ends with the fence, and one for what
// has come fails behind it.
func TestLifeUnfenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLife(testFence())
		come := make(chan struct{})
		close(come)
		if !l.Unfenced(come) {
			t.Error("fenced before Fail")
		}
		var waited bool
		l.Go(func() { waited = !l.Unfenced(make(chan struct{})) })
		l.Fence.Fail(errors.New("the disk is gone"))
		if !isClosed(l.Done()) || !waited {
			t.Error("a wait outlives the fence, or does not tell of it")
		}
		if l.Unfenced(come) {
			t.Error("not fenced behind Fail")
		}
		l.End()
	})
}

// TestFenceOr: what fenced the store comes before any other reason.
func TestFenceOr(t *testing.T) {
	f := testFence()
	if err := f.Or(ErrClosed); err != ErrClosed {
		t.Error(err)
	}
	f.Fail(errors.New("the disk is gone"))
	if err := f.Or(ErrClosed); !errors.Is(err, ErrFatal) || errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}
