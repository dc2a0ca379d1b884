package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

// blindSpots is everything that a flipped byte can do without being noticed
// and without being harmless: what no design that keeps one copy could see, or
// that this one does not. The test fails over a wrong answer anywhere else, and
// over a line of this table that is not needed any more.
func blindSpots() []blindness {
	const why = "the end of a log, written within a second of the crash: damage there looks like the end that a crash leaves"
	return []blindness{{"killed before a heartbeat", regexp.MustCompile(`^log/[0-9a-f]+\.seg$`), true, why}}
}

// A blindness is a line of blindSpots.
type blindness struct {
	state string         // how the server before had ended
	file  *regexp.Regexp // in the store's directory
	// behind: only bytes behind those that the ledger knows; else all of them.
	behind bool
	why    string
}

// A flipped store is a small store whose bytes are damaged, one at a time.
type flipped struct {
	state string
	fs    *crashfs.Disk
	keys  map[string]string // what it holds
	gone  []string          // what it held
}

// flippedFacts is what is saved of a flipped store beside its files.
type flippedFacts struct {
	State string
	Keys  map[string]string
	Gone  []string
}

// save writes the store to a directory of the real disk. Two stores made alike
// differ in their files (Pebble works in the background), so that children who
// each made their own would not damage the bytes that were shared out.
func (f flipped) save(dir string) error {
	text, err := json.Marshal(flippedFacts{f.state, f.keys, f.gone})
	if err != nil {
		return err
	}
	if ok, err := vfs.Clone(f.fs, vfs.Default, "/store", filepath.Join(dir, "store")); err != nil || !ok {
		return fmt.Errorf("clone: %v, %w", ok, err)
	}
	return os.WriteFile(filepath.Join(dir, "facts.json"), text, 0o644)
}

// loadFlipped reads what save wrote.
func loadFlipped(dir string) (f flipped, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "facts.json"))
	if err != nil {
		return f, err
	}
	var facts flippedFacts
	if err := json.Unmarshal(text, &facts); err != nil {
		return f, err
	}
	f = flipped{facts.State, crashfs.New(), facts.Keys, facts.Gone}
	if ok, err := vfs.Clone(vfs.Default, f.fs, filepath.Join(dir, "store"), "/store"); err != nil || !ok {
		return f, fmt.Errorf("clone: %v, %w", ok, err)
	}
	return f, nil
}

// smallStore makes a store in which every kind of file has a part of the data.
// It ended cleanly, or was killed after a heartbeat, or a moment before one.
func smallStore(t *testing.T, state string) flipped {
	fs := crashfs.New()
	c := testConfig(fs)
	c.noKeeper = true
	c.LogBytes = MinLogBytes // of small segments
	f := flipped{state: state, keys: make(map[string]string)}
	n := open(t, c)
	put := func(i, size int) {
		key := fmt.Sprintf("key-%d", i)
		f.keys[key] = pattern(size, fmt.Sprint(i, "-", len(f.keys)))
		n.put(i%4, key, f.keys[key])
	}
	for i := range 6 {
		put(i, 20+10*i)
	}
	put(6, 1100) // in a blob file
	n.intoTables()
	n.disk.Heartbeat()
	put(7, 30)
	n.del(1, "key-1")
	delete(f.keys, "key-1")
	f.gone = append(f.gone, "key-1", "never")
	n.intoTables()
	put(2, 50)
	n.disk.Heartbeat()
	n.putLast(func() { put(8, 40) })
	if state == "killed after a heartbeat" {
		n.disk.Heartbeat()
	}
	f.fs = fs.CrashClone(vfs.CrashCloneCfg{})
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if state == "stopped" {
		f.fs = fs
	}
	return f
}

// putLast makes a put whose frame is the last one of the log: an empty one behind it would
// say that the put was durable.
func (n *node) putLast(put func()) {
	n.t.Helper()
	waitFor(n.t, "a put with no frame behind it", func() bool {
		before := n.journal.Stats().Frames
		put()
		return n.journal.Stats().Frames == before+1
	})
}

// span is how many bytes of a file are damaged: of a segment of the log not much of what
// nothing was written into. empty says of which of them few need to be: nothing was written
// there, or near by.
func (f flipped) span(name string) (size int64, empty func(off int64) bool, err error) {
	info, err := f.fs.Stat(name)
	if err != nil {
		return 0, nil, err
	}
	if path.Base(path.Dir(name)) != "log" {
		return info.Size(), func(int64) bool { return false }, nil
	}
	file, err := f.fs.Open(name)
	if err != nil {
		return 0, nil, err
	}
	b, err := io.ReadAll(file)
	used := len(bytes.TrimRight(b, "\x00"))
	b = b[:min(used+8<<10, len(b))]
	empty = func(off int64) bool {
		near := b[max(0, off-64):min(off+64, int64(len(b)))]
		return len(bytes.Trim(near, "\x00")) == 0
	}
	return int64(len(b)), empty, errors.Join(err, file.Close())
}

