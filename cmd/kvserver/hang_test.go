package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A hung node never ends.
type hung struct{ never chan struct{} }

func (h *hung) Shutdown(context.Context) error { <-h.never; return nil }
func (h *hung) Ending() string                 { return "lanes" }

// TestEndIsBounded: whatever hangs, the process ends within the limit, with an
// error that says what it was; a node that ends by itself is waited for.
func TestEndIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errOut bytes.Buffer
		a := &app{stderr: &errOut, signals: make(chan os.Signal)}
		log := slog.New(slog.NewTextHandler(&errOut, nil))
		h := &hung{make(chan struct{})}
		begun := time.Now()
		err := a.shutdown(h, log)
		if took := time.Since(begun); took > shutdownLimit {
			t.Errorf("it took %v", took)
		}
		if err == nil || !strings.Contains(err.Error(), "lanes") {
			t.Errorf("%v", err)
		}
		for _, want := range []string{"waiting_for=lanes", "goroutine profile", "hung"} {
			if !strings.Contains(errOut.String(), want) {
				t.Errorf("the log has no %q:\n%s", want, &errOut)
			}
		}
		close(h.never)
		synctest.Wait()
		slow := slowEnd(20 * time.Second)
		if err := a.shutdown(slow, log); !errors.Is(err, errSlowEnd) {
			t.Errorf("one that takes %v: %v", time.Duration(slow), err)
		}
	})
}

// A slowEnd takes its time.
type slowEnd time.Duration

var errSlowEnd = errors.New("ended")

func (s slowEnd) Shutdown(context.Context) error { time.Sleep(time.Duration(s)); return errSlowEnd }
func (s slowEnd) Ending() string                 { return "" }
