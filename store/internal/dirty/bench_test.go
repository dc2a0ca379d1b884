package dirty

import (
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
)

const many = 500_000

// The hash is made by others: the benchmarks of Note and Find prepare keys and hashes.
func prepared(n int) (keys [][]byte, hashes []layout.Hash) {
	for i := range n {
		keys = append(keys, numbered(nil, i))
		hashes = append(hashes, hashOf(keys[i]))
	}
	return keys, hashes
}

func BenchmarkNote(b *testing.B) {
	keys, hashes := prepared(many)
	b.ReportAllocs()
	b.ResetTimer()
	var s Set
	for i := range b.N {
		if i%many == 0 {
			s = Set{}
		}
		s.Note(hashes[i%many], keys[i%many], Entry{Version: layout.Version(i + 1)})
	}
}

func BenchmarkNoteSameKeys(b *testing.B) {
	const keysOf = 1000
	keys, hashes := prepared(keysOf)
	b.ReportAllocs()
	b.ResetTimer()
	var s Set
	for i := range b.N {
		if i%many == 0 {
			s = Set{}
		}
		s.Note(hashes[i%keysOf], keys[i%keysOf], Entry{Version: layout.Version(i + 1)})
	}
}

func BenchmarkFindHit(b *testing.B) {
	s := filled(many)
	keys, hashes := prepared(many)
	b.ResetTimer()
	for i := range b.N {
		if _, ok := s.Find(hashes[i%many], keys[i%many]); !ok {
			b.Fatal("not found")
		}
	}
}

func BenchmarkFindMiss(b *testing.B) {
	s := filled(many)
	keys, hashes := prepared(2 * many)
	b.ResetTimer()
	for i := range b.N {
		if _, ok := s.Find(hashes[many+i%many], keys[many+i%many]); ok {
			b.Fatal("found")
		}
	}
}

func page(b *testing.B, v View, from []byte) {
	it := v.Keys(from, nil)
	for range 1000 {
		if !it.Next() {
			b.Fatal("no more keys")
		}
	}
}

// BenchmarkFirstPage sorts everything.
func BenchmarkFirstPage(b *testing.B) {
	for range b.N {
		b.StopTimer()
		v := filled(many).View()
		b.StartTimer()
		page(b, v, nil)
	}
}

// BenchmarkNextPage is a page when all is sorted but what was noted since the one before it.
func BenchmarkNextPage(b *testing.B) {
	s := filled(many)
	page(b, s.View(), nil)
	keys, hashes := prepared(2 * many)
	n := many
	b.ResetTimer()
	for i := range b.N {
		n++
		s.Note(hashes[n%len(keys)], keys[n%len(keys)], Entry{Version: layout.Version(n)})
		page(b, s.View(), []byte{'k', 'e', 'y', ':', byte(i % 250)})
	}
}

func BenchmarkView(b *testing.B) {
	s := filled(many)
	b.ResetTimer()
	for range b.N {
		s.View()
	}
}

// BenchmarkLeave is Leave of 500,000 records while 1000 stay: with steps of 1000 the longest of
// them is how long others wait for the lock.
func BenchmarkLeave(b *testing.B) {
	for name, most := range map[string]int{"AtOnce": many, "Steps": 1000} {
		b.Run(name, func(b *testing.B) {
			longest := time.Duration(0)
			for range b.N {
				b.StopTimer()
				s := filled(many + 1000)
				b.StartTimer()
				for s.Clean() < many {
					start := time.Now()
					s.Leave(s.Step(many, most), func([]byte) {})
					longest = max(longest, time.Since(start))
				}
			}
			b.ReportMetric(float64(longest.Microseconds()), "us/longest")
		})
	}
}
