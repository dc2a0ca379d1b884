package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rdmakv/rdmakv/test/crashfs"
)

// TestFaultAtEveryCall lets every call of the file system fail, one at a time,
// in a start after a crash, in puts, a flush, a compaction, a heartbeat and a
// clean stop: with EIO, with ENOSPC, and in the middle of a write; only that
// call, or all from that one on. The store opens or says why not; writes are
// acknowledged or get a typed error; and a start on what the disk has then
// finds everything that anybody was told. A store that had to stop leaves
// goroutines behind, so cases run in child processes.
func TestFaultAtEveryCall(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		faultChild()
		return
	}
	var mu sync.Mutex
	sum := make(map[string]int)
	stride := 5
	switch {
	case *crashFull:
		stride = 1
	case testing.Short() && underRace:
		stride = 67
	case testing.Short() || underRace:
		stride = 23
	}
	seeds(t, 1, func(seed uint64) {
		var wg sync.WaitGroup
		slots := make(chan bool, 2)
		for kind := range faultKinds {
			calls := faultCalls(seed, kind)
			mu.Lock() // cases of the kind before may still run
			sum["calls"] += calls
			mu.Unlock()
			for _, sticky := range []bool{false, true} {
				for from := 1; from <= calls && !t.Failed(); from += 60 * stride {
					slots <- true
					wg.Go(func() {
						defer func() { <-slots }()
						counts, err := runCases(t, "TestFaultAtEveryCall", fmt.Sprintf("%d %d %v %d %d %d", seed, kind, sticky, from, min(calls, from+60*stride-1), stride))
						mu.Lock()
						defer mu.Unlock()
						if err != nil {
							t.Error(err)
						}
						for name, n := range counts {
							sum[name] += n
						}
					})
				}
			}
		}
		wg.Wait()
	})
	if sum["refused"] == 0 || sum["fenced"] == 0 || sum["served"] == 0 {
		t.Errorf("%v: the test does not test", sum)
	}
	tally(t, "%d calls; every %d. failed, once and for good, %d cases: start refused %d, stopped %d, went on %d; nothing told was lost",
		sum["calls"], stride, sum["refused"]+sum["fenced"]+sum["served"], sum["refused"], sum["fenced"], sum["served"])
}

// runCases runs cases of a test in a child process, and returns what it counts.
func runCases(t *testing.T, test, args string) (counts map[string]int, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+test+"$")
	cmd.Env = append(os.Environ(), childEnv+"="+args)
	out, err := cmd.CombinedOutput()
	if err != nil {
		text := string(out)
		return nil, fmt.Errorf("cases %q: %v\n%s\nagain: %s=%q go test ./store -run '^%s$'", args, err, text[max(0, len(text)-6000):], childEnv, args, test)
	}
	counts = make(map[string]int)
	for line := range strings.SplitSeq(string(out), "\n") {
		var word string
		var n int
		if _, err := fmt.Sscanf(line, "count %s %d", &word, &n); err == nil {
			counts[word] += n
		}
	}
	return counts, nil
}

// faultKinds are the ways in which a call fails.
var faultKinds = []struct {
	name  string
	err   error
	reads bool // reads fail, too
	half  bool // half of what is to be written is written
}{
	{"EIO", syscall.EIO, true, false},
	{"ENOSPC", syscall.ENOSPC, false, false},
	{"short write", syscall.ENOSPC, false, true},
}

// faultChild runs cases and prints counts.
func faultChild() {
	var seed uint64
	var kind, from, to, stride int
	var sticky bool
	if _, err := fmt.Sscan(os.Getenv(childEnv), &seed, &kind, &sticky, &from, &to, &stride); err != nil {
		panic(err)
	}
	counts := make(map[string]int)
	for n := from; n <= to; n += stride {
		what, err := faultCase(seed, kind, sticky, n)
		if err != nil {
			fmt.Printf("call %d of seed %d, %s, sticky %v: %v\n", n, seed, faultKinds[kind].name, sticky, err)
			os.Exit(1)
		}
		counts[what]++
	}
	for word, n := range counts {
		fmt.Println("count", word, n)
	}
	os.Exit(0)
}

// faultCalls returns how many calls there are to fail.
func faultCalls(seed uint64, kind int) int {
	c := newFaulty(seed, kind, false, 0)
	if what, err := c.run(); err != nil || what != "served" {
		panic(fmt.Sprintf("without a fault: %s, %v", what, err))
	}
	return c.calls
}

