package store

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

var (
	opsSeed   = flag.Uint64("ops.seed", 0, "seed of TestOpsModel; 0: a new one")
	opsRounds = flag.Int("ops.rounds", 0, "rounds of TestOpsModel; 0: few")
)

// TestOpsModel runs random operations of every kind, pipelined, with retries,
// time that passes, and restarts, and compares each result, and what is read
// afterwards, with a map.
//
//	go test ./store -run TestOpsModel -ops.seed N
func TestOpsModel(t *testing.T) {
	seed := *opsSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-ops.seed %d", seed)
	rounds := *opsRounds
	if rounds == 0 {
		if rounds = 400; underRace {
			rounds = 100
		}
	}
	for _, mode := range []Mode{Durable, Cache} {
		t.Run(mode.String(), func(t *testing.T) { runOpsModel(t, mode, seed, rounds) })
	}
}

// modelKey is a key as it ought to be.
type modelKey struct {
	value   string
	version layout.Version
	expiry  uint64
}

// modelResult is what a write ought to say.
type modelResult struct {
	err     error
	version layout.Version
	actual  layout.Version
	number  int64
	part    int
	existed bool
}

// modelRequest is a request that may be sent again.
type modelRequest struct {
	write  Write // as it was sent
	result modelResult
}

type opsModel struct {
	evicted, promoted uint64

	t       *testing.T
	n       *node
	f       *fakeTime
	fs      *crashfs.Disk
	rng     *rand.Rand
	mode    Mode
	keys    [4]map[string]modelKey
	release func()                   // of the fill
	last    map[uint16]*modelRequest // by slot
	old     []*modelRequest          // superseded in their slot
}

func runOpsModel(t *testing.T, mode Mode, seed uint64, rounds int) {
	m := &opsModel{
		mode: mode,
		t:    t, f: newFakeTime(), fs: crashfs.New(), rng: rand.New(rand.NewPCG(seed, 7)),
		last: make(map[uint16]*modelRequest),
	}
	for i := range m.keys {
		m.keys[i] = make(map[string]modelKey)
	}
	m.open()
	for range rounds {
		m.round()
		what := m.rng.IntN(40)
		if mode == Cache && what < 7 {
			continue // nothing outlives a restart, and nothing is listed
		}
		switch what {
		case 0:
			m.close()
			m.open()
		case 1:
			m.fs = m.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: m.rng.IntN(101), RNG: m.rng})
			m.close() // of the world in which nothing happened
			m.open()
		case 2, 3, 4:
			m.n.expire()
		case 5:
			if m.n.cfg.holdFill == nil {
				m.n.fill()
			}
		case 6:
			m.check(m.n.forgetter().Some())
		case 11, 12:
			m.n.lease()
		case 7, 8, 9, 10:
			m.n.pass(m.f, time.Duration(m.rng.IntN(3000))*time.Millisecond)
		}
	}
	m.compare(true)
	m.close()
	m.t.Logf("%d keys left memory, %d came back", m.evicted, m.promoted)
}

