package store

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/store/layout"
)

var modelSeed = flag.Uint64("model.seed", 0, "seed of the model test; 0: a few fixed ones")

// TestModel drives a store with a random sequence of everything it can do and
// compares each answer, by SEND and one-sided, with a Go map. A seed fixes the
// sequence of operations.
func TestModel(t *testing.T) {
	seeds := []uint64{1, 2, 3, 4}
	if *modelSeed != 0 {
		seeds = []uint64{*modelSeed}
	}
	steps := 1500
	if underRace {
		steps = 300
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			m := newModel(t, seed)
			for range steps {
				m.step()
			}
			m.checkAll()
		})
	}
}

type modelValue struct {
	version layout.Version
	value   string
}

type model struct {
	*node
	t     *testing.T
	rng   *rand.Rand
	conf  Config
	keys  map[string]modelValue
	last  layout.Version
	rd    *reader
	held  []heldValue
	steps int

	evicted, promoted, dropped uint64
}

type heldValue struct {
	*Held
	key, value string
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{t: t, rng: rand.New(rand.NewPCG(seed, 0)), keys: make(map[string]modelValue)}
	m.conf = testConfig(memFS())
	// Little memory, in some runs far too little: keys lose their slots.
	m.conf.MemoryLimit = []uint64{5 << 20, 8 << 20, 64 << 20}[m.rng.IntN(3)]
	m.conf.RegionSize = 1 << 20
	m.conf.Sync = []SyncPolicy{Always, Interval, Off}[m.rng.IntN(3)]
	m.open()
	t.Logf("memory %d MiB, sync %v", m.conf.MemoryLimit>>20, m.conf.Sync)
	return m
}

func (m *model) open() {
	m.conf.Memory = newHeapMemory()
	m.node = open(m.t, m.conf)
	m.rd = m.node.reader()
	m.held = nil
}

func (m *model) shardOf(key string) int { return int(layout.HashKey(0, []byte(key)).Lo % 4) }

func (m *model) key() string {
	k := fmt.Sprintf("k%d", m.rng.IntN(300))
	if m.rng.IntN(50) == 0 {
		k = k + strings.Repeat("x", layout.MaxKeyLen-len(k))
	}
	return k
}

func (m *model) value() string {
	var n int
	switch m.rng.IntN(20) {
	case 0:
		n = m.rng.IntN(300_000)
	case 1, 2, 3:
		n = m.rng.IntN(9000)
	default:
		n = m.rng.IntN(300)
	}
	return pattern(n, fmt.Sprintf("%x", m.rng.Uint64()))
}

func (m *model) step() {
	m.steps++
	switch p := m.rng.IntN(1000); {
	case p < 40:
		key := m.key()
		m.evictKey(m.shardOf(key), key)
	case p < 50:
		m.dropNearKey(m.key())
	case p < 350:
		m.putOne()
	case p < 450:
		key := m.key()
		_, want := m.keys[key]
		if got := m.del(m.shardOf(key), key); got != want {
			m.t.Fatalf("step %d: delete of %q: existed %v, want %v", m.steps, clip(key), got, want)
		}
		delete(m.keys, key)
	case p < 550:
		m.burst()
	case p < 900:
		m.check(m.key())
	case p < 940:
		m.scan()
	case p < 960:
		m.hold()
	case p < 980:
		m.checkHeld()
	case p < 992:
		m.lease()
		m.held = nil // a lease is over
	default:
		m.account()
		if err := m.node.Close(); err != nil {
			m.t.Fatal(err)
		}
		m.open()
		if m.rng.IntN(2) == 0 {
			m.fill()
		}
	}
}

// account adds up what the store counts in each of its lives.
func (m *model) account() {
	st := m.Stats()
	m.evicted, m.promoted, m.dropped = m.evicted+st.Evicted, m.promoted+st.Promoted, m.dropped+st.SlotsDropped
}

