package transport

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// TestRelease: a device that goes is let go of while ways in both directions are open on it, so that it can be closed; nothing is made on it
// any more, and what is sent takes the other device.
func TestRelease(t *testing.T) {
	l := &lan{sites: map[string]*site{}}
	second := must(iwarp.New(iwarp.Options{}).Open(t.Context(), ""))
	var gone atomic.Bool
	a := l.open(t, "a", func(c *Config) {
		first := c.Routes
		c.Routes = func(node string) (list []Route) {
			for _, r := range first(node) {
				if gone.Load() {
					r.Device = second
				}
				list = append(list, r)
			}
			return list
		}
	})
	b := l.open(t, "b", nil)
	defer b.end(t)
	a.Send("b", false, []byte("1"))
	b.Send("a", true, []byte("2"))
	b.wait(t, 1)
	a.wait(t, 1)

	a.stop()
	<-a.done
	a.ln.Close()
	gone.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), teeth.Patience(10*time.Second))
	defer cancel()
	if err := a.Release(ctx, a.dev); err != nil {
		t.Fatal(err)
	}
	if e, err := a.newEnd(a.dev, dials[1], 0); !errors.Is(err, rdma.ErrClosed) {
		t.Errorf("an end on a device that was released: %v, %v", e, err)
	}
	if err := a.dev.Close(); err != nil {
		t.Errorf("the device: %v", err)
	}
	a.Closed(a.dev)
	if a.Transport.mu.Lock(); len(a.uses) > 1 {
		t.Errorf("it knows %d devices", len(a.uses))
	}
	a.Transport.mu.Unlock()
	for limit := time.Now().Add(teeth.Patience(20 * time.Second)); ; time.Sleep(10 * time.Millisecond) {
		a.Send("b", false, []byte("3"))
		b.box.mu.Lock()
		n := b.bytes
		b.box.mu.Unlock()
		if n > 1 {
			break
		}
		if time.Now().After(limit) {
			t.Fatal("nothing comes by the other device")
		}
	}
	if err := errors.Join(a.Transport.Close(), second.Close()); err != nil {
		t.Error(err)
	}
}

// TestReleaseUnused: a device on which nothing was made is let go of at once, and is not used from then on.
func TestReleaseUnused(t *testing.T) {
	a, _ := two(t)
	dev := must(iwarp.New(iwarp.Options{}).Open(t.Context(), ""))
	if err := a.Release(t.Context(), dev); err != nil {
		t.Fatal(err)
	}
	if _, err := a.newEnd(dev, dials[1], 0); !errors.Is(err, rdma.ErrClosed) {
		t.Errorf("an end on it: %v", err)
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
	a.Closed(dev)
}
