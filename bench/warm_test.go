//go:build linux

package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/store/layout"
)

var warmKeys = flag.Int("warm-keys", 200_000, "`keys` of BenchmarkWarm")

func init() { warmMain = warmLoad }

// A warmKeeper is memory of memfds, of which it has descriptors besides those of the blocks: what a keeper process has.
type warmKeeper struct {
	mu      sync.Mutex
	fds     map[string]int // duplicates, by the names of regions, and of the record
	blocks  map[uint32]*mem.Block
	left    map[uint32]*mem.Block
	record  *mem.Block
	leaving bool
	tell    func(name string, fd int) // of a new one
}

const warmRecord = "record"

// newWarmKeeper begins with the descriptors of the life before; none: with nothing.
func newWarmKeeper(fds map[string]int, tell func(string, int)) (*warmKeeper, error) {
	k := &warmKeeper{fds: make(map[string]int), blocks: make(map[uint32]*mem.Block), left: make(map[uint32]*mem.Block), tell: tell}
	for name, fd := range fds {
		dup, err := unix.Dup(fd)
		if err != nil {
			return nil, err
		}
		block, err := mem.Adopt(dup, "kept")
		if err != nil {
			return nil, err
		}
		k.fds[name] = fd
		if name == warmRecord {
			k.record = block
			continue
		}
		var id uint32
		if _, err := fmt.Sscanf(name, "region-%d", &id); err != nil {
			return nil, err
		}
		k.left[id] = block
	}
	var err error
	if k.record == nil {
		k.record, err = k.alloc(warmRecord, store.KeptRecordBytes)
	}
	return k, err
}

func (k *warmKeeper) alloc(name string, size int) (*mem.Block, error) {
	b, err := mem.Alloc(size, mem.Options{Kind: mem.Mmap, Kept: true, Tag: "kept"})
	if err != nil {
		return nil, err
	}
	fd, err := unix.Dup(b.Descriptor())
	if err != nil {
		return nil, errors.Join(err, b.Free())
	}
	k.fds[name] = fd
	k.tell(name, fd)
	return b, nil
}

func (k *warmKeeper) Alloc(id uint32, _ layout.RegionKind, size int) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	b, err := k.alloc(fmt.Sprintf("region-%d", id), size)
	if err != nil {
		return nil, err
	}
	k.blocks[id] = b
	return b.Bytes(), nil
}

func (k *warmKeeper) Free(id uint32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.blocks[id].Free()
	delete(k.blocks, id)
	if name := fmt.Sprintf("region-%d", id); !k.leaving {
		err = errors.Join(err, unix.Close(k.fds[name]))
		delete(k.fds, name)
	}
	return err
}

func (k *warmKeeper) Record() []byte { return k.record.Bytes() }

func (k *warmKeeper) Left() map[uint32][]byte {
	m := make(map[uint32][]byte)
	for id, b := range k.left {
		m[id] = b.Bytes()
	}
	return m
}

func (k *warmKeeper) Adopt(id uint32, _ layout.RegionKind) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.blocks[id] = k.left[id]
	delete(k.left, id)
	return k.blocks[id].Bytes(), nil
}

func (k *warmKeeper) Forget() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.Copy(k.blocks, k.left)
	clear(k.left)
	return nil
}

func (k *warmKeeper) Leave() { k.leaving = true }

// warmOpen opens a cache over a keeper's memory.
func warmOpen(k *warmKeeper, keys int) (*store.Store, error) {
	return store.Open(context.Background(), store.Config{
		Mode: store.Cache, Memory: k, Kept: true, KeptAs: 1, PredecessorGone: true, Shards: warmShards,
		Lease: 20 * time.Millisecond, BeatInterval: 10 * time.Millisecond, // an index that grows fast waits for it, and a cache evicts meanwhile
		MemoryLimit: max(256<<20, uint64(keys)*200), Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
}

const warmShards = 32

// warmKey makes the key of a number, and says which shard has it.
func warmKey(key []byte, i int) uint16 {
	binary.BigEndian.PutUint64(key, uint64(i))
	binary.BigEndian.PutUint64(key[8:], uint64(i)*0x9e3779b97f4a7c15)
	return uint16(i % warmShards)
}

// warmPuts puts keys 0 to n-1, once or, again and again, for ever.
func warmPuts(s *store.Store, n int, forever bool) error {
	const window = 4096
	free := make(chan *store.Write, window)
	for range window {
		free <- &store.Write{Op: store.Op{Value: make([]byte, 64), Key: make([]byte, 16)}, Done: func(w *store.Write) { free <- w }}
	}
	for i := 0; i < n || forever; i++ {
		w := <-free
		if w.Err != nil {
			return w.Err
		}
		w.Shard = warmKey(w.Key, i%n)
		binary.BigEndian.PutUint64(w.Value, uint64(i%n))
		binary.BigEndian.PutUint64(w.Value[8:], uint64(i/n))
		if err := s.Submit(w); err != nil {
			return err
		}
	}
	for range window {
		<-free
	}
	return nil
}

// warmHits counts the keys that are there with a value of theirs, of all processors' gets.
func warmHits(s *store.Store, keys int) (hits int, err error) {
	key, dst := make([]byte, 16), make([]byte, 0, 64)
	for i := range keys {
		v, err := s.Get(context.Background(), warmKey(key, i), key, dst)
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			return hits, err
		case len(v.Data) != 64 || binary.BigEndian.Uint64(v.Data) != uint64(i):
			return hits, fmt.Errorf("key %d has the value %x", i, v.Data)
		default:
			hits++
		}
	}
	return hits, nil
}

// warmLoad is the process that is killed: it fills its memory with so many keys, says so, and overwrites them until it ends.
func warmLoad(text string) error {
	keys, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	k, err := newWarmKeeper(nil, func(name string, fd int) { fmt.Println("fd", name, fd) })
	if err != nil {
		return err
	}
	s, err := warmOpen(k, keys)
	if err != nil {
		return err
	}
	begun := time.Now()
	go func() { // no memory is used again without the beat
		for ; ; time.Sleep(5 * time.Millisecond) {
			s.Beat(time.Now())
		}
	}()
	if err := warmPuts(s, keys, false); err != nil {
		return err
	}
	hits, err := warmHits(s, keys)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "full", hits, time.Since(begun))
	fmt.Println("full", hits)
	return warmPuts(s, keys, true)
}

