package base

import (
	"errors"
	"testing"
)

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestFence: the first error stays. A store that has failed is silent from then on and
// cannot be closed; that of a node which stood down calls back and can be closed, unless it
// fails too.
func TestFence(t *testing.T) {
	broken, twin := errors.New("the log is on fire"), errors.New("another process is this node")
	for _, c := range []struct {
		name         string
		fence        func(f *Fence)
		why          error
		silent, well bool
	}{
		{"nothing", func(*Fence) {}, nil, false, true},
		{"the fabric", func(f *Fence) { f.Fail(broken); f.Fail(twin) }, broken, true, false},
		{"the store", func(f *Fence) { f.LoseStore(); f.Fail(broken) }, broken, true, false},
		{"stood down", func(f *Fence) { f.StandDown(twin) }, twin, false, true},
		{"stood down, then the store", func(f *Fence) { f.StandDown(twin); f.LoseStore(); f.Fail(broken) }, twin, true, false},
	} {
		f := NewFence()
		c.fence(f)
		if f.Err() != c.why || closed(f.Done()) != (c.why != nil) || f.StoodDown() != (c.why == twin) {
			t.Errorf("%s: %v, done %v, stood down %v", c.name, f.Err(), closed(f.Done()), f.StoodDown())
		}
		if c.why != nil && closed(f.Silent()) != c.silent || f.StoreWell() != c.well {
			t.Errorf("%s: silent %v, well %v", c.name, closed(f.Silent()), f.StoreWell())
		}
	}
	f := NewFence()
	if !f.Fail(broken) || f.Fail(twin) || f.StandDown(twin) {
		t.Error("not the first call alone fences")
	}
}

// TestAccountHold: one answer may exceed the share, no second one; what was refused is not
// counted.
func TestAccountHold(t *testing.T) {
	var a Account
	for i, c := range []struct {
		size, share int64
		ok          bool
	}{{100, 50, true}, {1, 50, false}, {1, 101, true}, {1, 101, false}} {
		if had := a.Held.Load(); a.Hold(c.size, c.share) != c.ok || !c.ok && a.Held.Load() != had {
			t.Errorf("step %d: held %d", i, a.Held.Load())
		}
	}
	var all Bounds
	if err := a.Hit(&all, BoundHolds); !errors.Is(err, ErrBound(BoundHolds)) || a.Hits[BoundHolds].Load() != 1 || all.Hits[BoundHolds].Load() != 1 {
		t.Errorf("%v: counted %d and %d times", err, a.Hits[BoundHolds].Load(), all.Hits[BoundHolds].Load())
	}
}
