package store

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/test/crashfs"
)

// TestFillBesideEverything: a store is killed whose keys are in the base, in the log, or in both,
// some of them deleted there. The next life fills its memory while writers go on and checkpoints
// follow each other. Each writer finds what it has written last, at any time; and when all is
// filled, each key is what it was written last, for those who ask and for one-sided readers.
func TestFillBesideEverything(t *testing.T) {
	seed := rand.Uint64()
	if *crashSeed != 0 {
		seed = *crashSeed
	}
	t.Log(replay(t, seed))
	keys := 6000
	if underRace {
		keys = 1500
	}
	fs := crashfs.New()
	c := testConfig(fs)
	c.checkpoints = time.Hour
	n := open(t, c)
	rng := rand.New(rand.NewPCG(seed, 7))
	want := make([]string, keys) // "": it is not there
	key := func(i int) string { return fmt.Sprint("key-", i) }
	write := func(n *node, rng *rand.Rand, i int) {
		if rng.IntN(4) == 0 {
			want[i] = ""
			n.del(i%4, key(i))
			return
		}
		want[i] = pattern(1+rng.IntN(200), fmt.Sprint(rng.Uint32()))
		n.put(i%4, key(i), want[i])
	}
	for i := range keys {
		write(n, rng, i)
	}
	n.checkpoint()
	for range keys / 2 {
		write(n, rng, rng.IntN(keys))
	}
	c = testConfig(fs.CrashClone(vfs.CrashCloneCfg{}))
	c.PredecessorGone, c.holdFill, c.FillWorkers = true, make(chan struct{}), 2
	n = open(t, c)
	close(c.holdFill)

	stop := make(chan struct{})
	var all sync.WaitGroup
	const writers = 3
	for w := range writers { // each has keys of its own
		all.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(8+w)))
			for {
				select {
				case <-stop:
					return
				default:
				}
				i := rng.IntN(keys/writers)*writers + w
				if rng.IntN(2) == 0 {
					write(n, rng, i)
				}
				if got, ok := n.get(i%4, key(i)); ok != (want[i] != "") || got != want[i] {
					t.Errorf("%s is %q, %v; want %q", key(i), clip(got), ok, clip(want[i]))
					return
				}
			}
		})
	}
	all.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				n.checkpoint()
			}
		}
	})
	n.fill()
	close(stop)
	all.Wait()
	n.lease()
	r := n.reader()
	asked := 0
	for i, want := range want {
		_, got, found, ask := r.get(i%4, key(i))
		if ask {
			asked++
		} else if found != (want != "") || got != want {
			t.Fatalf("a reader says of %s %q, %v; it is %q", key(i), clip(got), found, clip(want))
		}
		if got, ok := n.get(i%4, key(i)); ok != (want != "") || got != want {
			t.Fatalf("%s is %q, %v; want %q", key(i), clip(got), ok, clip(want))
		}
	}
	if st := n.Stats(); asked > keys/2 || st.Log.Checkpoints.Done == 0 {
		t.Errorf("%d of %d keys have to be asked for; %d checkpoints", asked, keys, st.Log.Checkpoints.Done)
	}
}