func faultCase(seed uint64, kind int, sticky bool, n int) (what string, err error) {
	return newFaulty(seed, kind, sticky, n).run()
}

// A faulty is one case: a world on a disk that fails at call n.
type faulty struct {
	*world
	disk   *crashfs.Disk
	kind   int
	sticky bool
	n      int
	on     bool // calls are counted; guarded by mu
	fired  bool
	trail  string // what happened, for a failure's report
}

// quiet is a testing.TB whose failures are collected.
type quiet struct {
	testing.TB
	mu   sync.Mutex
	text []string
}

func (q *quiet) Errorf(format string, args ...any) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.text = append(q.text, fmt.Sprintf(format, args...))
}

// newFaulty makes a store that was killed with some of its writes in the log.
func newFaulty(seed uint64, kind int, sticky bool, n int) *faulty {
	f := &faulty{world: newWorld(&quiet{}, seed), kind: kind, sticky: sticky, n: n}
	disk := crashfs.New()
	s, err := Open(context.Background(), f.config(disk))
	if err != nil {
		panic(err)
	}
	for i := range 6 {
		f.mustWrite(s, i, false)
	}
	if err := s.ckpt.Now(context.Background()); err != nil {
		panic(err)
	}
	s.disk.Heartbeat()
	for i := range 6 {
		f.mustWrite(s, 3+i, i%3 == 0)
	}
	f.disk = disk.CrashClone(vfs.CrashCloneCfg{})
	if err := s.Close(); err != nil {
		panic(err)
	}
	f.atCall = f.call
	return f
}

func (f *faulty) mustWrite(s *Store, i int, del bool) {
	if err := f.submit(s, i, del)(); err != nil {
		panic(err)
	}
}

// call says whether a call fails.
func (f *faulty) call(op errorfs.Op) error {
	read := op.Kind.ReadOrWrite() == errorfs.OpIsRead
	// A close that fails has closed, a lock that fails says "in use".
	if op.Kind == errorfs.OpFileClose || op.Kind == errorfs.OpLock || op.Kind == errorfs.OpGetDiskUsage {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.on || read && !faultKinds[f.kind].reads {
		return nil
	}
	f.calls++
	if f.n == 0 || f.calls < f.n || f.fired && !f.sticky {
		return nil
	}
	if !f.fired {
		f.trail += fmt.Sprintf("%v of %s fails; ", op.Kind, op.Path)
	}
	f.fired = true
	return faultKinds[f.kind].err
}

// run is the case: what = refused, fenced or served.
func (f *faulty) run() (what string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s%w", f.trail, err)
		}
	}()
	c := f.config(f.fs(f.disk))
	if faultKinds[f.kind].half {
		c.FS = &halfFS{FS: f.disk, f: f}
	}
	fenced := make(chan error, 1)
	c.OnFatal = func(err error) { fenced <- err }
	f.set(true)
	s, err := Open(context.Background(), c)
	if err != nil {
		f.set(false)
		var open *OpenError
		if !errors.As(err, &open) {
			return "", fmt.Errorf("Open refused with an untyped error: %w", err)
		}
		if errors.Is(err, ErrCorrupt) && errors.Is(err, faultKinds[f.kind].err) && !strings.Contains(err.Error(), faultKinds[f.kind].err.Error()) {
			return "", fmt.Errorf("Open hides the cause: %w", err)
		}
		return "refused", f.recover("refused: " + err.Error())
	}
	f.serve(s)
	what = "served"
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		if s.fence.Failed() != nil {
			what = "fenced"
		} else if err != nil {
			f.trail += fmt.Sprintf("Close: %v; ", err)
		}
	case <-time.After(20 * time.Second):
		if s.fence.Failed() == nil {
			return "", errors.New("Close hangs, and the store is not fenced")
		}
		what = "fenced"
	}
	if what == "fenced" {
		select {
		case err := <-fenced:
			if !errors.Is(err, ErrFatal) {
				return "", fmt.Errorf("OnFatal(%v)", err)
			}
		case <-time.After(20 * time.Second):
			return "", errors.New("fenced, and OnFatal was not called")
		}
	}
	f.set(false)
	return what, f.recover(what)
}

