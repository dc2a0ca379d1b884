package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/warm"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/region"
)

// A keptHeap is memory that outlives a store: its next one finds what the one before has left.
type keptHeap struct {
	*heapMemory
	record []byte
	left   map[uint32][]byte
}

func newKeptHeap() *keptHeap {
	return &keptHeap{heapMemory: newHeapMemory(), record: make([]byte, region.RecordBytes), left: make(map[uint32][]byte)}
}

func (m *keptHeap) Leave()                  {}
func (m *keptHeap) Record() []byte          { return m.record }
func (m *keptHeap) Left() map[uint32][]byte { return maps.Clone(m.left) }
func (m *keptHeap) Forget() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.left)
	return nil
}
func copyWords(mem []byte) []byte {
	b := make([]byte, len(mem))
	for off := 0; off < len(mem); off += 8 {
		binary.LittleEndian.PutUint64(b[off:], layout.LoadWord(mem, off))
	}
	return b
}

func (m *keptHeap) Adopt(id uint32, _ layout.RegionKind) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.limit > 0 {
		return nil, errHeapFull
	}
	b := m.left[id]
	delete(m.left, id)
	m.live[id], m.used = b, m.used+len(b)
	return b, nil
}

// die is the memory as the next process finds it if this one ends now. What the store does with its own is nothing to the next one. If the store goes on
// meanwhile, the words are of different instants.
func (m *keptHeap) die() *keptHeap {
	m.mu.Lock()
	all := maps.Clone(m.live)
	maps.Copy(all, m.left)
	m.mu.Unlock()
	next := newKeptHeap()
	next.record = copyWords(m.record)
	for id, mem := range all {
		next.left[id] = copyWords(mem)
	}
	return next
}

func warmConfig(m *keptHeap) Config {
	c := cacheConfig(64 << 20)
	c.Memory, c.Kept, c.KeptAs = m, true, 7
	return c
}

func openWarm(t testing.TB, c Config) *node {
	t.Helper()
	s, err := Open(context.Background(), c)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return &node{Store: s, t: t, heap: c.Memory.(*keptHeap).heapMemory, now: time.Now()}
}

// believed waits until all that was left is believed or dropped.
func (n *node) believed() warm.Stats {
	n.t.Helper()
	waitFor(n.t, "belief in what was left", func() bool { return !n.mem.Believing() && KeptStatsOf(n.Store).Took > 0 })
	return KeptStatsOf(n.Store)
}

// TestWarmRestart: the next life has every key of the life before, small ones and large ones, by SEND and by READ, and none that was deleted;
// versions go on, and keys can be put, deleted and counted as ever.
func TestWarmRestart(t *testing.T) {
	m := newKeptHeap()
	n := openWarm(t, warmConfig(m))
	const keys = 20_000
	for i := range keys {
		n.put(i%4, fmt.Sprintf("key-%d", i), "old")
	}
	for i := range keys {
		if i%3 == 0 {
			n.put(i%4, fmt.Sprintf("key-%d", i), "new")
		}
		if i%10 == 1 {
			n.del(i%4, fmt.Sprintf("key-%d", i))
		}
	}
	for i, size := range []int{0, 5000, layout.ChunkSize + 1, 1 << 20, 3 << 20} {
		n.put(0, fmt.Sprintf("large-%d", i), pattern(size, "large"))
	}
	before := n.Stats().Keys
	last := n.put(0, "last", "one")
	for life := range 3 {
		m = m.die()
		n = openWarm(t, warmConfig(m))
		st := n.believed()
		if st.Dropped+st.Refused > 0 || st.Believed != before+1 || n.Stats().Keys != before+1 {
			t.Fatalf("life %d: %+v, %d keys; the life before had %d", life, st, n.Stats().Keys, before+1)
		}
		r := n.reader()
		for i := range keys {
			key, want := fmt.Sprintf("key-%d", i), "old"
			if i%3 == 0 {
				want = "new"
			}
			if i%10 == 1 {
				r.wantAbsent(i%4, key)
				n.wantAbsent(i%4, key)
				continue
			}
			r.want(i%4, key, want)
			n.want(i%4, key, want)
		}
		for i, size := range []int{0, 5000, layout.ChunkSize + 1, 1 << 20, 3 << 20} {
			r.want(0, fmt.Sprintf("large-%d", i), pattern(size, "large"))
		}
		v := n.put(0, "last", "one")
		if v <= last {
			t.Fatalf("version %v behind %v of the life before", v, last)
		}
		last = v
	}
	for i := range keys { // growth, reuse and deletes over what was taken over
		key := fmt.Sprintf("key-%d", i)
		n.put(i%4, key, pattern(50, key))
		n.put(i%4, "more-"+key, "more")
		n.want(i%4, key, pattern(50, key))
		n.del(i%4, key)
	}
	r := n.reader()
	for i := range keys {
		r.wantAbsent(i%4, fmt.Sprintf("key-%d", i))
		r.want(i%4, "more-"+fmt.Sprintf("key-%d", i), "more")
	}
}

