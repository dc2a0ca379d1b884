package load

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestPace: calls are due at even moments, each is made by one caller, late ones at
// once, and those that no caller made are counted. The clock is the test's.
func TestPace(t *testing.T) {
	var clock atomic.Int64
	var stop atomic.Bool
	p := &pace{now: func() int64 { return clock.Add(10) }, stop: &stop, period: 1000}
	p.begin(5000, 5000+100_000, math.MaxInt64)
	for k := range 50 {
		due, ok := p.next()
		if !ok || due != 5000+int64(k)*1000 || clock.Load() < due || clock.Load() > due+20 {
			t.Fatalf("call %d was due at %d, and made at %d", k, due, clock.Load())
		}
	}
	clock.Store(5000 + 80_000) // all callers were busy
	for k := 50; k < 60; k++ {
		if due, ok := p.next(); !ok || due != 5000+int64(k)*1000 {
			t.Fatalf("call %d was due at %d", k, due)
		}
	}
	clock.Store(5000 + 100_000)
	if _, ok := p.next(); ok {
		t.Error("a call after the end")
	}
	if due, missed := p.due(clock.Load()); due != 100 || missed != 40 {
		t.Errorf("%d due, %d missed", due, missed)
	}
	p.begin(0, never, 3)
	clock.Store(1 << 30)
	for k := range 4 {
		if _, ok := p.next(); ok != (k < 3) {
			t.Errorf("call %d of 3: %v", k, ok)
		}
	}
	if due, missed := p.due(clock.Load()); due != 3 || missed != 0 {
		t.Errorf("%d due, %d missed", due, missed)
	}
	p.begin(1<<40, never, 3)
	stop.Store(true)
	if _, ok := p.next(); ok {
		t.Error("a call although it was stopped")
	}
}

// TestNoOmission: one call that takes long shows in those that were due meanwhile.
func TestNoOmission(t *testing.T) {
	const stall = 100 * time.Millisecond
	m := newMemStore()
	o := testOptions(m)
	o.Operations, o.Duration, o.Rate, o.Workers = 0, 500*time.Millisecond, 1000, 1
	if _, err := Fill(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	m.before = func(Op, []byte) error {
		if calls.Add(1) == 20 {
			time.Sleep(stall)
		}
		return nil
	}
	res, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	// Of the hundred calls that were due during the stall each waited for what was
	// left of it: half of it on average. One caller in a closed loop would show one.
	get := res.Operations["get"]
	if slow := float64(stall) / 1e3; get.Max < slow || get.P90 < slow/8 || res.OpenLoop.Lag.Max < slow*0.9 {
		t.Errorf("p90 %v µs, max %v µs, lag up to %v µs, of a stall of %v", get.P90, get.Max, res.OpenLoop.Lag.Max, stall)
	}
	if res.OpenLoop.Due != 500 || res.Ops+res.OpenLoop.Missed != 500 || res.OpenLoop.Rate != 1000 {
		t.Errorf("%d operations, %+v", res.Ops, res.OpenLoop)
	}
}

// TestSeries: every operation is in its interval, however long the run.
func TestSeries(t *testing.T) {
	var s series
	second := int64(time.Second)
	for i := range int64(100) {
		s.add(i*second/10, 5, 2, false)
	}
	s.add(3*second, 700, 1, true)
	points := s.points(9950 * time.Millisecond)
	if len(points) != 10 || points[3].Ops != 20 || points[3].Errors != 1 || points[3].Mean != 0.005 || points[3].OpsPerSecond != 20 {
		t.Errorf("%d points, %+v", len(points), points[3])
	}
	if last := points[9]; last.Seconds < 0.94 || last.Seconds > 0.96 {
		t.Errorf("the last interval has %v s", last.Seconds)
	}
	var long series
	total := int64(0)
	for i := range int64(5000) {
		long.add(i*20*second, i, 1, false) // 100,000 s
		total++
	}
	long.add(0, 1, 1, false) // a late one
	if len(long.slots) > maxSlots {
		t.Errorf("%d intervals", len(long.slots))
	}
	s.merge(&long)
	sum, most := int64(0), 0.0
	for _, p := range s.points(100_000 * time.Second) {
		sum += p.Ops
		most = max(most, p.Max)
	}
	if sum != total+1+200 || most != micros(4999) {
		t.Errorf("%d operations of %d, the longest %v", sum, total+201, most)
	}
}

// TestFrontier: keys become visible without gaps, whatever the order of inserts.
func TestFrontier(t *testing.T) {
	f := newFrontier(10)
	for want := uint64(10); want < 16; want++ {
		if i, err := f.take(); err != nil || i != want {
			t.Fatalf("%d, %v, want %d", i, err, want)
		}
	}
	for _, step := range []struct{ i, limit uint64 }{{12, 10}, {11, 10}, {10, 13}, {15, 13}, {13, 14}, {14, 16}} {
		f.inserted(step.i)
		if got := f.limit.Load(); got != step.limit {
			t.Errorf("after %d: %d, want %d", step.i, got, step.limit)
		}
	}
	first, _ := f.take()
	for {
		if _, err := f.take(); err != nil {
			break
		}
	}
	if n := f.next - first; n != frontierWindow {
		t.Errorf("%d inserts ahead", n)
	}
	f.inserted(first)
	if i, err := f.take(); err != nil || i != first+frontierWindow {
		t.Errorf("%d, %v", i, err)
	}
	// Many callers, several times round the ring.
	f = newFrontier(1)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for done := 0; done < 25_000; {
				i, err := f.take()
				if err != nil { // a caller was put to sleep with its key
					runtime.Gosched()
					continue
				}
				f.inserted(i)
				done++
			}
		})
	}
	wg.Wait()
	if got := f.limit.Load(); got != 200_001 {
		t.Errorf("%d keys", got)
	}
}

