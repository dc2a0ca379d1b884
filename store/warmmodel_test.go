package store

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
)

// A warmModel is lives of a cache one after the other, each of which begins with the memory that the one before had at some instant, and what may be seen in them:
// of each key nothing, or its newest acknowledged value, or one that was written since and not acknowledged. What was seen once to be absent stays absent until it is
// written again.
type warmModel struct {
	t   *testing.T
	rng *rand.Rand
	n   *node
	// may are the values that a key may have, besides none. Those of a write under way are in doing too.
	may   map[string][]string
	doing map[string][]string
	count int // of values, so that no two are the same

	next *keptHeap           // the memory with which the next life begins, once it was copied
	was  map[string][]string // and may, of that instant
}

const warmKeys = 60

func newWarmModel(t *testing.T, seed uint64) *warmModel {
	return &warmModel{t: t, rng: rand.New(rand.NewPCG(seed, 7)), may: make(map[string][]string)}
}

// warmSeed is the seed of a round: WARM_SEED has one alone run again.
func warmSeed(t *testing.T, round int) uint64 {
	if s := os.Getenv("WARM_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return seed
	}
	return uint64(round)
}

// open begins a life. hold: nothing is believed but what is asked for.
func (w *warmModel) open(m *keptHeap, hold bool) {
	c := warmConfig(m)
	c.MemoryLimit, c.ScrubRate = 24<<20, -1
	if hold {
		c.holdFill = make(chan struct{})
	}
	w.n, w.next, w.was = openWarm(w.t, c), nil, nil
}

// stop copies the memory: the life may go on, and what it does after that is nothing to the next one.
func (w *warmModel) stop() {
	w.was = w.both()
	w.next = w.n.cfg.Memory.(*keptHeap).die()
}

// both is what may be seen if the life ends now.
func (w *warmModel) both() map[string][]string {
	m := maps.Clone(w.may)
	for key, values := range w.doing {
		m[key] = append(slices.Clone(m[key]), values...)
	}
	return m
}

func (w *warmModel) key() string { return fmt.Sprintf("key-%d", w.rng.IntN(warmKeys)) }

// value is a new one, of a key.
func (w *warmModel) value() string {
	w.count++
	size := w.rng.IntN(300)
	if w.rng.IntN(40) == 0 {
		size = w.rng.IntN(150 << 10)
	}
	return pattern(size, "v") + strconv.Itoa(w.count)
}

// judge says what was seen of a key.
func (w *warmModel) judge(key, got string, found bool, how string) {
	w.t.Helper()
	if found && !slices.Contains(w.may[key], got) {
		may := make([]string, 0, len(w.may[key]))
		for _, v := range w.may[key] {
			may = append(may, clip(v))
		}
		w.t.Fatalf("%s of %q is %q; it may be absent or one of %q", how, key, clip(got), may)
	}
	if w.may[key] = nil; found {
		w.may[key] = []string{got}
	}
}

// look asks for a key, by READ or by SEND.
func (w *warmModel) look(key string) {
	w.t.Helper()
	if w.rng.IntN(2) == 0 {
		_, got, found, ask := w.n.reader().get(0, key)
		if !ask {
			w.judge(key, got, found, "a READ")
			return
		}
	}
	got, found := w.n.get(0, key)
	w.judge(key, got, found, "a get")
}