// bringBack evicts keys and reads them until a read has brought one back. In a run
// whose memory the evictor, a goroutine of its own, never had ready in time no
// read before this one may have.
func (m *model) bringBack() {
	for _, k := range slices.Sorted(maps.Keys(m.keys)) {
		if m.promoted+m.Stats().Promoted > 0 {
			return
		}
		if m.evictKey(m.shardOf(k), k) {
			m.lease() // its place may be given out again
			for range 8 {
				m.check(k) // the more it is read, the more it is worth
			}
		}
	}
}

// dropNearKey drops all Pebble-only slots around a key, or evicts one if there
// is none.
func (m *model) dropNearKey(key string) {
	sh := m.shard(m.shardOf(key))
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	sh.DropNear(m.hash(key))
}

func (m *model) putOne() {
	key, value := m.key(), m.value()
	v := m.put(m.shardOf(key), key, value)
	if v <= m.last {
		m.t.Fatalf("step %d: version %v after %v", m.steps, v, m.last)
	}
	m.last = v
	m.keys[key] = modelValue{v, value}
}

// burst submits writes of a few keys without waiting in between, so that some
// are judged against others in flight.
func (m *model) burst() {
	n := 1 + m.rng.IntN(20)
	done := make(chan *Write, n)
	var all []*Write
	var want []bool
	for range n {
		key := fmt.Sprintf("k%d", m.rng.IntN(5))
		w := &Write{Op: Op{Shard: uint16(m.shardOf(key)), Key: []byte(key), Kind: deleteIf(m.rng.IntN(3) == 0)}, Done: func(w *Write) { done <- w }}
		_, exists := m.keys[key]
		want = append(want, w.Kind == OpDelete && exists)
		if w.Kind != OpDelete {
			w.Value = []byte(m.value())
		}
		m.submit(w)
		if w.Kind == OpDelete {
			delete(m.keys, key)
		} else {
			m.keys[key] = modelValue{w.Version, string(w.Value)}
		}
		all = append(all, w)
	}
	for range n {
		<-done
	}
	for i, w := range all {
		if w.Existed != want[i] || w.Version <= m.last {
			m.t.Fatalf("step %d: write %d of a burst: existed %v, want %v; version %v after %v", m.steps, i, w.Existed, want[i], w.Version, m.last)
		}
		m.last = w.Version
	}
}

// check compares both ways of reading a key.
func (m *model) check(key string) {
	shard, ctx := m.shardOf(key), context.Background()
	want, exists := m.keys[key]
	got, err := m.Get(ctx, uint16(shard), []byte(key), []byte("dst"))
	switch {
	case !exists && !errors.Is(err, ErrNotFound):
		m.t.Fatalf("step %d: Get(%q) = %v, want not found", m.steps, clip(key), err)
	case exists && (err != nil || string(got.Data) != "dst"+want.value || got.Version != want.version):
		m.t.Fatalf("step %d: Get(%q) = %q of %v, %v; want %q of %v", m.steps, clip(key), clip(string(got.Data)), got.Version, err, clip(want.value), want.version)
	}
	info, err := m.Stat(ctx, uint16(shard), []byte(key))
	if exists != (err == nil) || exists && (info.ValLen != len(want.value) || info.Version != want.version) {
		m.t.Fatalf("step %d: Stat(%q) = %+v, %v", m.steps, clip(key), info, err)
	}
	v, value, found, ask := m.rd.get(shard, key)
	if ask {
		return
	}
	if found != exists || value != want.value || v != want.version {
		m.t.Fatalf("step %d: one-sided get of %q: %q of %v, found %v; want %q of %v, %v", m.steps, clip(key), clip(value), v, found, clip(want.value), want.version, exists)
	}
}