// TestKinds: the number of kinds is bounded, and nothing is lost.
func TestKinds(t *testing.T) {
	f := failures{classify: func(err error) string { return err.Error() }}
	for i := range 100 {
		f.add(fmt.Errorf("kind %d", i%40), 2)
	}
	sum := int64(0)
	for _, k := range f.list() {
		sum += k.Count
	}
	if n := len(f.list()); n != maxKinds || sum != 200 || f.total() != 200 || f.list()[0].Kind != otherKind {
		t.Errorf("%d kinds, %d errors: %v", n, sum, f.list())
	}
}

// TestOptions: what is out of range is named, all at once.
func TestOptions(t *testing.T) {
	m := newMemStore()
	good := testOptions(m)
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Options){
		"Records is 0":                func(o *Options) { o.Records = 0 },
		"Workers is 5000":             func(o *Options) { o.Workers = 5000 },
		"Batch is -1":                 func(o *Options) { o.Batch = -1 },
		"calls for many keys":         func(o *Options) { o.Batch, o.Mix = 2, Mix{OpScan: 1} },
		"Theta is 1":                  func(o *Options) { o.Theta = 1 },
		"Theta is NaN":                func(o *Options) { o.Theta = math.NaN() },
		"Rate is NaN":                 func(o *Options) { o.Rate = math.NaN() },
		"Warmup is -1ns":              func(o *Options) { o.Warmup = -1 },
		"both 0":                      func(o *Options) { o.Duration, o.Operations = 0, 0 },
		"Choice is 9":                 func(o *Options) { o.Choice = 9 },
		"all shares":                  func(o *Options) { o.Mix = Mix{} },
		"keys of 3 bytes":             func(o *Options) { o.Keys.Size = 3 },
		"a value of 0 to -1":          func(o *Options) { o.Values = Sizes{ranges: []sizeRange{{0, -1, 1 << 32}, {0, MaxValue + 1, 1 << 32}}} },
		"would hold":                  func(o *Options) { o.Workers, o.Values = 4096, FixedSize(1<<20) },
		"FillWorkers is -1":           func(o *Options) { o.FillWorkers = -1 },
		"FillBatch is 9999":           func(o *Options) { o.FillBatch = 9999 },
		"ScanMax is -4":               func(o *Options) { o.ScanMax = -4 },
		"Duration is 25h0m0s":         func(o *Options) { o.Duration = 25 * time.Hour },
		"Operations is 9223372036854": func(o *Options) { o.Operations = math.MaxUint64/2 + 1 },
		"Open is nil":                 func(o *Options) { o.Open = nil },
	} {
		o := good
		change(&o)
		err := o.Validate()
		if want == "a value of 0 to -1" {
			want = "a value of 0 to 1073741825"
		}
		if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
		if _, runErr := Run(t.Context(), o); !errors.Is(runErr, ErrOptions) {
			t.Errorf("%s: Run: %v", want, runErr)
		}
	}
	if m.opened.Load() != 0 {
		t.Error("a store was opened")
	}
}

// TestFill: the first error ends it and tells how far it came; Probe sees whether
// it was there.
func TestFill(t *testing.T) {
	m := newMemStore()
	o := testOptions(m)
	if err := Probe(t.Context(), o); !errors.Is(err, ErrNotFound) {
		t.Errorf("nothing is there, and Probe says %v", err)
	}
	filled, err := Fill(t.Context(), o)
	if err != nil || filled.Keys != 500 || filled.Bytes != 500*(12+64) || len(m.values) != 500 {
		t.Errorf("%+v, %v", filled, err)
	}
	if err := Probe(t.Context(), o); err != nil {
		t.Error(err)
	}
	other := o
	other.Values = FixedSize(65)
	if err := Probe(t.Context(), other); !errors.Is(err, ErrWrongValue) {
		t.Errorf("another size, and Probe says %v", err)
	}
	var n atomic.Int64
	m.before = func(Op, []byte) error {
		if n.Add(1) == 100 {
			return errors.New("full")
		}
		return nil
	}
	filled, err = Fill(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "of 500 keys: full") || filled.Keys < 90 || filled.Keys > 110 {
		t.Errorf("%+v, %v", filled, err)
	}
	if m.opened.Load() != m.closed.Load() {
		t.Errorf("%d opened, %d closed", m.opened.Load(), m.closed.Load())
	}
}
