package reclaim

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/region"
)

func newTable(t *testing.T) *region.Table {
	t.Helper()
	tab, err := region.NewTable(region.Config{Memory: new(region.HeapMemory), Incarnation: 1, Shards: 1, IndexRegionSize: 1 << 20, Limit: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

const lease = 2 * time.Second

func TestWait(t *testing.T) {
	for _, c := range []struct{ lease, want time.Duration }{
		{2 * time.Second, 2*time.Second + 20*time.Millisecond + BeatMargin},
		{50, 50 + 1 + BeatMargin}, // one per cent is rounded up
		{0, BeatMargin},
	} {
		if got := Wait(c.lease); got != c.want {
			t.Errorf("Wait(%v) = %v, want %v", c.lease, got, c.want)
		}
	}
}

// Each line is one case: how it was retired, and at which Ticks (seconds after
// the start) it must not and must be free.
func TestWhenItIsFreed(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	for _, c := range []struct {
		name   string
		now    time.Time
		listed bool
		ticks  []float64
		freed  int // index of the Tick that frees it
	}{
		{"with a reading of the clock", at(0), false, []float64{0.2, 2.2, 2.219, 2.22}, 3},
		{"without one the second tick starts the wait", time.Time{}, false, []float64{0.2, 0.4, 2.42, 2.619, 2.62}, 4},
		{"listed: the reading does not count", at(0), true, []float64{0.2, 0.4, 2.42, 2.619, 2.62}, 4},
		{"a late tick frees late, never early", time.Time{}, true, []float64{10, 20, 22.2, 22.22}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := New(newTable(t), lease)
			freed := -1
			tick := -1
			r.Retire(c.now, 4096/8, 3, c.listed, func() { freed = tick })
			if r.Pending() != 3*layout.PageSize {
				t.Errorf("%d bytes pending", r.Pending())
			}
			for i, s := range c.ticks {
				tick = i
				n := r.Tick(at(s))
				if (n == 1) != (i == c.freed) {
					t.Errorf("tick at %v s freed %d", s, n)
				}
			}
			if freed != c.freed || r.Pending() != 0 {
				t.Errorf("freed at tick %d, want %d; %d bytes pending", freed, c.freed, r.Pending())
			}
		})
	}
}

func TestListing(t *testing.T) {
	tab := newTable(t)
	r := New(tab, lease)
	r.Retire(time.Time{}, 512, 1, false, func() {})
	if r.Version() != 0 {
		t.Errorf("unlisted memory raised the reclaim version to %d", r.Version())
	}
	r.Retire(time.Time{}, 1024, 16, true, func() {})
	e, err := layout.ParseRetired(tab.Root()[layout.RetiredOffset(tab.Header(), 1):])
	if err != nil || e != (layout.Retired{Version: 1, Place: 1024, Pages: 16}) || r.Version() != 1 {
		t.Errorf("entry %+v, %v; version %d", e, err, r.Version())
	}
}

// What a callback retires while it runs waits its own time, and the order of
// retirement is kept.
func TestOrderAndNesting(t *testing.T) {
	r := New(newTable(t), lease)
	var got []int
	now := time.Unix(1000, 0)
	for i := range 5 {
		r.Retire(now, layout.Place(i), 1, false, func() {
			got = append(got, i)
			if i == 2 {
				r.Retire(time.Time{}, 99, 1, false, func() { got = append(got, 99) })
			}
		})
	}
	for range 60 {
		now = now.Add(BeatMargin)
		r.Tick(now)
	}
	if want := []int{0, 1, 2, 3, 4, 99}; !slices.Equal(got, want) {
		t.Errorf("freed in the order %v, want %v", got, want)
	}
}

// The queue does not grow with what has passed through it.
func TestQueueIsGivenBack(t *testing.T) {
	r := New(newTable(t), lease)
	now := time.Unix(1000, 0)
	for range 10_000 {
		r.Retire(time.Time{}, 0, 1, false, func() {})
		now = now.Add(BeatMargin)
		r.Tick(now)
	}
	if len(r.queue) > 64 || cap(r.queue) > 256 {
		t.Errorf("queue of %d, capacity %d after 10000 pieces with about 13 waiting", len(r.queue), cap(r.queue))
	}
}

// Whenever the beating goroutine is delayed between reading its clock and
// Tick, nothing is free before a full wait after it was retired.
func TestDelayedTicker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(newTable(t), lease)
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := 0; ; i++ {
				now := time.Now()
				time.Sleep(time.Duration(i%7) * 700 * time.Millisecond) // descheduled
				r.Tick(now)
				select {
				case <-stop:
					return
				case <-time.After(BeatMargin):
				}
			}
		}()
		freed := 0
		for i := range 200 {
			retired := time.Now()
			r.Retire(time.Time{}, 0, 1, i%2 == 0, func() {
				freed++
				if waited := time.Since(retired); waited < Wait(lease)-BeatMargin {
					t.Errorf("piece %d was free after %v", i, waited)
				}
			})
			time.Sleep(130 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		close(stop)
		<-done
		if freed != 200 {
			t.Errorf("%d of 200 pieces freed", freed)
		}
	})
}

// A keeping reclaimer lists what is retired and gives nothing back, but what
// only waits for readers comes in its time.
func TestKeeping(t *testing.T) {
	r := NewKeeping(newTable(t), lease)
	if !r.Keeps() || New(newTable(t), lease).Keeps() {
		t.Error("Keeps does not tell the two apart")
	}
	now := time.Unix(1000, 0)
	came := 0
	r.Retire(time.Time{}, 1024, 16, true, func() { t.Error("listed memory came back") })
	r.Retire(now, 2048, 4, false, func() { t.Error("index memory came back") })
	r.After(func() { came++ })
	for range 60 {
		now = now.Add(BeatMargin)
		r.Tick(now)
	}
	if r.Version() != 1 || came != 1 || r.Pending() != 0 {
		t.Errorf("version %d, %d calls of After came, %d bytes pending", r.Version(), came, r.Pending())
	}
}