func (m *model) scan() {
	prefix := []string{"", "k", "k1", "k29", "nothing"}[m.rng.IntN(5)]
	req := ScanRequest{Prefix: []byte(prefix), Limit: m.rng.IntN(100), MaxBytes: 1 + m.rng.IntN(100_000), KeysOnly: m.rng.IntN(2) == 0}
	var want []string
	for k := range m.keys {
		if strings.HasPrefix(k, prefix) {
			want = append(want, k)
		}
	}
	sort.Strings(want)
	var got []string
	for pages := 0; ; pages++ {
		page, err := m.Scan(context.Background(), req)
		if err != nil {
			m.t.Fatalf("step %d: Scan: %v", m.steps, err)
		}
		for _, e := range page.Entries {
			w, ok := m.keys[string(e.Key)]
			if !ok || e.ValLen != len(w.value) || e.Version != w.version && !((req.KeysOnly || e.Omitted) && e.Version == 0) {
				m.t.Fatalf("step %d: scanned %q with %d bytes of %v; want %d of %v, %v", m.steps, clip(string(e.Key)), e.ValLen, e.Version, len(w.value), w.version, ok)
			}
			if value := string(e.Value); !req.KeysOnly && !e.Omitted && value != w.value || e.Omitted && e.ValLen+len(e.Key) <= req.MaxBytes {
				m.t.Fatalf("step %d: scanned %q: %q, omitted %v; want %q", m.steps, clip(string(e.Key)), clip(value), e.Omitted, clip(w.value))
			}
			got = append(got, string(e.Key))
		}
		if !page.More {
			break
		}
		if len(page.Entries) == 0 || pages > len(want)+1 {
			m.t.Fatalf("step %d: scan does not end", m.steps)
		}
		req.After = page.Next
	}
	if !slices.Equal(got, want) {
		m.t.Fatalf("step %d: scan of %q: %d keys, want %d", m.steps, prefix, len(got), len(want))
	}
}

func (m *model) hold() {
	key := m.key()
	want, exists := m.keys[key]
	h, err := m.Hold(context.Background(), uint16(m.shardOf(key)), []byte(key))
	switch {
	case errors.Is(err, ErrOverloaded):
	case exists != (err == nil):
		m.t.Fatalf("step %d: Hold(%q): %v", m.steps, clip(key), err)
	case exists:
		if h.Version != want.version || h.ValLen != len(want.value) {
			m.t.Fatalf("step %d: Hold(%q) = %+v", m.steps, clip(key), h)
		}
		m.held = append(m.held, heldValue{h, key, want.value})
	}
}

// checkHeld reads what is held, and lets one go.
func (m *model) checkHeld() {
	for _, h := range m.held {
		it, err := layout.ParseItem(m.rd.read(h.Place, h.Size), m.Incarnation(), h.Place)
		if err != nil || it.State != layout.Live && it.State != layout.Held || it.Version != h.Version || string(it.Key()) != h.key {
			m.t.Fatalf("step %d: held %q: %v, %+v", m.steps, clip(h.key), err, it)
		}
		if value, ok := m.rd.value(&it, layout.Loc{Place: h.Place}); !ok || value != h.value {
			m.t.Fatalf("step %d: held %q: %q", m.steps, clip(h.key), clip(value))
		}
	}
	if len(m.held) > 0 {
		i := m.rng.IntN(len(m.held))
		m.held[i].Release()
		m.held = slices.Delete(m.held, i, i+1)
	}
}

func (m *model) checkAll() {
	for k := range m.keys {
		m.check(k)
	}
	m.lease()
	st := m.Stats()
	if st.HeldBytes != 0 || st.Inflight != 0 || st.Damaged != 0 || st.Corrupt != 0 {
		m.t.Errorf("at the end: %+v", st)
	}
	m.bringBack()
	m.account()
	if (m.evicted == 0 || m.promoted == 0 || m.dropped == 0) && m.steps > 1000 {
		m.t.Errorf("%d evicted, %d promoted, %d slots dropped: too little", m.evicted, m.promoted, m.dropped)
	}
	m.t.Logf("%d evicted, %d promoted, %d slots dropped", m.evicted, m.promoted, m.dropped)
	m.t.Logf("%d keys, %d with a slot; reads: %d memory, %d absent, %d disk; one-sided: %d found, %d absent, %d asked",
		len(m.keys), st.Keys, st.Resident, st.Absent, st.FromDisk, m.rd.found, m.rd.absent, m.rd.asked)
}
