package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/test/node"
)

// Load of the kill test: so many writers, each with units of its own (killed_test.go).
const (
	killWriters  = 8
	killRecords  = 80
	killGroups   = 6
	killGroup    = 5 // keys of a group
	killCounters = 4
	killReaders  = 4
)

// killSyncs are the policies that the lives of the kill test have in turn. A killed process
// loses nothing that was acknowledged under any of them: the kernel has it.
var killSyncs = []string{"always", "interval", "off"}

// TestKill9 kills the server under load, again and again, some lives before they serve, and
// looks after each restart whether every acknowledged write is there, whether anything that
// was ever seen is gone or has come back, whether versions went up, and whether anything is
// half there: a value, a batch, an increment. The log is small, so that checkpoints run all
// the time, and every second pair of lives has little memory, so that what is read comes from
// the log and the base.
func TestKill9(t *testing.T) {
	cycles := *killsFlag
	if testing.Short() {
		cycles = min(cycles, 2)
	}
	t.Logf("%d cycles, seed %d", cycles, *seedFlag)
	rnd := rand.New(rand.NewPCG(*seedFlag, 9))
	units := killUnits()
	dir := t.TempDir()
	var writes, unknown, reads, cutShort, checkpoints uint64
	for cycle := range cycles {
		args := []string{"--log-bytes", "8MiB", "--sync", killSyncs[cycle%len(killSyncs)]}
		if cycle%4 >= 2 {
			args = append(args, "--memory-limit", "12MiB", "--expert-region-size", "2MiB", "--expert-index-region-size", "2MiB")
		}
		if rnd.IntN(3) == 0 && killedAtStart(t, dir, time.Duration(rnd.IntN(250))*time.Millisecond, args...) {
			cutShort++
		}
		n := startNode(t, dir, args...)
		c := dial(t, n)
		if err := verifyUnits(t.Context(), c, units); err != nil {
			t.Fatalf("cycle %d, seed %d: %v", cycle, *seedFlag, err)
		}
		load := startLoad(t, c, units, rnd.Uint64(), false)
		load.underWay(t)
		// Between a moment and a second of load, so that the kill meets the
		// store in all its states.
		time.Sleep(time.Duration(20+rnd.IntN(900)) * time.Millisecond)
		checkpoints += askRestart(t, c).Store.Log.Checkpoints.Done
		if err := n.Kill(); err != nil {
			t.Fatal(err)
		}
		load.end(t)
		writes, unknown, reads = writes+load.writes.Load(), unknown+load.unknown.Load(), reads+load.reads.Load()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			t.Fatalf("cycle %d, seed %d", cycle, *seedFlag)
		}
	}
	t.Logf("%d writes acknowledged, %d with unknown outcome, %d reads checked, %d starts killed before they served, %d checkpoints", writes, unknown, reads, cutShort, checkpoints)
	if writes == 0 || reads == 0 || cycles > 5 && checkpoints == 0 {
		t.Error("there was no load, or no checkpoint")
	}
}

// killedAtStart starts a node and kills it after so long, and says whether that was before it
// served.
func killedAtStart(t *testing.T, dir string, after time.Duration, more ...string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), after)
	defer cancel()
	n, err := node.Start(ctx, node.Options{Bin: bin + "/kvserver", Args: serverArgs(dir, more...), On: elsewhere})
	switch {
	case err == nil:
		if err := n.Kill(); err != nil {
			t.Fatal(err)
		}
		return false
	case ctx.Err() == nil:
		t.Fatalf("a start that was to be killed: %v", err)
	}
	return true
}

// A load is writers and readers at work until the server is gone.
type load struct {
	wg                     sync.WaitGroup
	cancel                 context.CancelFunc
	writes, unknown, reads atomic.Uint64
	puts, deletes          atomic.Uint64 // of writes: of one key

	mayBeFull atomic.Bool   // the disk; otherwise a refusal for want of room is a fault, and its writer ends
	noSpace   atomic.Uint64 // writes that were refused for it

	mu  sync.Mutex
	err error // the first that must not happen
}

