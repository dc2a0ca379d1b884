package store

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rdmakv/rdmakv/store/layout"
)

// A world is a store on a disk whose power may go at any call of the file
// system, and the memory of everything that anybody outside was told. After
// the power went, a store opened on what the disk kept must not contradict it.

var (
	crashSeed    = flag.Uint64("crash.seed", 0, "seed of the crash and fault tests; 0: the usual ones")
	crashFull    = flag.Bool("crash.full", false, "every call, and every byte or each seventh: no small sample of them")
	crashSeconds = flag.Int("crash.seconds", 0, "go on with new seeds for so many `seconds`")
)

// worldKeys is how many keys a world has: enough for all shards and sizes, few
// enough that they are written many times.
const worldKeys = 24

// A history is what is known outside of one key. Write i has value i; write 0
// is "never written". Writes take effect in order.
type history struct {
	shard  int
	key    string
	writes []fate // by write; the first is "nothing"
	told   int    // the oldest write that may be the key's state
}

// A fate is what a write left, or would.
type fate uint8

const (
	fatePut     fate = iota
	fateNothing      // a delete
	fateLost         // a crash took it: it must not come back
)

// value returns what write i of a key puts there. Some are large enough for
// blob files.
func (h *history) value(i int) string {
	size := 10 + (i*37+len(h.key))%300
	if i%7 == 3 {
		size += 3000
	}
	return pattern(size, fmt.Sprintf("%s:%d:", h.key, i))
}

// A world is used by several goroutines.
type world struct {
	t   testing.TB
	rng *rand.Rand

	mu     sync.Mutex // held while the power goes, so that "before" is certain
	keys   [worldKeys]history
	newest layout.Version // of all versions given out
	calls  int

	// atCall is called for every call of the file system, before it happens.
	atCall func(op errorfs.Op) error
}

func newWorld(t testing.TB, seed uint64) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 7))}
	for i := range w.keys {
		w.keys[i] = history{shard: i % 4, key: fmt.Sprintf("key-%02d", i), writes: []fate{fateNothing}}
	}
	return w
}

// fs returns the disk as a store sees it.
func (w *world) fs(disk vfs.FS) vfs.FS {
	return errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if w.atCall == nil {
			return nil
		}
		return w.atCall(op)
	}))
}

// config is a store that does only what it is told, so that runs are short.
func (w *world) config(fs vfs.FS) Config {
	c := testConfig(fs)
	c.MemoryLimit, c.RegionSize, c.IndexRegionSize = 8<<20, 1<<20, 256<<10
	c.PredecessorGone, c.noKeeper, c.FillWorkers = true, true, 1
	c.LogBytes = MinLogBytes // the disk is copied with all its files
	return c
}

// submit begins a write of key i and returns what waits for its end.
func (w *world) submit(s *Store, i int, del bool) (wait func() error) {
	h := &w.keys[i]
	w.mu.Lock()
	n := len(h.writes)
	h.writes = append(h.writes, fatePut)
	if del {
		h.writes[n] = fateNothing
	}
	w.mu.Unlock()
	wr := &Write{Op: Op{Shard: uint16(h.shard), Key: []byte(h.key)}}
	if del {
		wr.Kind = OpDelete
	} else {
		wr.Value = []byte(h.value(n))
	}
	done := make(chan struct{})
	wr.Done = func(wr *Write) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if wr.Err == nil {
			h.told = max(h.told, n)
		}
		close(done)
	}
	err := s.Submit(wr)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.newest = max(w.newest, wr.Version)
	if err != nil {
		h.writes[n] = fateLost // nothing was ordered
		return func() error { return err }
	}
	return func() error {
		select {
		case <-done:
			return wr.Err
		case <-s.fence.Down:
			return s.fence.Failed()
		}
	}
}

// certain returns the oldest write that may be key i's state now.
func (w *world) certain(i int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.keys[i].told
}

// saw notes an answer that somebody was given for key i, who asked when from
// was certain.
func (w *world) saw(i, from int, value string, found bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := &w.keys[i]
	n, err := h.state(from, value, found)
	if err != nil {
		w.t.Errorf("somebody was told of %s: %v", h.key, err)
		return
	}
	h.told = max(h.told, n)
}