// TestWarmAnswersAtOnce: before all is believed the node answers by SEND, no READ accepts what it has not looked at, and a key that was
// asked for or written is READ.
func TestWarmAnswersAtOnce(t *testing.T) {
	m := newKeptHeap()
	n := openWarm(t, warmConfig(m))
	for i := range 1000 {
		n.put(i%4, fmt.Sprintf("key-%d", i), "old")
	}
	m = m.die()
	c := warmConfig(m)
	c.holdFill = make(chan struct{})
	n = openWarm(t, c)
	r := n.reader()
	for i := range 1000 {
		key := fmt.Sprintf("key-%d", i)
		r.wantAsk(i%4, key)
		switch i % 4 {
		case 0:
			n.want(0, key, "old")
			r.want(0, key, "old")
		case 1:
			n.put(1, key, "new")
			r.want(1, key, "new")
		case 2:
			if !n.del(2, key) {
				t.Fatalf("%q is not there", key)
			}
			r.wantAbsent(2, key)
		}
	}
	r.wantAbsent(0, "nothing")
	close(c.holdFill)
	if st := n.believed(); st.Dropped > 0 || st.Believed != 1000 {
		t.Errorf("%+v, want 1000 believed", st)
	}
	for i := range 1000 {
		if i%4 == 3 {
			r.want(3, fmt.Sprintf("key-%d", i), "old")
		}
	}
}

// TestWarmTwice: a life that ends before it has believed all leaves to the next one what it has believed, and what it has not.
func TestWarmTwice(t *testing.T) {
	m := newKeptHeap()
	n := openWarm(t, warmConfig(m))
	for i := range 1000 {
		n.put(0, fmt.Sprintf("key-%d", i), "old")
	}
	for life := range warm.MaxIncarnations - 1 {
		m = m.die()
		c := warmConfig(m)
		c.holdFill = make(chan struct{})
		n = openWarm(t, c)
		for i := range 1000 {
			if i%7 == life {
				n.want(0, fmt.Sprintf("key-%d", i), "old")
			}
		}
		n.put(0, fmt.Sprintf("key-%d", life), "new")
		n.del(0, fmt.Sprintf("key-%d", 500+life))
	}
	n = openWarm(t, warmConfig(m.die()))
	if st := n.believed(); st.Dropped > 0 {
		t.Errorf("%+v: items were dropped", st)
	}
	for i := range 1000 {
		key := fmt.Sprintf("key-%d", i)
		switch {
		case i < warm.MaxIncarnations-1:
			n.want(0, key, "new")
		case i >= 500 && i < 500+warm.MaxIncarnations-1:
			n.wantAbsent(0, key)
		default:
			n.want(0, key, "old")
		}
	}
}

// TestWarmReplacedIsGone: a value that was replaced or deleted before the life ended does not come back, even if slot and state of its item
// are what they were before, because its checksum was destroyed before the write was acknowledged.
func TestWarmReplacedIsGone(t *testing.T) {
	for name, replace := range map[string]func(n *node){
		"put":    func(n *node) { n.put(0, "k", "two") },
		"delete": func(n *node) { n.del(0, "k") },
		"evict": func(n *node) {
			ref, _ := n.shards[0].Find(n.hash("k"), []byte("k"))
			mem := n.mem.Table.Bytes(ref.Slot().Place(), layout.ClassSize(ref.Slot().Class()))
			it, _ := layout.PeekItem(mem, nil)
			v := n.mem.Candidate(ref.Slot().Place(), ref.Slot().Class(), it)
			if !n.shards[0].Evict(&v) {
				n.t.Fatal("not evicted")
			}
		},
		"batch": func(n *node) {
			w := Write{Op: Op{Kind: OpBatch, Parts: []Part{{Key: []byte("k"), Value: []byte("two")}, {Key: []byte("l"), Value: []byte("two")}}}}
			if err := n.Do(context.Background(), &w); err != nil || w.Err != nil {
				n.t.Fatal(err, w.Err)
			}
		},
		"held": func(n *node) {
			held, err := n.Hold(context.Background(), 0, []byte("k"))
			if err != nil {
				n.t.Fatal(err)
			}
			n.put(0, "k", "two")
			held.Release()
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newKeptHeap()
			n := openWarm(t, warmConfig(m))
			n.put(0, "k", "one")
			sh := n.shards[0]
			sh.Mu.Lock()
			ref, ok := sh.Find(n.hash("k"), []byte("k"))
			slot, at := ref.Slot(), ref.Place()
			v, _ := layout.LoadState(n.mem.Table.Bytes(slot.Place(), layout.ItemHeaderSize))
			sh.Mu.Unlock()
			if !ok {
				t.Fatal("no slot")
			}
			replace(n)
			m = m.die()
			set := func(p layout.Place, w uint64) {
				for _, mem := range m.left {
					h, err := layout.ParseRegionHeader(mem)
					if err != nil {
						t.Fatal(err)
					}
					if p >= h.Base && p.Byte() < h.Base.Byte()+h.Length {
						layout.StoreWord(mem, int(p.Byte()-h.Base.Byte()), w)
					}
				}
			}
			set(at, uint64(slot))
			set(slot.Place(), uint64(v)<<8|uint64(layout.Live))
			n = openWarm(t, warmConfig(m))
			if got, ok := n.get(0, "k"); ok && got == "one" {
				t.Errorf("after a %s the value of before is back", name)
			}
			n.believed()
			if got, ok := n.get(0, "k"); ok && got == "one" {
				t.Errorf("after a %s the value of before is back", name)
			}
		})
	}
}

