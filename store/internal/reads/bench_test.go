package reads

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// BenchmarkScan is a page of 1000 entries of 100 bytes over 32 shards, of a base with 200,000
// keys, of which some are newer than the base and in the log alone, or in memory. The first page
// sorts what is newer, and is not measured.
func BenchmarkScan(b *testing.B) {
	const shards, keys = 32, 200_000
	value := strings.Repeat("v", 100)
	name := func(i int) string { return fmt.Sprintf("%c-%08d", 'A'+i%shards, i/shards*7919%keys) }
	for _, c := range []struct {
		name  string
		newer int
		cold  bool // memory does not have them
	}{
		{name: "newer=0"},
		{name: "newer=10k", newer: 10_000},
		{name: "newer=10k cold", newer: 10_000, cold: true},
		{name: "newer=500k", newer: 500_000},
	} {
		b.Run(c.name, func(b *testing.B) {
			w := newWorld(b, shards, vfs.NewMem())
			w.full = true
			for i := range keys {
				w.do(put(name(i), value))
			}
			w.checkpoint()
			w.full = c.cold
			for i := range c.newer {
				w.do(put(name(i), value))
			}
			var after []byte
			page := func() {
				p, err := w.reads.Scan(b.Context(), ScanRequest{After: after})
				if err != nil || len(p.Entries) < 500 {
					b.Fatalf("%d entries, %v", len(p.Entries), err)
				}
				if after = p.Next; len(p.Next) == 0 || p.Next[0] > 'A'+shards-4 {
					after = nil
				}
			}
			page()
			b.ReportAllocs()
			for b.Loop() {
				page()
			}
		})
	}
}
