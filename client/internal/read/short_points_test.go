//go:build points

package read

import (
	"testing"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/store/layout"
)

// While a get looks at its sink another one READs, as another goroutine would: a value of
// the same length, of another key. It lands in another sink.
func TestSinkIsLookedAtFirst(t *testing.T) {
	inShort(t, func(t *testing.T, r *rig) {
		other := []byte("her key")
		r.Change(func(mem []byte) {
			writeItem(r, mem, itemB, layout.Item{Version: 1, Key: other, Value: []byte("666")})
		})
		loc, _ := r.s.Cache.Find(layout.HashKey(42, key), r.s.Lease.Grant().Retired)
		loc.Place = itemB
		r.s.Cache.Put(layout.HashKey(42, other), loc, r.s.Lease.Grant().Retired)
		nested, met := false, 0
		teeth.SetHook(func(point string, _ ...uint64) {
			if point != "client.found" || nested {
				return
			}
			nested = true
			w := &Query{N: -1}
			if !getQuickly(t.Context(), r.s, other, w) || string(w.Dst) != "666" {
				t.Errorf("%q of the other key", w.Dst)
			}
			nested = false
			met++
		})
		defer teeth.SetHook(nil)
		r.byShortBeside(3, "one")
		if met != 3 {
			t.Errorf("%d gets were interrupted", met)
		}
	})
}

// byShortBeside is byShort with as many READs of another key beside them.
func (r *rig) byShortBeside(n int, want string) {
	r.t.Helper()
	before := r.Sinks.Reads.Load()
	for range n {
		if got, _, err := r.get(); err != nil || got != want {
			r.t.Fatalf("%q, %v", got, err)
		}
	}
	if got := r.Sinks.Reads.Load() - before; got != int64(2*n) {
		r.t.Errorf("%d READs into sinks, want %d", got, 2*n)
	}
}