// files lists the files that may be damaged.
func (f flipped) files(t *testing.T) (files []string) {
	for _, dir := range []string{"/store", "/store/data", "/store/log"} {
		names, err := f.fs.List(dir)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(names)
		for _, name := range names {
			if info, err := f.fs.Stat(path.Join(dir, name)); err == nil && !info.IsDir() {
				files = append(files, path.Join(dir, name))
			}
		}
	}
	return files
}

// An flipOutcome is what became of one flip.
type flipOutcome int

const (
	flipRefused flipOutcome = iota // Open says why not
	flipRight                      // every get is right
	flipErrors                     // some say ErrCorrupt, the others are right
	flipWrong                      // a wrong answer
)

// try damages one byte and looks at everything.
func (f flipped) try(name string, off int64, mask byte) (flipOutcome, error) {
	disk := crashfs.New()
	if ok, err := vfs.Clone(f.fs, disk, "/store", "/store"); err != nil || !ok {
		return 0, fmt.Errorf("clone: %v, %w", ok, err)
	}
	if err := flipByte(disk, name, off, mask); err != nil {
		return 0, err
	}
	c := testConfig(disk)
	c.noKeeper, c.PredecessorGone, c.FillWorkers = true, true, 1
	c.LogBytes = MinLogBytes
	c.MemoryLimit, c.RegionSize, c.IndexRegionSize = 8<<20, 1<<20, 256<<10
	// Pebble meets some damage in the background, again and again: then the
	// node stops and says what it was.
	c.OnFatal = func(error) {}
	s, err := Open(context.Background(), c)
	if err != nil {
		var open *OpenError
		if !errors.As(err, &open) {
			return flipWrong, fmt.Errorf("refused with an untyped error: %w", err)
		}
		return flipRefused, nil
	}
	defer s.Close() // may fail over the damage
	result := flipRight
	for key, value := range f.keys {
		got, err := s.Get(context.Background(), uint16(key[4]-'0')%4, []byte(key), nil)
		switch {
		case errors.Is(err, ErrCorrupt), errors.Is(err, ErrFatal):
			result = flipErrors
		case err != nil || string(got.Data) != value:
			return flipWrong, fmt.Errorf("Get(%s) = %s, %v", key, clip(string(got.Data)), err)
		}
	}
	for _, key := range f.gone {
		got, err := s.Get(context.Background(), 1, []byte(key), nil)
		switch {
		case errors.Is(err, ErrCorrupt), errors.Is(err, ErrFatal):
			result = flipErrors
		case !errors.Is(err, ErrNotFound):
			return flipWrong, fmt.Errorf("Get(%s) = %s, %v; it was deleted", key, clip(string(got.Data)), err)
		}
	}
	page, err := s.Scan(context.Background(), ScanRequest{})
	if err == nil && len(page.Entries) != len(f.keys) {
		return flipWrong, fmt.Errorf("a scan shows %d keys of %d", len(page.Entries), len(f.keys))
	}
	return result, nil
}

// flipByte changes one byte.
func flipByte(fs vfs.FS, name string, off int64, mask byte) error {
	f, err := fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	var b [1]byte
	if _, err := f.ReadAt(b[:], off); err != nil && err != io.EOF {
		return errors.Join(err, f.Close())
	}
	b[0] ^= mask
	_, err = f.WriteAt(b[:], off)
	return errors.Join(err, f.Sync(), f.Close())
}

// flipStates are the ways in which the server before had ended.
var flipStates = []string{"stopped", "killed after a heartbeat", "killed before a heartbeat"}

// flipChunk is how many flips one child does. Pebble leaves a goroutine behind
// that looks at a damaged table again and again: a few are borne, not hundreds.
const flipChunk = 40

// emptyEach: of bytes of the log into which nothing was written, one in so many is flipped.
const emptyEach = 256

