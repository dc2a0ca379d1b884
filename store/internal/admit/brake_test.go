package admit

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/store/log"
)

// TestTimeOf: what a put takes rises steadily as the log fills, from nothing at a quarter.
func TestTimeOf(t *testing.T) {
	const bound, rate, body = 256 << 20, 20 << 20, 4096
	if d := timeOf(body, bound/4, bound, rate); d != 0 {
		t.Errorf("a quarter is left: %v", d)
	}
	last := time.Duration(0)
	for left := int64(bound / 4); left >= 0; left -= bound / 1024 {
		d := timeOf(body, left, bound, rate)
		if d < last || d < 0 || d > mostDebt {
			t.Fatalf("%d left: %v behind %v", left, d, last)
		}
		if left > bound/100 && d > last+last/2+100*time.Microsecond {
			t.Errorf("%d left: %v at once behind %v", left, d, last)
		}
		last = d
	}
	if last != mostDebt {
		t.Errorf("nothing is left: %v", last)
	}
	// With a half of the quarter puts have about half the rate of checkpoints.
	if d := timeOf(body, bound/8, bound, rate); d < 300*time.Microsecond || d > 500*time.Microsecond {
		t.Errorf("an eighth is left: %v", d)
	}
	for _, left := range []int64{-1 << 62, -1, 0} {
		if d := timeOf(body, left, bound, rate); d != mostDebt {
			t.Errorf("%d left: %v", left, d)
		}
	}
	if d := timeOf(1<<40, 1, bound, 0); d != mostDebt {
		t.Error(d)
	}
}

// A filling is a log that writers fill, and checkpoints empty, in virtual time.
type filling struct {
	*pool
	mu       sync.Mutex
	bound    int64
	segment  int64
	end      int64 // of the log
	place    int64 // of the base
	reserved int64
	more     chan struct{}
}

func (f *filling) bytes() int64 { return f.end - f.place/f.segment*f.segment }

func (f *filling) Left() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bound - f.bytes()
}

func (f *filling) Reserve(n int64, use log.Use) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bytes()+f.reserved+n > f.bound-f.segment/8 {
		return log.ErrFull
	}
	f.reserved += n
	return nil
}

func (f *filling) Room(log.Use) (int64, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return 0, f.more
}

func (f *filling) Unreserve(n int64) { f.written(n, 0) }

// written is that something was reserved stands in the log.
func (f *filling) written(room, n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reserved -= room
	f.end += n
}