// TestWarmExpiry: what has expired in one life is absent in the next, though the wall clock was set back; and so versions rise.
func TestWarmExpiry(t *testing.T) {
	f := newFakeTime()
	m := newKeptHeap()
	c := warmConfig(m)
	c.clock, c.noKeeper = f.source, true
	n := openWarm(t, c)
	w := Write{Op: Op{Key: []byte("brief"), Value: []byte("v"), TTL: time.Second}}
	if err := n.Do(context.Background(), &w); err != nil || w.Err != nil {
		t.Fatal(err, w.Err)
	}
	f.pass(2 * time.Second)
	n.wantAbsent(0, "brief")
	last := n.put(0, "k", "v")
	f.step(-time.Hour, time.Second)
	c = warmConfig(m.die())
	c.clock, c.noKeeper = f.source, true
	n = openWarm(t, c)
	n.wantAbsent(0, "brief")
	n.want(0, "k", "v")
	if v := n.put(0, "k", "v"); v <= last {
		t.Errorf("version %v behind %v", v, last)
	}
}

// TestWarmRefused: memory of another configuration is given back, with a line that says why, and the cache begins empty; its versions rise all the same.
func TestWarmRefused(t *testing.T) {
	m := newKeptHeap()
	n := openWarm(t, warmConfig(m))
	n.put(0, "large", pattern(9<<20, "large"))
	last := n.put(0, "k", "v")
	header := func(m *keptHeap) { layout.StoreWord(m.left[0], 24, 1) }
	for name, c := range map[string]struct {
		config func(*Config)
		memory func(*keptHeap)
		says   string
	}{
		"shards":       {config: func(c *Config) { c.Shards = 8 }, says: "shards"},
		"fingerprint":  {config: func(c *Config) { c.KeptAs = 8 }, says: "configuration"},
		"limit":        {config: func(c *Config) { c.MemoryLimit = 8 << 20 }, says: "memory limit"},
		"ring":         {config: func(c *Config) { c.ReclaimEntries = 64 }, says: "laid out"},
		"root":         {memory: header, says: "root region"},
		"no root":      {memory: func(m *keptHeap) { delete(m.left, 0) }, says: "root region"},
		"record":       {memory: func(m *keptHeap) { clear(m.record) }, says: "record"},
		"registration": {memory: func(m *keptHeap) { m.limit = 1 << 40 }, says: "adopting"},
	} {
		t.Run(name, func(t *testing.T) {
			next := m.die()
			if c.memory != nil {
				c.memory(next)
			}
			cfg := warmConfig(next)
			if c.config != nil {
				c.config(&cfg)
			}
			var log lockedBuffer
			cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			n := openWarm(t, cfg)
			n.wantAbsent(0, "k")
			if v := n.put(0, "k", "w"); v <= last && name != "record" {
				t.Errorf("version %v behind %v", v, last)
			}
			if text := log.String(); !strings.Contains(text, "cannot be used") || !strings.Contains(text, c.says) {
				t.Errorf("the log does not say %q:\n%s", c.says, text)
			}
			if len(next.left) > 0 {
				t.Error("memory was not given back")
			}
			last = max(last, 1)
		})
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// left is memory with a history: of each key its newest value, and that it had others before.
func leftHistory(t testing.TB) (m *keptHeap, newest map[string]string) {
	m = newKeptHeap()
	n := openWarm(t, warmConfig(m))
	newest = make(map[string]string)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 3000 {
		key := fmt.Sprintf("key-%d", rng.IntN(400))
		if rng.IntN(5) == 0 {
			n.del(0, key)
			delete(newest, key)
			continue
		}
		size := rng.IntN(200)
		if rng.IntN(100) == 0 {
			size = rng.IntN(200 << 10)
		}
		newest[key] = fmt.Sprintf("%d:%s", i, pattern(size, key))
		n.put(0, key, newest[key])
	}
	return m.die(), newest
}

// judgeLeft opens a store over memory that was left and damaged: each key has its newest value or none, whoever asks, and the store goes on.
// It returns how many items were believed, and dropped.
func judgeLeft(t testing.TB, m *keptHeap, newest map[string]string) warm.Stats {
	t.Helper()
	c := warmConfig(m)
	c.ScrubRate = -1
	n := openWarm(t, c)
	check := func() {
		r := n.reader()
		for i := range 400 {
			key := fmt.Sprintf("key-%d", i)
			if _, got, found, err := r.getAny(context.Background(), 0, key); err != nil && !errors.Is(err, ErrNotFound) {
				t.Fatalf("get of %q: %v", key, err)
			} else if found && got != newest[key] {
				t.Fatalf("%q is %q, its newest value is %q", key, clip(got), clip(newest[key]))
			}
			if got, ok := n.get(0, key); ok && got != newest[key] {
				t.Fatalf("%q is %q by SEND, its newest value is %q", key, clip(got), clip(newest[key]))
			}
		}
	}
	check()
	waitFor(t, "an end of belief", func() bool { return !n.mem.Believing() })
	check()
	st := KeptStatsOf(n.Store)
	for i := range 400 {
		key := fmt.Sprintf("key-%d", i)
		n.put(0, key, "again")
		n.want(0, key, "again")
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	return st
}

// TestWarmDamage: whatever bits of the memory that was left are turned, no key has another value than its newest, nothing panics, and the store serves.
func TestWarmDamage(t *testing.T) {
	m, newest := leftHistory(t)
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	believed, dropped := 0, 0 // rounds
	for seed := range uint64(rounds) {
		next := m.die()
		rng := rand.New(rand.NewPCG(seed, 1))
		damage(next, rng, 1<<rng.IntN(16))
		st := judgeLeft(t, next, newest)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		if st.Believed > 0 {
			believed++
		}
		if st.Dropped+st.Refused > 0 {
			dropped++
		}
	}
	if believed < rounds/2 || dropped < rounds/4 {
		t.Errorf("of %d rounds %d believed something, and %d dropped something: this test sees too little", rounds, believed, dropped)
	}
}

// damage turns n bits of words that are not zero: slots, headers, items, directories. Every other time it leaves the headers of regions alone, because without that
// of the root region nothing is looked at.
func damage(m *keptHeap, rng *rand.Rand, n int) {
	type word struct {
		mem []byte
		off int
	}
	first := rng.IntN(2) * layout.PageSize
	var words []word
	for _, id := range slices.Sorted(maps.Keys(m.left)) {
		mem := m.left[id]
		for off := first; off < len(mem); off += 8 {
			if layout.LoadWord(mem, off) != 0 {
				words = append(words, word{mem, off})
			}
		}
	}
	for range min(n, n*len(words)) {
		w := words[rng.IntN(len(words))]
		layout.StoreWord(w.mem, w.off, layout.LoadWord(w.mem, w.off)^1<<rng.IntN(64))
	}
}

// FuzzLeft: words of what was left are changed to others, and moved about.
func FuzzLeft(f *testing.F) {
	m, newest := leftHistory(f)
	f.Add(uint64(1), uint16(3), []byte{1, 2, 3, 4, 5, 6, 7, 8})
	f.Add(uint64(2), uint16(300), []byte{0xff})
	f.Add(uint64(3), uint16(3000), []byte{})
	f.Fuzz(func(t *testing.T, seed uint64, n uint16, words []byte) {
		next := m.die()
		rng := rand.New(rand.NewPCG(seed, 2))
		damage(next, rng, int(n))
		for i := 0; i+8 <= len(words); i += 8 {
			for _, mem := range next.left {
				layout.StoreWord(mem, rng.IntN(len(mem)/8)*8, binary.LittleEndian.Uint64(words[i:]))
				// A word that means something, in another place.
				layout.StoreWord(mem, rng.IntN(len(mem)/8)*8, layout.LoadWord(mem, rng.IntN(len(mem)/8)*8))
			}
		}
		judgeLeft(t, next, newest)
	})
}
