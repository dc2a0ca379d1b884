package logged

import (
	"testing"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/flight"
)

// walk reads all that a body says.
func walk(b []byte) (n int) {
	w, err := Parse(b)
	if err != nil {
		panic(err)
	}
	for e := range w.Effects {
		n += len(e.Key) + len(e.Value)
	}
	if k, _, ok := w.Result(); ok {
		n += int(k.Slot)
	}
	for k := range w.Forget {
		n += int(k.Slot)
	}
	return n
}

// TestNoAllocation: neither the way into a body nor the way out of it allocates.
func TestNoAllocation(t *testing.T) {
	forgets := withResult(numbered(3, 7, many(3)...))
	forgets.Forget = make([]base.SlotKey, 3)
	for name, f := range map[string]*flight.Flight{"put": benchFlight(), "put with a result": withResult(benchFlight()), "all": forgets} {
		b := make([]byte, Size(f))
		if n := testing.AllocsPerRun(100, func() { Size(f); Put(b, f) }); n != 0 {
			t.Errorf("%s: Put allocates %v times", name, n)
		}
		if n := testing.AllocsPerRun(100, func() { walk(b) }); n != 0 {
			t.Errorf("%s: Parse and the walk allocate %v times", name, n)
		}
	}
}

// benchFlight is a put of 100 bytes under a key of 16.
func benchFlight() *flight.Flight {
	return numbered(3, 7, base.Effect{Key: make([]byte, 16), Value: make([]byte, 100)})
}

func BenchmarkPut(b *testing.B) {
	bench(b, func(b *testing.B, f *flight.Flight, body []byte) {
		for b.Loop() {
			Put(body[:Size(f)], f)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	bench(b, func(b *testing.B, f *flight.Flight, body []byte) {
		for b.Loop() {
			if _, err := Parse(body); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkWalk(b *testing.B) {
	bench(b, func(b *testing.B, f *flight.Flight, body []byte) {
		for b.Loop() {
			walk(body)
		}
	})
}

// bench runs a benchmark for a put without an id, with one, and for a batch of 64.
func bench(b *testing.B, run func(b *testing.B, f *flight.Flight, body []byte)) {
	for _, c := range []struct {
		name string
		f    *flight.Flight
	}{{"plain", benchFlight()}, {"result", withResult(benchFlight())}, {"batch64", withResult(numbered(3, 7, many(64)...))}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			run(b, c.f, put(c.f))
		})
	}
}