// checkpoints are rounds of an eighth of the bound, from a half on.
func (f *filling) checkpoints(ctx context.Context, rate int64) {
	for ctx.Err() == nil {
		f.mu.Lock()
		behind := f.end - f.place
		f.mu.Unlock()
		if behind < f.bound/2 {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		for behind > 0 && ctx.Err() == nil {
			n := min(behind, f.bound/8)
			time.Sleep(time.Duration(float64(n) / float64(rate) * float64(time.Second)))
			f.mu.Lock()
			f.place += n
			behind -= n
			close(f.more)
			f.more = make(chan struct{})
			f.mu.Unlock()
		}
	}
}

// TestNobodyMeetsAWall: writers that want three times what checkpoints take in are slowed down,
// and none of them waits long at any time.
func TestNobodyMeetsAWall(t *testing.T) {
	for _, segment := range []int64{32 << 20, 64 << 20} {
		t.Run(fmt.Sprint(segment>>20), func(t *testing.T) { fillLog(t, segment) })
	}
}

// fillLog has writers fill a log of such segments.
func fillLog(t *testing.T, segment int64) {
	synctest.Test(t, func(t *testing.T) {
		const rate, want, size, writers = 20 << 20, 60 << 20, 4096, 16
		f := &filling{pool: newPool(0), bound: 256 << 20, segment: segment, more: make(chan struct{})}
		g := NewGate(1<<30, 1<<20)
		g.With(Log{Room: f, Bytes: f.bound, Left: f.Left, Rate: func() int64 { return rate }})
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		began := time.Now()
		go f.checkpoints(ctx, rate)
		var mu sync.Mutex
		var longest time.Duration
		slowed := 0
		for range writers {
			go func() {
				for ctx.Err() == nil {
					asked := time.Now()
					room, err := g.Enter(ctx, nil, size, 1, log.Puts)
					if err != nil {
						return
					}
					waited := time.Since(asked)
					mu.Lock()
					if time.Since(began) > time.Second {
						longest = max(longest, waited)
					}
					if waited > 0 {
						slowed++
					}
					mu.Unlock()
					f.written(room, size)
					g.Leave(size, 1)
					time.Sleep(writers * size * time.Second / want)
				}
			}()
		}
		<-ctx.Done()
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		took := f.end / 40
		t.Logf("%d puts were slowed down, the longest wait %v; %d MB/s went in", slowed, longest, took>>20)
		if longest > 20*time.Millisecond || slowed == 0 {
			t.Errorf("the longest wait was %v (%d were slowed down)", longest, slowed)
		}
		if took < rate*9/10 {
			t.Errorf("only %d bytes a second went in", took)
		}
		time.Sleep(10 * time.Second) // until the last round is over
	})
}

// TestTryIsBraked: puts that cannot wait are let in as fast as checkpoints go, and no faster.
func TestTryIsBraked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := int64(bound / 8)
		g := NewGate(1<<40, 1<<30)
		g.With(Log{Room: newPool(1 << 50), Bytes: bound, Left: func() int64 { return left }, Rate: func() int64 { return rate }})
		in := 0
		for range 10_000 {
			if room, err := g.TryEnter(4096, 1, log.Puts); err == nil {
				g.Return(room)
				in++
			} else if e, ok := err.(*LogError); !ok || e.Full || e.Wait <= 0 || e.Wait > mostDebt {
				t.Fatalf("%#v", err)
			}
			time.Sleep(100 * time.Microsecond) // 40 MB/s are wanted
		}
		// An eighth is left, so about half of what checkpoints take in.
		if n := in * 4096; n < rate*4/10 || n > rate*6/10 {
			t.Errorf("%d bytes were let in in a second", n)
		}
		if _, err := g.TryEnter(4096, 1, log.Deletes); err != nil {
			t.Errorf("deletes are slowed down: %v", err)
		}
		left = bound
		time.Sleep(mostPause)
		for range 1000 {
			if _, err := g.TryEnter(4096, 1, log.Puts); err != nil {
				t.Fatalf("there is plenty again: %v", err)
			}
		}
	})
}

// TestCountedIsNotBraked: a write that was let in, could not be ordered and comes again is let in,
// and takes nothing from the others: it was counted.
func TestCountedIsNotBraked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(1<<40, 1<<30)
		g.With(Log{Room: newPool(1 << 50), Bytes: bound, Left: func() int64 { return bound / 8 }, Rate: func() int64 { return rate }})
		for {
			if _, err := g.TryEnter(4096, 1, log.Puts); err != nil {
				break
			}
		}
		wait := func() time.Duration {
			_, err := g.TryEnter(4096, 1, log.Puts)
			e, _ := err.(*LogError)
			if e == nil {
				t.Fatalf("%v", err)
			}
			return e.Wait
		}
		before := wait()
		for range 100 {
			if _, err := g.TryAgain(4096, 1, log.Puts); err != nil {
				t.Fatal(err)
			}
		}
		if after := wait(); after != before {
			t.Errorf("others wait %v, and %v before", after, before)
		}
	})
}

const (
	bound = 256 << 20
	rate  = 20 << 20
)

// BenchmarkTryEnter is what the gate costs a put, without a log and with one.
func BenchmarkTryEnter(b *testing.B) {
	for _, tc := range []struct {
		name string
		room Room
	}{{"without", nil}, {"with", newLog(b)}} {
		b.Run(tc.name, func(b *testing.B) {
			g := NewGate(1<<30, 1<<20)
			if tc.room != nil {
				g.With(Log{Room: tc.room, Bytes: bound, Left: func() int64 { return bound }, Rate: func() int64 { return rate }})
			}
			for b.Loop() {
				room, err := g.TryEnter(100, 1, log.Puts)
				if err != nil {
					b.Fatal(err)
				}
				g.Return(room)
				g.Leave(100, 1)
			}
		})
	}
}