// state returns the write whose effect an answer is: of several, the oldest
// that can be, from a write on that is certain.
func (h *history) state(from int, value string, found bool) (int, error) {
	if found {
		part := strings.Split(value, ":")
		n, err := strconv.Atoi(part[min(1, len(part)-1)])
		if err != nil || n <= 0 || n >= len(h.writes) || h.writes[n] != fatePut || value != h.value(n) {
			return 0, fmt.Errorf("%s is no value that was put there", clip(value))
		}
		return n, nil
	}
	for n := from; n < len(h.writes); n++ {
		if h.writes[n] == fateNothing {
			return n, nil
		}
	}
	return 0, fmt.Errorf("absent, but write %d of %d is certain and no later one deletes", from, len(h.writes)-1)
}

// A knowledge is what is certain at one moment: a copy that outlives the world.
type knowledge struct {
	keys   [worldKeys]history
	newest layout.Version
}

// know copies what is certain. Caller holds mu.
func (w *world) know() knowledge {
	k := knowledge{keys: w.keys, newest: w.newest}
	for i := range k.keys {
		k.keys[i].writes = append([]fate(nil), k.keys[i].writes...)
	}
	return k
}

// check compares a store that was opened after a crash with what was certain
// before. It returns the state of each key.
func (k *knowledge) check(s *Store) (states [worldKeys]int, err error) {
	for i := range k.keys {
		h := &k.keys[i]
		got, err := s.Get(context.Background(), uint16(h.shard), []byte(h.key), nil)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return states, fmt.Errorf("%s: %w", h.key, err)
		}
		n, fault := h.state(h.told, string(got.Data), err == nil)
		if fault != nil {
			return states, fmt.Errorf("%s: %w", h.key, fault)
		}
		if n < h.told {
			return states, fmt.Errorf("%s: write %d is there, but write %d was told", h.key, n, h.told)
		}
		states[i] = n
	}
	// What a scan shows is the same.
	page, err := s.Scan(context.Background(), ScanRequest{})
	if err != nil {
		return states, fmt.Errorf("scan: %w", err)
	}
	found := make(map[string]string)
	for _, e := range page.Entries {
		found[string(e.Key)] = string(e.Value)
	}
	for i := range k.keys {
		h := &k.keys[i]
		value, ok := found[h.key]
		if want := h.writes[states[i]] == fatePut; ok != want || ok && value != h.value(states[i]) {
			return states, fmt.Errorf("%s: a scan shows %s (%v), a get write %d", h.key, clip(value), ok, states[i])
		}
	}
	return states, nil
}

// survive opens a store on what a disk kept and checks it; then it is put into,
// so that a version given out twice is noticed.
func (w *world) survive(disk vfs.FS, k *knowledge) ([worldKeys]int, error) {
	s, err := Open(context.Background(), w.config(disk))
	if err != nil {
		return [worldKeys]int{}, fmt.Errorf("open: %w", err)
	}
	states, err := k.check(s)
	if err == nil {
		var v layout.Version
		v, err = s.Put(context.Background(), 0, []byte("after"), []byte("v"))
		if err == nil && v <= k.newest {
			err = fmt.Errorf("version %v was given out before the crash (newest %v)", v, k.newest)
		}
	}
	return states, errors.Join(err, s.Close())
}

// adopt makes what a crashed disk shows the new certainty.
func (w *world) adopt(states [worldKeys]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.keys {
		h := &w.keys[i]
		h.told = states[i]
		for n := h.told + 1; n < len(h.writes); n++ {
			h.writes[n] = fateLost
		}
	}
}

// random returns a generator for one goroutine.
func (w *world) random() *rand.Rand {
	w.mu.Lock()
	defer w.mu.Unlock()
	return rand.New(rand.NewPCG(w.rng.Uint64(), 5))
}

// seeds calls f with seeds: the usual, one given, or new ones for a time.
func seeds(t *testing.T, usual int, f func(seed uint64)) {
	if *crashSeed != 0 {
		f(*crashSeed)
		return
	}
	for seed := range uint64(usual) {
		f(seed + 1)
	}
	if *crashSeconds > 0 {
		seed := uint64(time.Now().UnixNano())
		for end := time.Now().Add(time.Duration(*crashSeconds) * time.Second); time.Now().Before(end) && !t.Failed(); seed++ {
			f(seed)
		}
	}
}

// replay is the command that runs one seed again.
func replay(t *testing.T, seed uint64) string {
	name, _, _ := strings.Cut(t.Name(), "/")
	return fmt.Sprintf("go test ./store -run '^%s$' -crash.seed %d", name, seed)
}

// tally writes the line that "make crash" adds up, where it asks for it.
func tally(t *testing.T, format string, args ...any) {
	line := fmt.Sprintf("%s: ", t.Name()) + fmt.Sprintf(format, args...)
	t.Log(line)
	if path := os.Getenv("CRASH_TALLY"); path != "" {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		fmt.Fprintln(f, line)
	}
}
