package document

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/wholefile"
	"github.com/rdmakv/rdmakv/store/log/logtest"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

// A call is what one goroutine was told of one entry.
type call struct {
	name string
	err  error
}

// adders are goroutines that add names, each of its own, at whatever replica they come to.
type adders struct {
	w    *world
	stop chan struct{}
	wg   sync.WaitGroup

	mu    sync.Mutex
	calls []call
	stale []string // names that a Read behind their acknowledgement did not show
	reads int
}

func (a *adders) run(id int) {
	own := ""
	for i := 0; ; i++ {
		select {
		case <-a.stop:
			return
		default:
		}
		r, _ := a.w.nodes[a.w.intN(3)].now()
		if r == nil {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+a.w.intN(1000))*time.Millisecond)
		name := fmt.Sprintf("%d.%d", id, i)
		answer, err := r.Do(ctx, []byte("add "+name))
		if err == nil && string(answer) != "1" {
			err = fmt.Errorf("answered %q", answer)
		}
		a.mu.Lock()
		a.calls = append(a.calls, call{name, err})
		a.mu.Unlock()
		if err == nil {
			own = name
		}
		time.Sleep(time.Duration(a.w.intN(80)) * time.Millisecond)
		if own != "" {
			if r, _ := a.w.nodes[a.w.intN(3)].now(); r != nil {
				if c, err := r.Read(ctx); err == nil {
					a.mu.Lock()
					a.reads++
					if countOf(c, own) != 1 {
						a.stale = append(a.stale, own)
					}
					a.mu.Unlock()
				}
			}
		}
		cancel()
	}
}

// judge compares what the goroutines were told with what the group has.
func (a *adders) judge(c Content) (acked, unknown, refused int) {
	t := a.w.t
	known := map[string]bool{}
	for _, call := range a.calls {
		known[call.name] = true
		n := countOf(c, call.name)
		switch err := call.err; {
		case err == nil:
			if acked++; n != 1 {
				t.Errorf("%s was acknowledged, and counts %d times", call.name, n)
			}
		case errors.Is(err, consensus.ErrUnknown):
			if unknown++; n > 1 {
				t.Errorf("%s counts %d times", call.name, n)
			}
		case errors.Is(err, consensus.ErrNotLeader), errors.Is(err, consensus.ErrClosed), errors.Is(err, consensus.ErrNoGroup), errors.Is(err, consensus.ErrBusy):
			if refused++; n != 0 {
				t.Errorf("%s was surely not applied (%v), and counts %d times", call.name, err, n)
			}
		default:
			t.Errorf("%s: %v", call.name, err)
		}
	}
	for name := range c.(tally).Counts {
		if !known[name] {
			t.Errorf("%s was never asked for", name)
		}
	}
	if len(a.stale) > 0 {
		t.Errorf("%d of %d reads did not show what had been acknowledged: %v", len(a.stale), a.reads, a.stale)
	}
	return acked, unknown, refused
}

// TestStorm: each acknowledged addition counts once, an unknown one once or not at all, and one that was refused not at all, over leaders
// that are cut off, hand over, lose power with what was not synced, and come back.
func TestStorm(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { storm(t, seed) })
		})
	}
}