// step does one thing.
func (w *warmModel) step() {
	w.t.Helper()
	key := w.key()
	switch w.rng.IntN(12) {
	case 0, 1:
		w.look(key)
	case 2:
		w.doing = map[string][]string{key: nil}
		w.n.del(0, key)
		w.may[key] = nil
	case 3: // two keys in a batch
		values := map[string][]string{key: {w.value()}}
		values[w.key()] = []string{w.value()}
		b := Write{Op: Op{Kind: OpBatch}}
		for _, k := range slices.Sorted(maps.Keys(values)) {
			b.Op.Parts = append(b.Op.Parts, Part{Key: []byte(k), Value: []byte(values[k][0])})
		}
		w.doing = values
		if err := w.n.Do(context.Background(), &b); err != nil || b.Err != nil {
			w.t.Fatalf("a batch: %v, %v", err, b.Err)
		}
		maps.Copy(w.may, values)
	case 4: // a reader holds the value while it is replaced
		held, err := w.n.Hold(context.Background(), 0, []byte(key))
		w.put(key)
		if err == nil {
			held.Release()
		}
	case 5:
		w.n.evictKey(0, key) // it may be there no more, and its value may not come back after it was seen to be absent
	case 6: // the index grows
		for range 100 {
			w.count++
			w.n.put(0, fmt.Sprintf("more-%d", w.count), "more")
		}
	default:
		w.put(key)
	}
	w.doing = nil
}

func (w *warmModel) put(key string) {
	w.t.Helper()
	value := w.value()
	w.doing = map[string][]string{key: {value}}
	w.n.put(0, key, value)
	w.may[key] = []string{value}
}

// end ends a life, and goes on with what was copied of it.
func (w *warmModel) end() *keptHeap {
	w.t.Helper()
	if w.next == nil {
		w.stop()
	}
	m := w.next
	if err := w.n.Close(); err != nil {
		w.t.Fatal(err)
	}
	w.may, w.doing = w.was, nil
	return m
}

// begin opens a life over m, which may be damaged besides, and looks at some keys, or at all. While it opens, and while it believes, its end may come already,
// several times.
func (w *warmModel) begin(m *keptHeap) {
	w.t.Helper()
	for w.rng.IntN(3) == 0 {
		copied := make(chan *keptHeap)
		go func() { copied <- m.die() }()
		w.open(m, w.rng.IntN(2) == 0)
		m = <-copied
		if err := w.n.Close(); err != nil {
			w.t.Fatal(err)
		}
	}
	if w.rng.IntN(3) == 0 {
		damage(m, w.rng, 1<<w.rng.IntN(10))
	}
	w.open(m, w.rng.IntN(2) == 0)
	look := w.rng.IntN(3)
	for i := range warmKeys {
		if look == 2 || look == 1 && w.rng.IntN(4) == 0 {
			w.look(fmt.Sprintf("key-%d", i))
		}
	}
}

// TestWarmModel: random operations in lives that end at any instant, also while they take over what the one before has left. The copies are made while the
// store goes on, so their words are of different instants: these are more states than ends of a process leave, and the rules hold for them too.
func TestWarmModel(t *testing.T) {
	rounds := 12
	if testing.Short() || underRace {
		rounds = 3
	}
	if os.Getenv("WARM_SEED") != "" {
		rounds = 1
	}
	warmed := 0
	for round := range rounds {
		seed := warmSeed(t, round)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			w := newWarmModel(t, seed)
			m := newKeptHeap()
			for range 6 {
				w.begin(m)
				at := w.rng.IntN(150)
				for i := range at + 1 {
					if i < at {
						w.step()
						continue
					}
					// The copy is made beside the operations that follow: each of their values may be in it.
					was := w.both()
					copied := make(chan *keptHeap)
					go func() { copied <- w.n.cfg.Memory.(*keptHeap).die() }()
					for w.next == nil {
						w.step()
						for key, values := range w.may {
							for _, v := range values {
								if !slices.Contains(was[key], v) {
									was[key] = append(slices.Clone(was[key]), v)
								}
							}
						}
						select {
						case w.next = <-copied:
							w.was = was
						default:
						}
					}
				}
				if st := KeptStatsOf(w.n.Store); st.Believed > warmKeys/4 {
					warmed++
				}
				m = w.end()
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d: run it again with WARM_SEED=%d", seed, seed)
		}
	}
	if warmed < rounds {
		t.Errorf("in %d lives of %d rounds something was believed: this test sees too little", warmed, rounds)
	}
}
