package store

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestWithheld: nobody believes a miss in a shard that this store does not
// serve, filled or not, split or not; once it is released, misses count as in
// every other.
func TestWithheld(t *testing.T) {
	fs := vfs.NewMem()
	for _, mode := range []Mode{Durable, Cache} {
		for _, life := range []string{"new", "again"} {
			t.Run(mode.String()+" "+life, func(t *testing.T) {
				c := testConfig(fs)
				c.Mode = mode
				c.Withheld = func(shard uint16) bool { return shard != 2 }
				n := open(t, c)
				n.fill()
				r := n.reader()
				for shard := range 4 {
					withheld, err := n.Withheld(uint16(shard))
					if err != nil || withheld != (shard != 2) {
						t.Errorf("shard %d: withheld %v, %v", shard, withheld, err)
					}
					if shard == 2 {
						r.wantAbsent(shard, "no such key")
					} else {
						r.wantAsk(shard, "no such key")
					}
				}
				// Growth takes the headers along.
				for i := range 3000 {
					n.put(1, withheldKey(i), "v")
				}
				n.lease()
				r.wantAsk(1, "no such key")
				r.want(1, withheldKey(7), "v") // a key that is there is not hidden
				for shard := range uint16(4) {
					if err := n.Release(shard); err != nil {
						t.Fatal(err)
					}
				}
				n.lease()
				for shard := range 4 {
					r.wantAbsent(shard, "no such key")
				}
				if err := n.Release(1); err != nil { // once more does nothing
					t.Error(err)
				}
				r.want(1, withheldKey(7), "v")
				if err := n.Release(4); !errors.Is(err, ErrShard) {
					t.Errorf("a shard too many: %v", err)
				}
				if err := n.Close(); err != nil {
					t.Fatal(err)
				}
				if err := n.Release(0); !errors.Is(err, ErrClosed) {
					t.Errorf("after the end: %v", err)
				}
			})
		}
	}
}

// TestReleasedWhileFilling: a shard that is released before its fill is over is
// believed when it is.
func TestReleasedWhileFilling(t *testing.T) {
	fs := vfs.NewMem()
	c := testConfig(fs)
	n := open(t, c)
	for i := range 100 {
		n.put(i%4, withheldKey(i), "v")
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	c = testConfig(fs)
	c.Withheld = func(uint16) bool { return true }
	n = open(t, c)
	for shard := range uint16(4) {
		if err := n.Release(shard); err != nil { // wherever its fill is just now
			t.Fatal(err)
		}
	}
	n.fill()
	n.lease()
	r := n.reader()
	for shard := range 4 {
		r.wantAbsent(shard, "no such key")
	}
}

func withheldKey(i int) string { return fmt.Sprintf("key %04d", i) }
