package log_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/log"
)

// killedDir is the variable that makes the test binary a process that is to be killed.
const killedDir = "RDMAKV_LOG_KILLED_DIR"

// TestKill kills a process that writes a log on the real file system, again and again.
// Whatever the policy, each life finds everything that was acknowledged in those before
// it, in its order and once: the kernel has it.
func TestKill(t *testing.T) {
	if os.Getenv(killedDir) != "" {
		beKilled(t)
		return
	}
	kills := 6
	if testing.Short() {
		kills = 3
	}
	for _, s := range []log.Sync{log.Always, log.Interval, log.Off} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			seed := rand.Uint64()
			r := rand.New(rand.NewPCG(seed, 0))
			t.Logf("seed %d", seed)
			acked := int64(-1) // the newest number that was acknowledged
			for life := range kills {
				found, newest := killOne(t, dir, s, time.Duration(50+r.IntN(400))*time.Millisecond)
				if found < acked {
					t.Fatalf("life %d found numbers up to %d, and %d was acknowledged", life, found, acked)
				}
				acked = max(acked, newest)
			}
			if acked < int64(kills) {
				t.Fatalf("only %d numbers were acknowledged in %d lives: nothing was tested", acked, kills)
			}
		})
	}
}

// killOne runs a life, kills it after a while, and returns the newest number that it found,
// and the newest that it acknowledged.
func killOne(t *testing.T, dir string, s log.Sync, after time.Duration) (found, acked int64) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestKill$")
	cmd.Env = append(os.Environ(), killedDir+"="+dir, killedDir+"_SYNC="+strconv.Itoa(int(s)))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	found, acked = -2, -1
	var kill sync.Once
	for lines := bufio.NewScanner(out); lines.Scan(); {
		word, number, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.ParseInt(number, 10, 64)
		switch {
		case err != nil:
			t.Errorf("the process says %q", lines.Text())
		case word == "found":
			found = n
		case word == "acked":
			if acked >= n {
				t.Errorf("%d is acknowledged behind %d", n, acked)
			}
			acked = n
			kill.Do(func() { time.AfterFunc(after, func() { cmd.Process.Kill() }) })
		}
	}
	cmd.Wait() // it was killed
	if found == -2 {
		t.Fatal("the process did not find its log")
	}
	return found, acked
}

// beKilled opens the log, says the newest number in it, and writes the next ones by two
// goroutines that take turns, until it is killed. A number is said when it is acknowledged.
// It gives segments back, and counts from what it has found.
func beKilled(t *testing.T) {
	policy, err := strconv.Atoi(os.Getenv(killedDir + "_SYNC"))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := log.OpenDir(os.Getenv(killedDir))
	if err != nil {
		t.Fatal(err)
	}
	c := log.Config{Dir: dir, Store: [16]byte{9}, Create: true, Sync: log.Sync(policy), Interval: 20 * time.Millisecond, SegmentSize: 1 << 20, MaxFrame: 64 << 10}
	l, newest := reopenKilled(t, c)
	fmt.Println("found", newest)
	var order sync.Mutex
	next := newest + 1
	var tasks sync.WaitGroup
	for range 2 {
		tasks.Add(1)
		go func() {
			defer tasks.Done()
			for {
				f := l.Begin()
				order.Lock()
				first := next
				for range 1 + rand.IntN(5) {
					b, err := f.Add(&log.Record{Kind: log.Write, Stream: 1}, 8+rand.IntN(5000))
					if err != nil {
						panic(err)
					}
					clear(b)
					binary.LittleEndian.PutUint64(b, uint64(next))
					next++
				}
				last := next - 1
				err := f.Seal()
				order.Unlock()
				if err == nil {
					err = f.Write()
				}
				if err == nil {
					err = f.Turn()
				}
				if err != nil {
					panic(err)
				}
				fmt.Println("acked", last)
				if first%50 < 5 {
					checkpoint(l, f.PositionOf(0))
				}
				f.Pass()
			}
		}()
	}
	tasks.Wait()
}

// checkpoint notes that what stands before a position is not needed any more, in the way of
// a checkpoint: it says so in a file first, and gives the segments back then.
func checkpoint(l *log.Log, at log.Position) {
	name := baseFile()
	err := os.WriteFile(name+".new", strconv.AppendUint(nil, uint64(at), 10), 0o600)
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		panic(err)
	}
	l.Release(1, at)
}

// baseFile is the file that says where the checkpoint stands.
func baseFile() string { return os.Getenv(killedDir) + ".base" }

// reopenKilled opens a log that a killed process has left, checks the order of the numbers
// in it, and returns the newest. The oldest may have been given back.
func reopenKilled(t *testing.T, c log.Config) (*log.Log, int64) {
	if b, err := os.ReadFile(baseFile()); err == nil {
		at, err := strconv.ParseUint(string(b), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		c.From = log.Position(at)
	}
	l, err := log.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	newest := int64(-1)
	err = l.Replay(func(r *log.Record) error {
		n := int64(binary.LittleEndian.Uint64(r.Body))
		if newest >= 0 && n != newest+1 {
			return fmt.Errorf("%d follows %d", n, newest)
		}
		newest = n
		return nil
	})
	if err == nil {
		err = l.Start(l.Found().Epoch + 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l, newest
}