func (m *opsModel) check(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// close closes the store.
func (m *opsModel) close() {
	m.t.Helper()
	m.release()
	st := m.n.Stats()
	m.evicted, m.promoted = m.evicted+st.Evicted, m.promoted+st.Promoted
	m.check(m.n.Close())
}

// open opens the store, with a wall clock that has gone anywhere.
func (m *opsModel) open() {
	c := testConfig(m.fs)
	c.clock, c.noKeeper, c.PredecessorGone = m.f.source, true, true
	what := m.rng.IntN(4)
	if c.Mode = m.mode; c.Mode == Cache {
		c.Dir, c.FS, what = "", nil, 3
	}
	switch what {
	case 0:
		c.holdFill = make(chan struct{}) // let go by close
	case 1:
		c.Memory.(*heapMemory).limit = 1 << 20 // no room for items
	case 2:
		c.MemoryLimit, c.RegionSize = 4<<20, 1<<20 // room for some: they come and go
	}
	m.f.step(time.Duration(m.rng.IntN(20_000)-10_000)*time.Millisecond, 0)
	n, err := tryOpen(m.t, c)
	m.check(err)
	m.n, m.release = n, func() {}
	if c.holdFill != nil {
		m.release = sync.OnceFunc(func() { close(c.holdFill) })
		m.t.Cleanup(m.release)
	}
	m.compare(false)
}

// round submits some writes without waiting between them, then compares.
func (m *opsModel) round() {
	type flying struct {
		w     *Write
		want  modelResult
		again *modelRequest
	}
	now := m.n.clock.Now()
	var all []flying
	done := make(chan struct{}, 64)
	for range 1 + m.rng.IntN(20) {
		w, again := m.pick()
		sent := *w
		w.Done = func(*Write) { done <- struct{}{} }
		err := m.n.Submit(w)
		for errors.Is(err, ErrOverloaded) { // a log of this size has no room for all at once
			time.Sleep(time.Millisecond)
			err = m.n.Submit(w)
		}
		switch {
		case again != nil && m.last[w.ID.Slot] != again:
			if !errors.Is(err, ErrOutcomeUnknown) {
				m.t.Fatalf("request %d of slot %d, sent too late: %v", w.ID.Seq, w.ID.Slot, err)
			}
			continue
		case err != nil:
			m.t.Fatalf("%v: %v", w.Kind, err)
		case again != nil:
			all = append(all, flying{w, again.result, again})
			continue
		}
		want := m.apply(w, now)
		all = append(all, flying{w, want, nil})
		if w.ID.Seq != 0 {
			if old := m.last[w.ID.Slot]; old != nil {
				m.old = append(m.old, old)
			}
			m.last[w.ID.Slot] = &modelRequest{write: sent, result: want}
		}
	}
	for range all {
		select {
		case <-done:
		case <-time.After(time.Minute):
			m.t.Fatal("a write does not end")
		}
	}
	for _, x := range all {
		got := modelResult{x.w.Err, x.w.Version, x.w.Actual, x.w.Number, x.w.Part, x.w.Existed}
		if x.w.Kind == OpPut && x.w.If == CondNone {
			got.existed = x.want.existed // not known
		}
		if x.again != nil && m.last[x.w.ID.Slot] != x.again && got.err == ErrOutcomeUnknown {
			continue // the slot went on before the retry was answered
		}
		if got != x.want {
			m.t.Fatalf("%v of %q (if %v %#x, request %d): %+v, want %+v", x.w.Kind, x.w.Key, x.w.If, x.w.IfVersion, x.w.ID.Seq, got, x.want)
		}
	}
	m.compare(false)
}

// pick makes a write; again is the request that it repeats, if it does.
func (m *opsModel) pick() (w *Write, again *modelRequest) {
	if m.rng.IntN(6) == 0 {
		if len(m.old) > 0 && m.rng.IntN(3) == 0 {
			again = m.old[m.rng.IntN(len(m.old))]
		} else if again = m.last[uint16(m.rng.IntN(8))]; again == nil {
			return m.pick()
		}
		c := again.write
		c.ID.Age = time.Duration(1 + m.rng.IntN(60_000_000_000))
		return &c, again
	}
	w = &Write{Op: Op{Shard: uint16(m.rng.IntN(4)), Kind: Kind(m.rng.IntN(int(base.NumKinds)))}}
	if w.Kind == OpBatch {
		for _, i := range m.rng.Perm(6)[:1+m.rng.IntN(6)] {
			p := Part{Key: m.key(i), Delete: m.rng.IntN(4) == 0}
			p.If, p.IfVersion = m.cond(w.Shard, p.Key, 8)
			if !p.Delete {
				p.Value, p.TTL = m.value(), m.ttl()
			}
			w.Parts = append(w.Parts, p)
		}
	} else {
		w.Key = m.key(m.rng.IntN(6))
		w.If, w.IfVersion = m.cond(w.Shard, w.Key, 2)
		w.Delta = m.rng.Int64N(7) - 3
		if w.Kind == OpPut {
			w.Value = m.value()
		}
		if w.Kind == OpPut || w.Kind == OpTouch {
			w.TTL = m.ttl()
		}
	}
	if m.rng.IntN(2) == 0 {
		slot := uint16(m.rng.IntN(8))
		seq := uint64(1)
		if r := m.last[slot]; r != nil {
			seq = r.write.ID.Seq + 1 + m.rng.Uint64N(2)
		}
		w.ID = RequestID{Client: [16]byte{1, 2, 3}, Slot: slot, Seq: seq}
	}
	return w, nil
}

func (m *opsModel) key(i int) []byte { return fmt.Appendf(nil, "key-%d", i) }

func (m *opsModel) value() []byte {
	switch m.rng.IntN(8) {
	case 0, 4:
		return []byte(pattern(100_000+m.rng.IntN(300_000), strconv.Itoa(m.rng.IntN(1000))))
	case 1:
		return []byte{}
	case 2, 3:
		return []byte(pattern(m.rng.IntN(200), "v"))
	}
	return []byte(strconv.Itoa(m.rng.IntN(100) - 50))
}

func (m *opsModel) ttl() time.Duration {
	if m.rng.IntN(2) == 0 {
		return 0
	}
	return time.Duration(1 + m.rng.Int64N(int64(5*time.Second)))
}

// cond picks a condition, most often one that holds; one write in n has none.
func (m *opsModel) cond(shard uint16, key []byte, n int) (Cond, layout.Version) {
	c := Cond(m.rng.IntN(int(base.NumConds)))
	k, ok := m.keys[shard][string(key)]
	if m.rng.IntN(n) == 0 || !ok && c != CondAbsent && m.rng.IntN(2) == 0 {
		return CondNone, 0
	}
	v := k.version
	if m.rng.IntN(4) == 0 {
		v++
	}
	if c != CondVersion {
		v = 0
	}
	return c, v
}

// apply does a write to the model.
func (m *opsModel) apply(w *Write, now uint64) (r modelResult) {
	keys := m.keys[w.Shard]
	for k, v := range keys {
		if v.expiry != 0 && v.expiry <= now {
			delete(keys, k)
		}
	}
	r.version = w.Version
	parts := w.Parts
	if w.Kind != OpBatch {
		parts = []Part{{Key: w.Key, If: w.If, IfVersion: w.IfVersion}}
	}
	for i, p := range parts {
		k, was := keys[string(p.Key)]
		holds := p.If == CondNone || p.If == CondAbsent && !was || p.If == CondExists && was || p.If == CondVersion && was && k.version == p.IfVersion
		if w.Kind == OpTouch && !was {
			holds = false
		}
		if !holds {
			r.err, r.actual, r.part, r.existed = ErrCondition, k.version, i, was
			return r
		}
		if w.Kind != OpBatch {
			r.existed = was
		}
	}
	expiry := func(ttl time.Duration) uint64 {
		if ttl == 0 {
			return 0
		}
		return now + uint64((ttl+time.Microsecond-1)/time.Microsecond)
	}
	key := string(w.Key)
	k, was := keys[key]
	switch w.Kind {
	case OpPut:
		keys[key] = modelKey{string(w.Value), w.Version, expiry(w.TTL)}
	case OpDelete:
		delete(keys, key)
	case OpTouch:
		keys[key] = modelKey{k.value, w.Version, expiry(w.TTL)}
	case OpIncrement:
		old, err := strconv.ParseInt(k.value, 10, 64)
		if was && (err != nil || strconv.FormatInt(old, 10) != k.value) {
			r.err, r.actual = ErrNotNumber, k.version
			return r
		}
		r.number = old + w.Delta
		keys[key] = modelKey{strconv.FormatInt(r.number, 10), w.Version, k.expiry}
	case OpBatch:
		first := w.Version - layout.Version(len(parts)) + 1
		for i, p := range parts {
			if p.Delete {
				delete(keys, string(p.Key))
			} else {
				keys[string(p.Key)] = modelKey{string(p.Value), first + layout.Version(i), expiry(p.TTL)}
			}
		}
	}
	return r
}

// compare reads every key.
func (m *opsModel) compare(all bool) {
	m.t.Helper()
	now := m.n.clock.Now()
	for shard := range m.keys {
		for i := range 6 {
			if !all && m.rng.IntN(3) != 0 {
				continue
			}
			key := m.key(i)
			want, ok := m.keys[shard][string(key)]
			ok = ok && (want.expiry == 0 || want.expiry > now)
			got, err := m.n.Get(context.Background(), uint16(shard), key, nil)
			switch {
			case errors.Is(err, ErrNotFound) && !ok:
				continue
			case err != nil:
				m.t.Fatalf("%s in shard %d: %v; want version %#x", key, shard, err, want.version)
			case !ok:
				m.t.Fatalf("%s in shard %d is there: version %#x, expiry %d, now %d", key, shard, got.Version, got.Expiry, now)
			case got.Version != want.version || got.Expiry != want.expiry || !bytes.Equal(got.Data, []byte(want.value)):
				m.t.Fatalf("%s in shard %d: version %#x, expiry %d, %q; want %#x, %d, %q", key, shard,
					got.Version, got.Expiry, clip(string(got.Data)), want.version, want.expiry, clip(want.value))
			}
		}
	}
}