func startLoad(t *testing.T, c *client.Client, units [][]*unit, seed uint64, mayBeFull bool) *load {
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{cancel: cancel}
	l.mayBeFull.Store(mayBeFull) // before the first write
	for w, mine := range units {
		l.wg.Go(func() { l.write(ctx, c, mine, rand.New(rand.NewPCG(seed, uint64(w)))) })
	}
	for r := range killReaders {
		l.wg.Go(func() { l.read(ctx, c, units, rand.New(rand.NewPCG(seed, uint64(100+r)))) })
	}
	return l
}

// underWay waits until calls are answered: after a kill that takes a lease on a
// fabric whose memory outlives the process, and longer on a slow machine.
func (l *load) underWay(t *testing.T) {
	for start := time.Now(); l.writes.Load() == 0 || l.reads.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Since(start) > 20*time.Second {
			t.Error("for 20 s there is no answer to writes, or to gets")
			return
		}
	}
}

// end stops the load once the server is gone: what is still waiting for a
// reply will never get one.
func (l *load) end(t *testing.T) {
	l.cancel()
	l.wg.Wait()
	if err := l.failed(); err != nil {
		t.Error(err)
	}
}

// failed returns the first error that must not happen.
func (l *load) failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *load) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
}

// write changes its units until the server stops answering.
func (l *load) write(ctx context.Context, c *client.Client, mine []*unit, rnd *rand.Rand) {
	for ctx.Err() == nil {
		u := mine[rnd.IntN(len(mine))]
		u.plan(rnd)
		err := u.send(ctx, c, rnd)
		switch {
		case err == nil:
			if err := u.acknowledged(); err != nil {
				l.fail(err)
				return
			}
			l.writes.Add(1)
			switch {
			case len(u.keys) > 1 || u.counter:
			case u.acked[0].gone:
				l.deletes.Add(1)
			default:
				l.puts.Add(1)
			}
		case l.mayBeFull.Load() && (errors.Is(err, client.ErrNoSpace) || errors.Is(err, client.ErrOverloaded)):
			u.next = nil
			if errors.Is(err, client.ErrNoSpace) {
				l.noSpace.Add(1)
			}
			time.Sleep(time.Millisecond)
		case unchanged(err):
			u.next = nil
			return
		case ctx.Err() != nil || errors.Is(err, client.ErrOutcomeUnknown):
			l.unknown.Add(1)
			return
		default:
			l.fail(fmt.Errorf("key %q: %w", u.keys[0], err))
			return
		}
	}
}

// unchanged: the library says that nothing was sent.
func unchanged(err error) bool {
	return errors.Is(err, client.ErrUnavailable) && !errors.Is(err, client.ErrOutcomeUnknown)
}

// read reads keys and checks what it gets: whole, of that key, and not older
// than anything that was read before.
func (l *load) read(ctx context.Context, c *client.Client, units [][]*unit, rnd *rand.Rand) {
	for ctx.Err() == nil {
		mine := units[rnd.IntN(len(units))]
		u := mine[rnd.IntN(len(mine))]
		i := rnd.IntN(len(u.keys))
		floor := u.seen[i].Load()
		value, err := c.Get(ctx, u.keys[i])
		if err != nil {
			if errors.Is(err, client.ErrNotFound) {
				continue
			}
			return // the server is gone
		}
		seq, err := u.parse(i, value)
		if err != nil {
			l.fail(err)
			return
		}
		if seq < floor {
			l.fail(fmt.Errorf("key %q: read %d after somebody had read %d", u.keys[i], seq, floor))
			return
		}
		raise(&u.seen[i], seq)
		l.reads.Add(1)
	}
}

// raise sets a number that only rises.
func raise(n *atomic.Uint64, to uint64) {
	for {
		was := n.Load()
		if to <= was || n.CompareAndSwap(was, to) {
			return
		}
	}
}

// parse checks a value of key i and returns its sequence number.
func (u *unit) parse(i int, value []byte) (uint64, error) {
	if !u.counter {
		return parseRecord(u.keys[i], value)
	}
	seq, err := strconv.ParseUint(string(value), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("key %q, a counter, has %.40q", u.keys[i], value)
	}
	return seq, nil
}