func storm(t *testing.T, seed uint64) {
	w := newWorld(t, seed, 3, 3)
	defer w.close()
	a := &adders{w: w, stop: make(chan struct{})}
	for id := range 6 {
		a.wg.Go(func() { a.run(id) })
	}
	for range 8 {
		time.Sleep(time.Duration(200+w.intN(400)) * time.Millisecond)
		n := w.leader()
		if w.intN(4) == 0 {
			n = w.nodes[w.intN(3)]
		}
		switch w.intN(4) {
		case 0:
			w.isolate(n, true)
			time.Sleep(time.Duration(w.intN(4000)) * time.Millisecond)
			w.isolate(n, false)
		case 1:
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_ = n.engine.Transfer(ctx, group, w.nodes[w.intN(3)].id)
			cancel()
		case 2:
			n.crash(w.intN(2) == 0)
			time.Sleep(time.Duration(w.intN(2000)) * time.Millisecond)
			n.again()
		case 3: // all at once
			for _, n := range w.nodes {
				n.crash(false)
			}
			time.Sleep(time.Duration(w.intN(300)) * time.Millisecond)
			for _, n := range w.nodes {
				n.again()
			}
		}
	}
	close(a.stop)
	a.wg.Wait()
	w.settle()
	c, err := w.leader().replica.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	acked, unknown, refused := a.judge(c)
	for _, n := range w.nodes {
		if got, want := string(n.replica.Content().Encode()), string(c.Encode()); got != want {
			t.Errorf("%s has %s, and the leader %s", n.name, got, want)
		}
	}
	terms := map[uint64]string{}
	for _, n := range w.nodes {
		for _, term := range n.led {
			if other, ok := terms[term]; ok {
				t.Errorf("%s and %s were told that they lead in term %d", other, n.name, term)
			}
			terms[term] = n.name
		}
		if n.seen == 0 {
			t.Errorf("%s was never told of a change", n.name)
		}
	}
	t.Logf("%d acknowledged, %d unknown, %d refused, %d reads", acked, unknown, refused, a.reads)
	if acked < 100 || a.reads < 50 {
		t.Errorf("only %d were acknowledged, and %d read", acked, a.reads)
	}
}

// TestJoiner: a replica that gets its state from the others is sent a snapshot, which its file has as soon as it shows it, and goes on as a voter;
// after it has lost power it starts from its file.
func TestJoiner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 5, 4, 3)
		defer w.close()
		for i := range 40 {
			w.do(fmt.Sprint("add before ", i))
		}
		w.settle()
		n := w.nodes[3]
		if err := n.replica.Start(t.Context()); !errors.Is(err, ErrNoFile) {
			t.Fatalf("started before it was created: %v", err)
		}
		if err := errors.Join(n.replica.Create(consensus.State{}, nil), n.replica.Create(consensus.State{}, nil)); err != nil {
			t.Fatal(err)
		}
		n.crash(false) // what Create has made is durable
		n.boot()
		if c := n.replica.Content(); c != nil {
			t.Fatalf("it begins with %v", c)
		}
		n.start()
		learns := w.first.Config
		learns.Learners = []consensus.Member{{ID: n.id, Node: n.name}}
		change := func(c consensus.Config) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			lead := w.leader()
			if err := lead.engine.Change(ctx, group, c, lead.replica.State().Config.Index); err != nil {
				t.Fatal(err)
			}
		}
		change(learns)
		for n.replica.Content() == nil {
			time.Sleep(time.Millisecond)
		}
		if c := n.replica.Content(); countOf(c, "before 39") != 1 || w.sent == 0 {
			t.Errorf("it has %s after %d snapshots", c.Encode(), w.sent)
		}
		n.crash(false) // and what Adopt has taken
		n.boot()
		if c := n.replica.Content(); c == nil || countOf(c, "before 39") != 1 {
			t.Errorf("after a crash it has %v", c)
		}
		n.start()
		votes := learns
		votes.Voters, votes.Learners = append(votes.Voters[:3:3], learns.Learners[0]), nil
		for {
			s, err := w.leader().replica.Status()
			if err != nil {
				t.Fatal(err)
			}
			if len(s.Peers) == 3 && s.Peers[2].Match >= s.Committed {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		change(votes)
		w.nodes[0].crash(false) // three of four are a majority with it alone
		w.do("add after")
		w.nodes[0].again()
		w.settle()
		if s := n.replica.State(); !s.Config.Voter(n.id) || countOf(n.replica.Content(), "after") != 1 {
			t.Errorf("the joiner has %s, of %+v", n.replica.Content().Encode(), s)
		}
	})
}