// BenchmarkWarm kills a cache with -warm-keys keys of 16 + 64 bytes under a load of puts, and opens the next one over its memory; and then one over that of a
// cache that was closed, as by an upgrade. It is a store alone, without a server: see test/e2e for one.
func BenchmarkWarm(b *testing.B) {
	for b.Loop() {
		warmOnce(b, *warmKeys)
	}
}

func warmOnce(b *testing.B, keys int) {
	fds, before := warmKilled(b, keys)
	s, k := warmBegin(b, "kill", fds, keys, time.Now())
	after, err := warmHits(s, keys)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(before)/float64(keys), "hits-before")
	b.ReportMetric(float64(after)/float64(keys), "hits-after")

	begun := time.Now()
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(time.Since(begun).Microseconds())/1000, "ms-upgrade-close")
	if err := k.record.Free(); err != nil {
		b.Fatal(err)
	}
	s, k = warmBegin(b, "upgrade", k.fds, keys, begun)
	if err := errors.Join(s.Close(), k.record.Free()); err != nil {
		b.Fatal(err)
	}
	warmTouch(b, k.fds)
	for _, fd := range k.fds {
		unix.Close(fd)
	}
}

// warmBegin opens a store over what was left, and reports how long after a moment it answers, and has believed all.
func warmBegin(b *testing.B, how string, fds map[string]int, keys int, since time.Time) (*store.Store, *warmKeeper) {
	b.Helper()
	ms := func(what string) {
		b.ReportMetric(float64(time.Since(since).Microseconds())/1000, "ms-"+how+"-"+what)
	}
	used := func() unix.Rusage {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u
	}
	first := used()
	k, err := newWarmKeeper(fds, func(string, int) {})
	if err != nil {
		b.Fatal(err)
	}
	s, err := warmOpen(k, keys)
	if err != nil {
		b.Fatal(err)
	}
	key := make([]byte, 16)
	if _, err := s.Get(context.Background(), warmKey(key, keys/2), key, nil); err != nil {
		b.Fatalf("the first get: %v; %+v", err, store.KeptStatsOf(s))
	}
	ms("first-get")
	w := &store.Write{Op: store.Op{Key: key, Value: make([]byte, 64)}}
	w.Shard = warmKey(key, keys/3)
	binary.BigEndian.PutUint64(w.Value, uint64(keys/3))
	if err := s.Do(context.Background(), w); err != nil || w.Err != nil {
		b.Fatalf("the first put: %v, %v", err, w.Err)
	}
	ms("first-put")
	for st := store.KeptStatsOf(s); st.Took == 0; st = store.KeptStatsOf(s) {
		if time.Since(since) > time.Minute {
			b.Fatalf("not all is believed after a minute: %+v", st)
		}
		time.Sleep(time.Millisecond)
	}
	ms("all-believed")
	last := used()
	cpu := time.Duration(last.Utime.Nano() - first.Utime.Nano() + last.Stime.Nano() - first.Stime.Nano())
	b.ReportMetric(float64(cpu.Milliseconds()), "ms-"+how+"-cpu")
	b.ReportMetric(float64(last.Minflt-first.Minflt), "faults-"+how)
	b.Logf("%s: %+v", how, store.KeptStatsOf(s))
	return s, k
}

// warmKilled starts a cache in a process of its own, kills it when it is full and under load, and returns what holds its memory.
func warmKilled(b *testing.B, keys int) (fds map[string]int, hits int) {
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), fmt.Sprintf("%s=%d", warmChild, keys)), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	fds = make(map[string]int)
	for in := bufio.NewScanner(out); in.Scan(); {
		var name string
		var fd int
		if _, err := fmt.Sscanf(in.Text(), "fd %s %d", &name, &fd); err == nil {
			if fds[name], err = unix.Open(fmt.Sprintf("/proc/%d/fd/%d", cmd.Process.Pid, fd), unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
				b.Fatal(err)
			}
		} else if text, ok := strings.CutPrefix(in.Text(), "full "); ok {
			fmt.Sscan(text, &hits)
			time.Sleep(time.Second) // under load
			if err := cmd.Process.Kill(); err != nil {
				b.Fatal(err)
			}
			break
		}
	}
	return fds, hits
}

// warmTouch reads a word of each page of the memory through another mapping, on one processor: what the machine asks for memory that is resident, and new to a process.
// Where that is much, it is most of what a pass over all items takes.
func warmTouch(b *testing.B, fds map[string]int) {
	k, err := newWarmKeeper(fds, nil)
	if err != nil {
		b.Fatal(err)
	}
	begun, pages := time.Now(), 0
	for _, block := range k.left {
		for mem := block.Bytes(); len(mem) > 0; mem = mem[layout.PageSize:] {
			layout.LoadWord(mem, 0)
			pages++
		}
	}
	b.ReportMetric(float64(time.Since(begun).Milliseconds()), "ms-touch")
	b.ReportMetric(float64(pages), "pages")
	err = k.record.Free()
	for _, block := range k.left {
		err = errors.Join(err, block.Free())
	}
	if err != nil {
		b.Fatal(err)
	}
}
