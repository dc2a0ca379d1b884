package shard

import (
	"fmt"
	"testing"

	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/log"
)

// BenchmarkPublish is the publishing of a put over an item, with and without a log: the
// difference is what the set costs. A checkpoint comes each 100,000 writes, outside the time.
func BenchmarkPublish(b *testing.B) {
	for name, at := range map[string]log.Position{"Log": 1, "NoLog": 0} {
		b.Run(name, func(b *testing.B) {
			r := newRig(b, true)
			const keys = 10_000
			flights := make([]*flight.Flight, 0, keys)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if i%keys == 0 {
					b.StopTimer()
					if i%(10*keys) == 0 {
						r.checkpoint()
					}
					flights = flights[:0]
					for k := range keys {
						flights = append(flights, r.order(put(fmt.Sprintf("key-%012d", k), "value")))
					}
					r.pass()
					b.StartTimer()
				}
				f := flights[i%keys]
				f.At = at
				r.Publish(f, r.results)
			}
		})
	}
}
