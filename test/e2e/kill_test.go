package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
)

// Load of the kill test: so many writers, each with keys of its own.
const (
	killWriters = 8
	killKeys    = 100 // per writer
	killReaders = 4
)

// A tracked key is what is known of one key. Its writer alone changes it, and
// a reader may raise seen.
type tracked struct {
	key []byte
	// acked is the last operation that the server acknowledged: a put with
	// that sequence number, or, if gone, a delete.
	acked uint64
	gone  bool
	// next is an operation that was sent and not acknowledged; 0 if none. It
	// may or may not have happened.
	next     uint64
	nextGone bool
	// seen is the highest sequence number that any reader got. What was seen
	// must be there after a crash: visible implies durable.
	seen atomic.Uint64
}

// TestKill9 kills the server under load, again and again, and looks after
// each restart whether every acknowledged put is there, whether anything that
// was ever seen is gone, and whether anything is half there.
func TestKill9(t *testing.T) {
	cycles := *killsFlag
	if testing.Short() {
		cycles = min(cycles, 2)
	}
	t.Logf("%d cycles, seed %d", cycles, *seedFlag)
	rnd := rand.New(rand.NewPCG(*seedFlag, 9))
	keys := make([][]*tracked, killWriters)
	for w := range keys {
		for i := range killKeys {
			keys[w] = append(keys[w], &tracked{key: fmt.Appendf(nil, "writer %d key %d", w, i)})
		}
	}
	dir := t.TempDir()
	var puts, unknown, reads uint64
	for cycle := range cycles {
		n := startNode(t, dir)
		c := dial(t, n)
		for _, mine := range keys {
			for _, k := range mine {
				if err := k.verify(t.Context(), c); err != nil {
					t.Fatalf("cycle %d, seed %d: %v", cycle, *seedFlag, err)
				}
			}
		}
		load := startLoad(t, c, keys, rnd.Uint64())
		load.underWay(t)
		// Between a moment and a second of load, so that the kill meets the
		// store in all its states.
		time.Sleep(time.Duration(20+rnd.IntN(900)) * time.Millisecond)
		if err := n.Kill(); err != nil {
			t.Fatal(err)
		}
		load.end(t)
		puts, unknown, reads = puts+load.puts.Load(), unknown+load.unknown.Load(), reads+load.reads.Load()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			t.Fatalf("cycle %d, seed %d", cycle, *seedFlag)
		}
	}
	t.Logf("%d writes acknowledged, %d with unknown outcome, %d reads checked", puts, unknown, reads)
	if puts == 0 || reads == 0 {
		t.Error("there was no load")
	}
}

// verify reads a key after a restart and settles what happened to it.
func (k *tracked) verify(ctx context.Context, c *client.Client) error {
	value, err := c.Get(ctx, k.key)
	var seq uint64
	switch {
	case errors.Is(err, client.ErrNotFound):
	case err != nil:
		return fmt.Errorf("key %q: %w", k.key, err)
	default:
		if seq, err = parseRecord(k.key, value); err != nil {
			return err
		}
	}
	present := err == nil
	asAcked := present && !k.gone && seq == k.acked || !present && (k.gone || k.acked == 0)
	asNext := k.next != 0 && (present && !k.nextGone && seq == k.next || !present && k.nextGone)
	switch {
	case !asAcked && !asNext:
		return fmt.Errorf("key %q: found sequence %d (present: %v), acknowledged was %d (deleted: %v), under way was %d (delete: %v)",
			k.key, seq, present, k.acked, k.gone, k.next, k.nextGone)
	case present && seq < k.seen.Load() || !present && !k.nextGone && !k.gone && k.seen.Load() > 0:
		return fmt.Errorf("key %q: found sequence %d (present: %v), but somebody had read %d", k.key, seq, present, k.seen.Load())
	}
	// What was found is now what holds. Both may fit (a delete of nothing);
	// then the older view is as good.
	if !asAcked {
		k.acked, k.gone = k.next, k.nextGone
	}
	k.next, k.nextGone = 0, false
	return nil
}

// A load is writers and readers at work until the server is gone.
type load struct {
	wg                   sync.WaitGroup
	cancel               context.CancelFunc
	puts, unknown, reads atomic.Uint64

	mu  sync.Mutex
	err error // the first that must not happen
}

func startLoad(t *testing.T, c *client.Client, keys [][]*tracked, seed uint64) *load {
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{cancel: cancel}
	for w, mine := range keys {
		l.wg.Go(func() { l.write(ctx, c, mine, rand.New(rand.NewPCG(seed, uint64(w)))) })
	}
	for r := range killReaders {
		l.wg.Go(func() { l.read(ctx, c, keys, rand.New(rand.NewPCG(seed, uint64(100+r)))) })
	}
	return l
}

// underWay waits until calls are answered: after a kill that takes a lease on a
// fabric whose memory outlives the process, and longer on a slow machine.
func (l *load) underWay(t *testing.T) {
	for start := time.Now(); l.puts.Load() == 0 || l.reads.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Since(start) > 20*time.Second {
			t.Error("for 20 s there is no answer to puts, or to gets")
			return
		}
	}
}

// end stops the load once the server is gone: what is still waiting for a
// reply will never get one.
func (l *load) end(t *testing.T) {
	l.cancel()
	l.wg.Wait()
	if l.err != nil {
		t.Error(l.err)
	}
}

func (l *load) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
}

// write puts and deletes its keys until the server stops answering.
func (l *load) write(ctx context.Context, c *client.Client, mine []*tracked, rnd *rand.Rand) {
	var value []byte
	for ctx.Err() == nil {
		k := mine[rnd.IntN(len(mine))]
		k.next, k.nextGone = max(k.acked, k.next)+1, rnd.IntN(10) == 0
		var err error
		if k.nextGone {
			_, err = c.Delete(ctx, k.key)
		} else {
			size := rnd.IntN(400)
			switch rnd.IntN(50) {
			case 0:
				size = 20_000 + rnd.IntN(40_000) // too large for a message
			case 1:
				size = 70_000 + rnd.IntN(300_000) // checked in chunks
			}
			value = appendRecord(value[:0], k.key, k.next, size)
			err = c.Put(ctx, k.key, value)
		}
		switch {
		case err == nil:
			k.acked, k.gone, k.next, k.nextGone = k.next, k.nextGone, 0, false
			l.puts.Add(1)
		case unchanged(err):
			k.next, k.nextGone = 0, false
			return
		case ctx.Err() != nil || errors.Is(err, client.ErrOutcomeUnknown):
			l.unknown.Add(1)
			return
		default:
			l.fail(fmt.Errorf("key %q: %w", k.key, err))
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
func (l *load) read(ctx context.Context, c *client.Client, keys [][]*tracked, rnd *rand.Rand) {
	for ctx.Err() == nil {
		mine := keys[rnd.IntN(len(keys))]
		k := mine[rnd.IntN(len(mine))]
		floor := k.seen.Load()
		value, err := c.Get(ctx, k.key)
		if err != nil {
			if errors.Is(err, client.ErrNotFound) {
				continue
			}
			return // the server is gone
		}
		seq, err := parseRecord(k.key, value)
		if err != nil {
			l.fail(err)
			return
		}
		if seq < floor {
			l.fail(fmt.Errorf("key %q: read %d after somebody had read %d", k.key, seq, floor))
			return
		}
		for {
			was := k.seen.Load()
			if seq <= was || k.seen.CompareAndSwap(was, seq) {
				break
			}
		}
		l.reads.Add(1)
	}
}
