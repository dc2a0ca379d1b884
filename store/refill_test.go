package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/shard"
)

// TestRefill: shards that are emptied at any moment of their fill, before it, while it is at them, and behind it, are whole again in the
// end: each key is found, and each miss is believed by one-sided readers.
func TestRefill(t *testing.T) {
	keys, rounds := 12_000, 6
	if testing.Short() {
		keys, rounds = 2000, 3
	}
	c := testConfig(memFS())
	c.Shards = 2
	n := open(t, c)
	n.fill()
	for i := range keys {
		n.submit(&Write{Op: Op{Shard: uint16(i % 2), Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "v%d", i)}, Done: func(*Write) {}})
	}
	n.checkpoint()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64N(1 << 40)
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for round := range rounds {
		hold := make(chan struct{})
		c.Memory, c.holdFill = newHeapMemory(), hold
		n = open(t, c)
		empty := func() {
			for i := range 2 {
				sh := n.shard(i)
				if sh.Unfill() {
					n.lease()
				}
				if round%2 == 1 {
					sh.Clear()
				}
				shard.Empty(sh, sh.Marks().Published, errors.New("another state"))
				n.filler.Again(sh)
			}
		}
		if round%3 == 0 {
			empty() // it has not begun
		}
		close(hold)
		for range rng.IntN(6) {
			time.Sleep(time.Duration(rng.IntN(3000)) * time.Microsecond)
			empty()
		}
		if round%2 == 0 {
			n.fill()
			empty()
		}
		n.fill()
		// A few stay on the disk: they would have come to the places where they stood a moment ago. Where the fill of a chunk was begun just
		// before the shard was emptied, such a key may have got an item, too.
		if st := n.Stats(); st.Keys > uint64(keys) || st.Keys+st.PebbleOnly < uint64(keys) || st.PebbleOnly > uint64(keys)/20 || st.Slotless != 0 || st.ShardsFilled != 2 {
			t.Fatalf("round %d: %d keys of %d in memory, %d on the disk, %d without a slot, %d shards filled", round, st.Keys, keys, st.PebbleOnly, st.Slotless, st.ShardsFilled)
		}
		r := n.reader()
		for range 200 {
			i := rng.IntN(keys)
			n.want(i%2, fmt.Sprintf("k%d", i), fmt.Sprintf("v%d", i))
			r.wantAbsent(i%2, fmt.Sprintf("x%d", i))
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestClear: what a shard has in memory goes before it is emptied, in steps. Until then each key is found, in the log or in the base, and
// no get brings one back; a miss is asked.
func TestClear(t *testing.T) {
	c := testConfig(memFS())
	c.checkpoints = time.Hour
	n := open(t, c)
	n.fill()
	const keys = 10_000 // several steps
	put := func(first int) {
		for i := range keys / 2 {
			n.submit(&Write{Op: Op{Key: fmt.Appendf(nil, "k%d", first+i), Value: fmt.Appendf(nil, "v%d", first+i)}, Done: func(*Write) {}})
		}
	}
	put(0)
	n.checkpoint()
	put(keys / 2)
	n.put(0, "last", "v")
	sh := n.shard(0)
	if sh.Unfill() {
		n.lease()
	}
	sh.Clear()
	for i := range keys {
		n.want(0, fmt.Sprintf("k%d", i), fmt.Sprintf("v%d", i))
	}
	n.wantAbsent(0, "x")
	if st := n.Stats(); st.Keys+st.PebbleOnly != 0 {
		t.Errorf("%d keys in memory, %d slots that lead to the disk", st.Keys, st.PebbleOnly)
	}
	shard.Empty(sh, sh.Marks().Published, errors.New("another state"))
	n.filler.Again(sh)
	n.checkpoint()
	n.fill()
	r := n.reader()
	r.wantAbsent(0, "x")
}