// TestTrim: the log does not grow with the entries, because the file has them; and the file is written far less often than entries come.
func TestTrim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 6, 3, 3)
		defer w.close()
		pad := fmt.Sprint("what is ", string(make([]byte, 64<<10)))
		most := int64(0)
		for i := range 600 { // 38 MiB; the log may have 32 MiB
			w.do(pad)
			for _, n := range w.nodes {
				if whole := n.log.Stats().Whole; whole > n.from {
					n.from = whole
					n.log.Release(0, whole) // as a store does whose checkpoint has everything
				}
				most = max(most, n.log.Stats().Bytes)
			}
			if i%50 == 0 {
				time.Sleep(300 * time.Millisecond)
			}
		}
		w.settle()
		time.Sleep(time.Second)
		for _, n := range w.nodes {
			s, err := n.replica.Status()
			if err != nil || s.First < s.Applied/2 || s.Saved != s.Applied {
				t.Errorf("%s: the log begins at %d, the file has %d of %d: %v", n.name, s.First, s.Saved, s.Applied, err)
			}
		}
		if most > 24<<20 {
			t.Errorf("the log had %d bytes", most)
		}
		w.nodes[1].crash(false)
		w.nodes[1].again() // from its file, with what is behind it in the log
		w.settle()
	})
}

// TestLost: a replica whose file or log is gone, or was set back, is refused, is not made anew by Create, and the others go on without it. It can be forgotten where its log does not fit.
func TestLost(t *testing.T) {
	for _, tc := range []struct {
		what string
		lose func(n *node, old *crashfs.Disk)
		want error
	}{
		{"no file", func(n *node, _ *crashfs.Disk) {
			if err := wholefile.Remove(n.fs, "data", "DOC"); err != nil {
				t.Fatal(err)
			}
		}, ErrNoFile},
		{"no log", func(n *node, _ *crashfs.Disk) { n.disk, n.from = logtest.New(logtest.Options{Seed: 1}), 0 }, consensus.ErrNoLog},
		{"an old file", func(n *node, old *crashfs.Disk) { n.fs = old }, consensus.ErrNoLog},
	} {
		t.Run(tc.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 9, 3, 3)
				defer w.close()
				n := w.nodes[2]
				old := n.fs.CrashClone(vfs.CrashCloneCfg{})
				for i := range 100 {
					w.do(fmt.Sprint("add ", i))
				}
				w.settle()
				time.Sleep(time.Second) // the logs are trimmed
				n.crash(false)
				tc.lose(n, old)
				n.boot()
				for range 2 { // Create changes nothing
					err := n.replica.Start(t.Context())
					if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), "DOC") || strings.Contains(err.Error(), "\n") {
						t.Fatalf("%v, want %v", err, tc.want)
					}
					if err := n.replica.Create(w.first, tally{}); (err == nil) == (tc.want == ErrNoFile) {
						t.Errorf("created again: %v", err)
					}
				}
				w.do("add after")
				if tc.want == ErrNoFile {
					return
				}
				if err := n.replica.Stop(true); err != nil {
					t.Fatal(err)
				}
				r, err := Open(n.config(n.engine, nil))
				if err != nil || r.Content() != nil {
					t.Errorf("the file of one that was forgotten: %v", err)
				}
			})
		})
	}
}

// TestForget: a replica that was taken out of its group is forgotten, log and file, and the others go on.
func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 12, 3, 3)
		defer w.close()
		w.do("add before")
		lead := w.leader()
		n := w.nodes[0]
		if n == lead {
			n = w.nodes[1]
		}
		change := func(edit func(c *consensus.Config)) {
			t.Helper()
			c := lead.replica.State().Config
			c.Voters = slices.Clone(c.Voters)
			edit(&c)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if err := lead.engine.Change(ctx, group, c, c.Index); err != nil {
				t.Fatal(err)
			}
		}
		change(func(c *consensus.Config) {
			c.Voters = slices.DeleteFunc(c.Voters, func(m consensus.Member) bool { return m.ID == n.id })
		})
		if err := n.replica.Stop(true); err != nil {
			t.Fatal(err)
		}
		if _, err := n.replica.Do(t.Context(), []byte("add never")); !errors.Is(err, consensus.ErrNotLeader) {
			t.Errorf("asked when it is over: %v", err)
		}
		if names, err := n.fs.List("data"); err != nil || len(names) != 0 {
			t.Errorf("left: %q, %v", names, err)
		}
		if _, ok := n.log.State(7); ok {
			t.Error("its log is there")
		}
		if r, err := Open(n.config(n.engine, nil)); err != nil || r.Content() != nil {
			t.Errorf("opened again: %v", err)
		}
		w.do("add after") // the two others are all
		w.settle()
	})
}