func (f *faulty) set(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.on = on
}

// recover cuts the power and starts on a disk in order.
func (f *faulty) recover(what string) error {
	f.mu.Lock()
	k := f.know()
	clone := f.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: f.rng.IntN(101), RNG: rand.New(rand.NewPCG(f.rng.Uint64(), 3))})
	f.mu.Unlock()
	if _, err := f.survive(clone, &k); err != nil {
		return fmt.Errorf("%s, and the next start: %w", what, err)
	}
	q := f.t.(*quiet)
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.text) > 0 {
		return errors.New(strings.Join(q.text, "; "))
	}
	return nil
}

// serve uses the store until it is stopped.
func (f *faulty) serve(s *Store) {
	write := func(i int, del bool) {
		err := f.submit(s, i, del)()
		for _, known := range []error{nil, ErrFatal, ErrNoSpace, ErrReadOnlyDisk, ErrOutcomeUnknown, ErrClosed, faultKinds[f.kind].err} {
			if errors.Is(err, known) {
				return
			}
		}
		f.t.Errorf("write: untyped error %v", err)
	}
	read := func(i int) {
		from := f.certain(i)
		h := &f.keys[i]
		got, err := s.Get(context.Background(), uint16(h.shard), []byte(h.key), nil)
		switch {
		case err == nil:
			f.saw(i, from, string(got.Data), true)
		case errors.Is(err, ErrNotFound):
			f.saw(i, from, "", false)
		case !errors.Is(err, ErrFatal) && !errors.Is(err, faultKinds[f.kind].err) && !errors.Is(err, ErrCorrupt):
			f.t.Errorf("get: untyped error %v", err)
		}
	}
	for i := range 4 {
		read(3 + i)
		write(4+i, i == 2)
		read(4 + i)
	}
	f.checkpoint(s)
	f.until(s, func() error {
		done, err := s.disk.ForTests().DB().AsyncFlush()
		if err == nil {
			select {
			case <-done:
			case <-s.fence.Down:
			}
		}
		return err
	})
	f.until(s, func() error { s.disk.Heartbeat(); return nil })
	for i := range 3 {
		write(i, false)
	}
	f.until(s, func() error {
		return s.disk.ForTests().DB().Compact(context.Background(), []byte{0}, []byte{0xff, 0xff, 0xff}, false)
	})
	for i := range 3 {
		write(6+i, i == 1)
		read(6 + i)
	}
	f.checkpoint(s)
	read(6)
}

// checkpoint brings what is in the log into the base, or lets it fail.
func (f *faulty) checkpoint(s *Store) {
	f.until(s, func() error { return s.ckpt.Now(context.Background()) })
}

// until waits for a background job of Pebble's, or a checkpoint, which tries again for ever
// where it cannot write: a few failures are enough.
func (f *faulty) until(s *Store, job func() error) {
	done := make(chan error, 1)
	go func() {
		defer func() {
			// Nobody waits for a job that was given up: it may begin when Pebble has been closed.
			if r := recover(); r != nil {
				if err, ok := r.(error); !ok || !errors.Is(err, pebble.ErrClosed) {
					panic(r)
				}
			}
		}()
		done <- job()
	}()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(200 * time.Microsecond) {
		select {
		case <-done:
			return
		default:
		}
		if s.fence.Failed() != nil || s.disk.ForTests().BackgroundErrors() > 3 || s.ckpt.Stats().Failed > 0 {
			return
		}
		if time.Now().After(end) {
			f.t.Errorf("flush, compaction or checkpoint hangs without a word")
			return
		}
	}
}

// A halfFS writes half of what is to be written when that is to fail.
type halfFS struct {
	vfs.FS
	f *faulty
}

func (fs *halfFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, c)
	return &halfFile{File: f, f: fs.f, name: name}, err
}

func (fs *halfFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(from, to, c)
	return &halfFile{File: f, f: fs.f, name: to}, err
}

type halfFile struct {
	vfs.File
	f    *faulty
	name string
}

func (h *halfFile) Write(p []byte) (int, error) {
	if err := h.f.call(errorfs.Op{Kind: errorfs.OpFileWrite, Path: h.name}); err != nil {
		n, _ := h.File.Write(p[:len(p)/2])
		return n, err
	}
	return h.File.Write(p)
}
