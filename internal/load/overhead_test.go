package load

import (
	"context"
	"fmt"
	"testing"
)

// A nullStore answers every get with what was put, without any work.
type nullStore struct {
	Store
	value []byte
}

func (s *nullStore) Get(context.Context, []byte, []byte) ([]byte, Path, error) {
	return s.value, PathRead1, nil
}
func (s *nullStore) Put(context.Context, []byte, []byte) error { return nil }
func (s *nullStore) Close() error                              { return nil }

// BenchmarkOverhead is what the generator itself costs: all of an operation of a
// store that takes no time. "p50-ns" is what it adds to the latency of a call.
func BenchmarkOverhead(b *testing.B) {
	for _, bc := range []struct {
		choice Choice
		op     Op
	}{{Zipfian, OpGet}, {Uniform, OpGet}, {Zipfian, OpPut}} {
		for _, workers := range []int{1, 50} {
			b.Run(fmt.Sprintf("%v/%v/workers=%d", bc.op, bc.choice, workers), func(b *testing.B) {
				o := Options{
					Records: 1, Values: FixedSize(64), Workers: workers, Choice: bc.choice, Operations: uint64(b.N), Keys: Keys{Prefix: "bench/"},
				}
				o.Mix[bc.op] = 1
				value := newValues(o.Values).make(nil, 0, 0)
				o.Open = func(context.Context, int) (Store, error) { return &nullStore{value: value}, nil }
				b.ReportAllocs()
				b.ResetTimer()
				res, err := Run(b.Context(), o)
				if err != nil || res.Errors != 0 {
					b.Fatal(err, res.ErrorKinds)
				}
				b.ReportMetric(res.P50*1e3, "p50-ns")
				b.ReportMetric(1e9/res.OpsPerSecond, "ns-between")
			})
		}
	}
}

// TestNoAllocation: an operation allocates nothing, so that the collector has
// nothing to do with what is measured.
func TestNoAllocation(t *testing.T) {
	o := Options{Records: 1, Values: FixedSize(64), Workers: 1, Choice: Zipfian, Mix: Mix{OpGet: 1, OpPut: 1, OpRMW: 1}, Operations: 1, Keys: Keys{Prefix: "bench/"}}
	value := newValues(o.Values).make(nil, 0, 0)
	o.Open = func(context.Context, int) (Store, error) { return &nullStore{value: value}, nil }
	if testing.Short() {
		t.Skip("the race detector makes it long, and allocates by itself")
	}
	run := func(ops uint64) float64 {
		o.Operations = ops
		return testing.AllocsPerRun(3, func() {
			if _, err := Run(context.Background(), o); err != nil {
				t.Fatal(err)
			}
		})
	}
	few, many := run(1000), run(101_000)
	if many-few > 50 { // of 100,000 operations; a longer run may have a few more points and buffers
		t.Errorf("%v allocations for 1,000 operations and %v for 101,000", few, many)
	}
}
