package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/test/linear"
)

// A cluster with replicas: a node may be away, and no key is.

// replicated starts the nodes and makes a cluster of them in which each key is on three.
func (w *world) replicated() *world {
	w.t.Helper()
	if err := w.Start(within(w.t)); err != nil {
		w.t.Fatal(err)
	}
	w.must("east", "--server", w.Nodes[0].Addr(), "cluster", "init", "--replicas", "3", "n1", "n2", "n3")
	return w
}

// served puts and gets a key of each node's groups, by the preferred leader, and returns how long the slowest of them took.
func served(ctx context.Context, c *Conn, value string) (slowest time.Duration, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, id := range c.IDs() {
		for _, key := range c.KeysOf(id, "served", 4) {
			wg.Go(func() {
				began := time.Now()
				e := c.Put(ctx, key, []byte(value))
				if e == nil {
					var got []byte
					if got, e = c.Get(ctx, key); e == nil && string(got) != value {
						e = fmt.Errorf("%q is read, and %q was put", got, value)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				slowest = max(slowest, time.Since(began))
				if e != nil {
					err = errors.Join(err, fmt.Errorf("key %q of node %s: %w", key, id, e))
				}
			})
		}
	}
	wg.Wait()
	return slowest, err
}

// servedWithin is how long a key may be away: many times what an election takes.
const servedWithin = 30 * time.Second

// TestReplicas: whatever becomes of one node, every key can be put and got, and nothing that clients saw contradicts any order of their calls. A
// killed leader needs no command of anybody.
func TestReplicas(t *testing.T) {
	if testing.Short() {
		t.Skip("kills nodes and cuts links: make cluster-test")
	}
	parallel(t)
	w := newWorld(t).replicated()
	list := w.groups(w.Nodes[0])
	if len(list) == 0 {
		t.Fatal("cluster status tells of no groups")
	}
	for _, g := range list {
		if len(g.Replicas) != 3 {
			t.Errorf("group %d: %+v", g.ID, g)
		}
	}
	load, conns := w.startLoad("replicas")
	probe := w.dial("west")
	serves := func(t *testing.T, when string) {
		t.Helper()
		w.servesAll(t, probe, when)
	}
	serves(t, "before anything goes wrong")
	growing, late := w.grow(20*time.Millisecond), w.late()
	part := func(name string, f func(t *testing.T, s *Server)) {
		for _, s := range w.Nodes {
			if !t.Run(name+" of "+s.ID, func(t *testing.T) {
				f(t, s)
				serves(t, "afterwards")
				w.allTakePart(t)
			}) {
				t.FailNow()
			}
		}
	}
	part("kill -9", func(t *testing.T, s *Server) {
		must(t, s.Kill())
		serves(t, "killed")
		must(t, s.Start(within(t)))
	})
	part("pause", func(t *testing.T, s *Server) {
		must(t, s.Signal(syscall.SIGSTOP))
		serves(t, "stopped")
		must(t, s.Signal(syscall.SIGCONT))
	})
	part("planned stop", func(t *testing.T, s *Server) {
		must(t, s.Stop(patience))
		serves(t, "away")
		must(t, s.Start(within(t)))
	})
	if w.net.Kind() != "namespaces" {
		t.Logf("nodes are not cut from each other on loopback addresses: %v", cannot)
	} else {
		cutOff(w, part, serves)
	}
	growing(t)
	late(t)
	judge(t, load)
	lapseFree(t, load)
	w.alikeFrom(t, w.net.Host("east"), len(list))
	hasRead(t, conns)
}

// cutOff is the part of each node that is cut from the others, and not from the clients.
func cutOff(w *world, part func(string, func(*testing.T, *Server)), serves func(*testing.T, string)) {
	part("cut from the other nodes", func(t *testing.T, s *Server) {
		for _, o := range w.Nodes {
			if o != s {
				must(t, w.net.Cut(s.Place().Name(), o.Place().Name()))
			}
		}
		serves(t, "cut")
		must(t, w.net.Heal())
	})
}

// late gets numbers that rise with a bound, until the function that it returns is called: no get may be later than that, or go back behind another
// one (linear.Ladder).
func (w *world) late() (end func(*testing.T)) {
	ctx, stop := context.WithCancel(w.t.Context())
	var wg sync.WaitGroup
	var ladders []*linear.Ladder
	var readers []*Conn
	for i, bound := range []time.Duration{20 * time.Millisecond, time.Second} {
		l := &linear.Ladder{Key: func(round int) []byte { return fmt.Appendf(nil, "late %d, %d", i, round) }, Bound: bound, Pause: 5 * time.Millisecond}
		writer := w.dial("west")
		wg.Go(func() {
			l.Climb(ctx, func(ctx context.Context, key, value []byte) (bool, error) {
				each, cancel := context.WithTimeout(ctx, servedWithin)
				defer cancel()
				err := writer.Put(each, key, value)
				return !errors.Is(err, client.ErrOutcomeUnknown), err
			})
		})
		for n, host := range clientHosts {
			reader := w.dial(host)
			readers = append(readers, reader)
			wg.Go(func() {
				l.Watch(ctx, func(ctx context.Context, key []byte) ([]byte, error) {
					each, cancel := context.WithTimeout(ctx, servedWithin)
					defer cancel()
					var value []byte
					var err error
					if n == 0 {
						value, err = reader.Get(each, key, client.ReadBounded(bound))
					} else { // with one of another group as a rule
						var results []client.Result
						if results, err = reader.MultiGet(each, [][]byte{key, append([]byte("beside "), key...)}, client.ReadBounded(bound)); len(results) > 0 {
							value, err = results[0].Value, results[0].Err
						}
					}
					if errors.Is(err, client.ErrNotFound) {
						return nil, nil
					}
					return value, err
				})
			})
		}
		ladders = append(ladders, l)
	}
	return func(t *testing.T) {
		t.Helper()
		stop()
		wg.Wait()
		for _, l := range ladders {
			gets, late, err := l.Result()
			if t.Logf("of %d gets with a bound of %v %d were late", gets, l.Bound, late); err != nil || gets == 0 {
				t.Error(err)
			}
		}
		answered := uint64(0)
		for _, c := range readers {
			answered += c.Counters().Bounded
		}
		if t.Logf("%d gets with a bound were answered by a replica", answered); answered == 0 {
			t.Error("no get with a bound was")
		}
	}
}

// grow puts keys, one after the other, and goes through all of them again and again, until the function that it returns is called: each scan has
// to show every key once, in order, that was acknowledged before it began, whatever becomes of the nodes meanwhile. A watch has to tell of each key
// once, but for those behind a gap that it tells of. It rests between two puts, and for half of that between two scans.
func (w *world) grow(rest time.Duration) (end func(*testing.T)) {
	writer, reader, watcher := w.dial("west"), w.dial("east"), w.dial("west")
	ctx, stop := context.WithCancel(w.t.Context())
	var acknowledged, scans atomic.Int64
	var mu sync.Mutex
	var wrong []error
	var longest time.Duration
	note := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		wrong = append(wrong, err)
	}
	name := func(i int64) string { return fmt.Sprintf("growing-%06d", i) }
	var wg sync.WaitGroup
	at, err := watcher.Position(within(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	told, gaps, watched := make(map[string]int), 0, make(chan struct{})
	go func() {
		defer close(watched)
		last := make(map[uint16]uint64) // by shard, whose versions rise
		each, cancel := context.WithCancel(w.t.Context())
		defer cancel()
		for e, err := range watcher.Watch(each, []byte("growing-"), client.WatchOptions{From: at}) {
			switch shard := uint16(e.Version & 0xfff); {
			case err != nil:
				note(fmt.Errorf("the watch: %w", err))
				return
			case e.Op == client.EventSkip:
				gaps++
			case string(e.Key) == "growing-end":
				return
			case e.Op != client.EventPut || e.Version <= last[shard]:
				note(fmt.Errorf("the watch tells of %v %q in version %d behind %d", e.Op, e.Key, e.Version, last[shard]))
				return
			default:
				last[shard] = e.Version
				mu.Lock()
				told[string(e.Key)]++
				mu.Unlock()
			}
		}
	}()
	wg.Go(func() {
		for i := int64(0); ctx.Err() == nil; i++ {
			each, cancel := context.WithTimeout(w.t.Context(), servedWithin)
			if err := writer.Put(each, []byte(name(i)), []byte(name(i))); err != nil {
				note(err)
			}
			cancel()
			acknowledged.Store(i + 1)
			pause(ctx, rest)
		}
	})
	wg.Go(func() {
		for ctx.Err() == nil {
			each, cancel := context.WithTimeout(w.t.Context(), servedWithin)
			least, began, last := acknowledged.Load(), time.Now(), ""
			shown := int64(0) // of those that were acknowledged before
			for e, err := range reader.Scan(each, client.ScanOptions{Prefix: []byte("growing-"), KeysOnly: scans.Load()%2 == 0}) {
				if err != nil || string(e.Key) <= last || e.Value != nil && string(e.Value) != string(e.Key) {
					note(fmt.Errorf("a scan shows %q behind %q, value %q: %w", e.Key, last, e.Value, err))
					break
				}
				if last = string(e.Key); last < name(least) {
					shown++
				}
			}
			cancel()
			if shown != least {
				note(fmt.Errorf("a scan shows %d keys of %d that were acknowledged before", shown, least))
			}
			scans.Add(1)
			longest = max(longest, time.Since(began))
			pause(ctx, rest/2)
		}
	})
	return func(t *testing.T) {
		t.Helper()
		stop()
		wg.Wait()
		// The watch may be behind, and events of other groups come as they come: so it is ended when all is told, or nothing more comes.
		for i, seen := 0, -1; i < 100; i++ {
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			now := len(told)
			mu.Unlock()
			if now == int(acknowledged.Load()) || now == seen && i > 50 {
				break
			}
			seen = now
		}
		if err := writer.Put(within(t), []byte("growing-end"), nil); err != nil {
			t.Error(err)
		}
		if _, err := writer.Delete(within(t), []byte("growing-end")); err != nil {
			t.Error(err)
		}
		<-watched
		missed := 0
		for i := range acknowledged.Load() {
			switch told[name(i)] {
			case 0:
				missed++
			case 1:
			default:
				t.Errorf("the watch tells of %s %d times", name(i), told[name(i)])
			}
		}
		if missed > 0 && gaps == 0 {
			t.Errorf("the watch has missed %d of %d keys, and tells of no gap", missed, acknowledged.Load())
		}
		t.Logf("the watch: %d keys, %d gaps, %d missed", len(told), gaps, missed)
		if err := errors.Join(wrong...); err != nil || scans.Load() == 0 {
			t.Errorf("of %d scans: %v", scans.Load(), err)
		}
		t.Logf("%d scans of up to %d keys, the longest took %v", scans.Load(), acknowledged.Load(), longest.Round(time.Millisecond))
		host := w.net.Host("east")
		for _, c := range []struct {
			args []string
			want string
		}{
			{[]string{"scan", "growing-", "--limit", "1"}, name(0) + "\n"},
			{[]string{"count", "growing-"}, fmt.Sprintln(acknowledged.Load())},
			{[]string{"watch", "--position"}, ""},
			{[]string{"export", "--prefix", "growing-"}, ""},
			{[]string{"del", "--prefix", "growing-", "--yes"}, ""},
			{[]string{"count", "growing-"}, "0\n"},
		} {
			out, status, errOut := w.kvclient(t, host, append([]string{"--server", w.Nodes[0].Addr()}, c.args...)...)
			if status != 0 || c.want != "" && out != c.want {
				t.Errorf("kvclient %v: %d, %s%s, want %q", c.args, status, out, errOut, c.want)
			}
		}
	}
}