// TestEveryByteFlipped flips every byte of small stores, one at a time: each
// get is right or an explicit error, or Open refuses, but for what blindSpots
// lists. With -crash.full each seventh is, with time to go all are, and with ten minutes all bits.
// Flips are done by child processes, a chunk of one file in each.
func TestEveryByteFlipped(t *testing.T) {
	if args := os.Getenv(childEnv); args != "" {
		flipChild(t, args)
		return
	}
	if underRace {
		t.Skip("programs of one goroutine, which make crash runs, too")
	}
	stride, masks := int64(43), 1
	switch {
	case *crashFull && *crashSeconds >= 600:
		stride, masks = 1, 8
	case *crashFull && *crashSeconds > 0:
		stride = 1
	case *crashFull:
		stride = 7
	case testing.Short():
		stride = 97
	}
	var mu sync.Mutex
	sum := make(map[string]int)
	var wg sync.WaitGroup
	slots := make(chan bool, runtime.GOMAXPROCS(0))
	for _, state := range flipStates {
		f, dir := smallStore(t, state), t.TempDir()
		if err := f.save(dir); err != nil {
			t.Fatal(err)
		}
		files, total := f.files(t), int64(0)
		for n, name := range files {
			size, _, err := f.span(name)
			if err != nil {
				t.Fatal(err)
			}
			total += size
			for from := int64(0); from < size; from += stride * flipChunk {
				args := fmt.Sprintf("%d %d %d %d %d %s", n, from, from+stride*flipChunk, stride, masks, dir)
				slots <- true
				wg.Go(func() {
					defer func() { <-slots }()
					counts, err := runCases(t, "TestEveryByteFlipped", args)
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						t.Error(err)
					}
					for what, n := range counts {
						sum[what] += n
					}
				})
			}
		}
		t.Logf("%s: %d bytes in %d files", state, total, len(files))
	}
	wg.Wait()
	for i, b := range blindSpots() {
		used := sum[fmt.Sprint("blind", i)]
		t.Logf("blind: %s, %v, behind the ledger %v, %d flips: %s", b.state, b.file, b.behind, used, b.why)
		if used == 0 && stride == 1 {
			t.Errorf("line %d of blindSpots is not needed any more", i)
		}
	}
	if sum["refused"] == 0 || sum["errors"] == 0 || sum["right"] == 0 {
		t.Errorf("%v: the test does not test", sum)
	}
	tally(t, "every %d. byte: %d flips: %d refused, %d right, %d explicit errors, %d wrong and listed",
		stride, sum["refused"]+sum["right"]+sum["errors"]+sum["wrong"], sum["refused"], sum["right"], sum["errors"], sum["wrong"])
}

// flipChild flips bytes of one file, prints counts, and ends the process.
func flipChild(t *testing.T, args string) {
	var file, masks int
	var from, to, stride int64
	var dir string
	if _, err := fmt.Sscan(args, &file, &from, &to, &stride, &masks, &dir); err != nil {
		t.Fatal(err)
	}
	f, err := loadFlipped(dir)
	if err != nil {
		t.Fatal(err)
	}
	name := f.files(t)[file]
	size, empty, err := f.span(name)
	if err != nil {
		t.Fatal(err)
	}
	outcomes := [...]string{flipRefused: "refused", flipRight: "right", flipErrors: "errors", flipWrong: "wrong"}
	for off := from; off < min(to, size); off += stride {
		if empty(off) && off/stride%emptyEach != 0 {
			continue
		}
		for m := range masks {
			mask := byte(1) << ((int(off*5) + m) % 8)
			got, err := f.try(name, off, mask)
			if got == flipWrong {
				if i := blindSpot(t, f, name, off); i >= 0 {
					fmt.Printf("count blind%d 1\n", i)
					err = nil
				}
			}
			if err != nil {
				fmt.Printf("%s, %s, byte %d ^ %#02x: %v\n", f.state, name, off, mask, err)
				os.Exit(1)
			}
			fmt.Println("count", outcomes[got], 1)
		}
	}
	os.Exit(0)
}

// blindSpot returns the line of the table for a flip, or -1.
func blindSpot(t *testing.T, f flipped, name string, off int64) int {
	known := durableIn(t, f.fs, name)
	for i, b := range blindSpots() {
		if b.state == f.state && b.file.MatchString(strings.TrimPrefix(name, "/store/")) && (!b.behind || off >= known) {
			return i
		}
	}
	return -1
}

// durableIn is how many bytes of a segment were durable, as the ledger says.
func durableIn(t *testing.T, fs vfs.FS, name string) int64 {
	var reach log.Position
	for line := range strings.Lines(readText(t, fs, "/store/LEDGER")) {
		if _, err := fmt.Sscanf(line, "log %d\n", (*uint64)(&reach)); err == nil {
			break
		}
	}
	number, err := strconv.ParseUint(strings.TrimSuffix(path.Base(name), ".seg"), 16, 64)
	switch {
	case reach == 0 || err != nil:
		t.Errorf("%s: the ledger says nothing of the log: %v", name, err)
		return math.MaxInt64
	case number < reach.Segment():
		return math.MaxInt64
	case number > reach.Segment():
		return 0
	}
	return reach.Offset()
}
