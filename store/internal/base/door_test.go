package base

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
)

// TestDoor: Close waits for the calls inside, and lets none in any more.
func TestDoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDoor(testFence())
		leave1, err1 := d.Enter()
		leave2, err2 := d.Enter()
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		leave1()
		idle := d.Close()
		if isClosed(idle) {
			t.Error("idle with a call inside")
		}
		if _, err := d.Enter(); err != ErrClosed {
			t.Errorf("a call behind Close: %v", err)
		}
		if isClosed(idle) {
			t.Error("idle because a newcomer left")
		}
		leave2()
		if !isClosed(idle) {
			t.Error("not idle when the last call has left")
		}
		if _, err := d.Enter(); err != ErrClosed || !isClosed(idle) {
			t.Errorf("a call behind the end: %v", err)
		}
	})
}

// TestDoorEmpty: a door that nothing is inside of is idle at once.
func TestDoorEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDoor(testFence())
		if !isClosed(d.Close()) {
			t.Error("not idle")
		}
	})
}

// TestDoorFenced: a fenced store says why, and not that it is closed.
func TestDoorFenced(t *testing.T) {
	f := testFence()
	d := NewDoor(f)
	f.Fail(errors.New("the disk is gone"))
	if _, err := d.Enter(); !errors.Is(err, ErrFatal) {
		t.Error(err)
	}
}

// TestDoorRace: no call is inside once Close said so, however many try.
func TestDoorRace(t *testing.T) {
	d := NewDoor(testFence())
	var inside sync.RWMutex // read-held by the calls inside
	var all sync.WaitGroup
	started := make(chan struct{}, 8)
	for range cap(started) {
		all.Go(func() {
			for first := true; ; first = false {
				leave, err := d.Enter()
				if err != nil {
					return
				}
				if !inside.TryRLock() {
					t.Error("a call is let in behind the end")
				} else {
					inside.RUnlock()
				}
				if first {
					started <- struct{}{}
				}
				leave()
			}
		})
	}
	for range cap(started) {
		<-started
	}
	<-d.Close()
	inside.Lock()
	all.Wait()
}

// TestDoorAllocates: a call that enters allocates nothing.
func TestDoorAllocates(t *testing.T) {
	d := NewDoor(testFence())
	if n := testing.AllocsPerRun(100, func() {
		if leave, err := d.Enter(); err == nil {
			leave()
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
