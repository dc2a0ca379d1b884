package region

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
)

// slowMemory is memory that takes time to register.
type slowMemory struct {
	HeapMemory
	mu    sync.Mutex
	takes time.Duration
	err   error
	calls int
}

func (m *slowMemory) Alloc(id uint32, kind layout.RegionKind, size int) ([]byte, error) {
	m.mu.Lock()
	takes, err := m.takes, m.err
	m.calls++
	m.mu.Unlock()
	time.Sleep(takes)
	if err != nil {
		return nil, err
	}
	return m.HeapMemory.Alloc(id, kind, size)
}

func (m *slowMemory) set(takes time.Duration, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.takes, m.err = takes, err
}

// TestSlowRegistration: while a region is being registered for three seconds,
// the beat, callers that find room, and the numbers do not wait; a caller that
// finds none waits once, for a moment.
func TestSlowRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := new(slowMemory)
		tab, err := NewTable(Config{Memory: mem, Incarnation: 1, Shards: 1, IndexRegionSize: 1 << 20, Limit: 64 << 20})
		if err != nil {
			t.Fatal(err)
		}
		ix := tab.Index()
		last, _, err := ix.Alloc(16)
		for err == nil && ix.Stats().Free > 0 {
			_, _, err = ix.Alloc(1)
		}
		if err != nil {
			t.Fatal(err)
		}
		mem.set(3*time.Second, nil)
		ix.Serve()
		took := func(what string, most time.Duration, f func()) {
			t.Helper()
			begun := time.Now() // the bubble's clock: it stands still unless all wait
			f()
			if d := time.Since(begun); d > most {
				t.Errorf("%s took %v", what, d)
			}
		}
		for i := range 5 {
			patience := servingPatience
			if i > 0 {
				patience = 0 // the first has waited for all
			}
			took("finding no room", patience, func() {
				_, _, err := ix.Alloc(16)
				var no *NoMemoryError
				if !errors.Is(err, ErrGrowing) || !errors.Is(err, ErrNoMemory) || !errors.As(err, &no) {
					t.Errorf("no room: %v", err)
				}
			})
		}
		took("a beat", 0, func() { tab.Beat(1); tab.Retired(last, 1) })
		took("the numbers", 0, func() { tab.InUse(); ix.Stats(); ix.Used(); tab.View() })
		took("freeing", 0, func() { ix.Free(last, 16) })
		took("finding room", 0, func() {
			if _, _, err := ix.Alloc(16); err != nil {
				t.Error(err)
			}
		})
		before := len(tab.View().Regions)
		<-ix.growth.Done()
		if got := len(tab.View().Regions); got != before+1 {
			t.Errorf("%d regions came", got-before)
		}
		took("finding room in the new region", 0, func() {
			if _, _, err := ix.Alloc(16); err != nil {
				t.Error(err)
			}
		})
		if err := tab.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestCloseDuringRegistration: Close waits for a region on its way, because
// nothing else would free it.
func TestCloseDuringRegistration(t *testing.T) {
	mem := new(slowMemory)
	tab, err := NewTable(Config{Memory: mem, Incarnation: 1, Shards: 1, IndexRegionSize: 1 << 20, Limit: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	mem.set(50*time.Millisecond, nil)
	tab.Index().patience.Store(0)
	if _, _, err := tab.Index().Alloc(1 << 10); !errors.Is(err, ErrGrowing) {
		t.Fatal(err)
	}
	for asked := false; !asked; time.Sleep(time.Millisecond) {
		mem.mu.Lock()
		asked = mem.calls == 2
		mem.mu.Unlock()
	}
	if err := tab.Close(); err != nil {
		t.Error(err)
	}
	if n := len(mem.regions); n != 0 {
		t.Errorf("%d regions are left", n)
	}
	<-tab.Index().growth.Done()
}

// TestRefusedRegistration: a system that gives no memory is not asked by each
// writer, and is asked again after a while.
func TestRefusedRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := new(slowMemory)
		tab, err := NewTable(Config{Memory: mem, Incarnation: 1, Shards: 1, IndexRegionSize: 1 << 20, Limit: 64 << 20})
		if err != nil {
			t.Fatal(err)
		}
		full := errors.New("memlock")
		mem.set(time.Millisecond, full)
		asked := mem.calls
		for range 100 {
			if _, _, err := tab.Index().Alloc(1 << 10); !errors.Is(err, full) || !errors.Is(err, ErrNoMemory) {
				t.Fatal(err)
			}
		}
		if mem.calls != asked+1 {
			t.Errorf("asked %d times", mem.calls-asked)
		}
		mem.set(0, nil)
		time.Sleep(growPause)
		if _, _, err := tab.Index().Alloc(1 << 10); err != nil {
			t.Error(err)
		}
	})
}

// TestGrowthIsShared: many callers that need room at once get one region between
// them, and those with all the patience wait for as long as it takes.
func TestGrowthIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Growth
		calls := 0
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if err := g.Run(Forever, func() error { calls++; time.Sleep(time.Hour); return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		<-g.Done() // at once: nothing grows
		if calls != 1 {
			t.Errorf("%d regions", calls)
		}
	})
}
