package pipeline

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A world is a pipeline whose env writes down what it is asked for. It runs in a
// bubble of synctest: after settle nothing goes on by itself.
type world struct {
	t       *testing.T
	p       *Pipeline
	fence   *base.Fence
	life    *base.Life
	synced  chan error            // a Sync waits for one of these, if it is not nil
	late    map[string]chan error // by commit: its Sync waits for one of these instead
	append  func(ids string)
	publish func(ids string)
	fail    error // of Append

	mu  sync.Mutex
	log []string
}

func begin(t *testing.T, l Limits) *world {
	w := &world{t: t, synced: make(chan error)}
	w.fence = base.NewFence(slog.New(slog.NewTextHandler(io.Discard, nil)), func(error) {})
	w.p = New(Env{
		Append: func(c *Commit) error {
			if w.fail != nil {
				return w.fail
			}
			id := ids(c)
			c.Log = &id
			w.say("append " + id)
			if w.append != nil {
				w.append(id)
			}
			return nil
		},
		Sync: func(c *Commit) error {
			from := w.synced
			if late := w.late[ids(c)]; late != nil {
				from = late
			}
			if from == nil {
				return nil
			}
			select {
			case err := <-from:
				return err
			case <-w.fence.Down:
				return w.fence.Failed()
			}
		},
		Publish: func(c *Commit) {
			if w.publish != nil {
				w.publish(ids(c))
			}
			w.say("publish " + ids(c))
		},
		Done: func(c *Commit) {
			if *c.Log.(*string) != ids(c) {
				t.Errorf("Done finds what another commit left: %s", *c.Log.(*string))
			}
			for _, f := range c.Flights {
				f.Done(f)
			}
			w.say("done " + ids(c))
		},
	}, l, w.fence, 1, 1<<40)
	w.life = base.NewLife(w.fence)
	w.p.Start(w.life)
	return w
}

// end lets the goroutines of the pipeline end.
func (w *world) end() {
	w.p.Close()
	<-w.life.Done()
}

func (w *world) say(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, text)
}

// want settles, and compares what was written down since the last time.
func (w *world) want(lines ...string) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.log, lines) {
		w.t.Fatalf("got\n\t%s\nwant\n\t%s", strings.Join(w.log, "\n\t"), strings.Join(lines, "\n\t"))
	}
	w.log = nil
}

// ids names the writes of a commit, by their keys.
func ids(c *Commit) string {
	var out []string
	for _, f := range c.Flights {
		out = append(out, string(f.Op.Key))
	}
	return strings.Join(out, " ")
}

func write(key string, charge int64) *flight.Flight {
	f := &flight.Flight{
		Op: &base.Op{Key: []byte(key)}, Result: &base.Result{}, Done: func(*flight.Flight) {}, Charge: charge,
	}
	f.Reset(1)
	return f
}

func (w *world) push(keys ...string) {
	w.t.Helper()
	for _, k := range keys {
		if err := w.p.Push(write(k, 1)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// TestOrder: appended in order, at most so many before the sync of the first is
// over; what comes meanwhile gathers. Each is published and answered in its turn.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers = 3
		w := begin(t, Limits{Bytes: 1 << 20, Workers: workers})
		for i := range workers {
			w.push(fmt.Sprint(i))
			w.want(fmt.Sprint("append ", i))
		}
		w.push("a", "b")
		w.want()
		w.push("c")
		w.want()
		w.synced <- nil
		w.want("publish 0", "done 0", "append a b c")
		w.synced <- nil
		w.want("publish 1", "done 1")
		if n := w.p.Unpublished(); n != workers-1 {
			t.Errorf("%d commits are not published", n)
		}
		close(w.synced)
		w.end()
		w.want("publish 2", "done 2", "publish a b c", "done a b c")
	})
}

// TestTurns: whichever sync is over first, a commit is published when all before it are
// done, and the worker that waits for its turn takes no other commit meanwhile.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, Limits{Bytes: 1 << 20, Workers: 3})
		w.synced = nil
		w.late = map[string]chan error{"a": make(chan error), "b": make(chan error)}
		for _, k := range []string{"a", "b", "c"} {
			w.push(k)
			w.want("append " + k)
		}
		w.late["b"] <- nil
		w.push("d")
		w.want()
		resume := make(chan struct{})
		w.publish = func(ids string) {
			if ids == "a" {
				<-resume
			}
		}
		w.late["a"] <- nil
		w.want() // it is being published, so it is not done
		close(resume)
		w.end()
		got := slices.DeleteFunc(w.log, func(line string) bool { return line == "append d" }) // beside the rest
		if want := []string{"publish a", "done a", "publish b", "done b", "publish c", "done c", "publish d", "done d"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestFailures: what fails ends the pipeline. Nothing of it, or behind it, is
// published or answered.
func TestFailures(t *testing.T) {
	broken := errors.New("no disk")
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, Limits{Bytes: 1 << 20, Workers: 2})
		w.push("a")
		w.want("append a")
		w.fail = broken
		w.push("b")
		w.want()
		if err := w.fence.Failed(); !errors.Is(err, broken) || !errors.Is(err, base.ErrFatal) {
			t.Errorf("a failed append: %v", err)
		}
		w.end()
		w.want()
	})
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, Limits{Bytes: 1 << 20, Workers: 3})
		w.late = map[string]chan error{"c": make(chan error)}
		for _, k := range []string{"a", "b", "c"} {
			w.push(k)
			w.want("append " + k)
		}
		w.late["c"] <- nil // it is durable, and stands behind one that is not
		w.synced <- nil
		w.want("publish a", "done a")
		w.synced <- broken
		w.want()
		if err := w.fence.Failed(); !errors.Is(err, broken) {
			t.Errorf("a failed sync: %v", err)
		}
		w.end()
		w.want()
	})
}

// TestCut: commits are cut by bytes and by number; one write alone may exceed.
func TestCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, Limits{Bytes: 10, Writes: 3, Workers: 2})
		for i := range 2 { // each worker has one
			w.push(fmt.Sprint(i))
			w.want(fmt.Sprint("append ", i))
		}
		for _, f := range []*flight.Flight{write("a", 6), write("b", 4), write("c", 1), write("d", 11), write("e", 1), write("f", 1), write("g", 1), write("h", 1)} {
			if err := w.p.Push(f); err != nil {
				t.Fatal(err)
			}
		}
		close(w.synced)
		w.end()
		var appended []string
		for _, line := range w.log {
			if rest, ok := strings.CutPrefix(line, "append "); ok {
				appended = append(appended, rest)
			}
		}
		if want := []string{"a b", "c", "d", "e f g", "h"}; !slices.Equal(appended, want) {
			t.Errorf("cut into %q, want %q", appended, want)
		}
	})
}

// TestVersions: each write takes one, each part of a batch one, and when none is
// left nothing is queued.
func TestVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, Limits{Bytes: 1 << 20})
		close(w.synced)
		batch := &flight.Flight{Op: &base.Op{Kind: base.OpBatch, Key: []byte("batch"), Parts: make([]base.Part, 3)}, Result: &base.Result{}, Done: func(*flight.Flight) {}}
		refused := write("refused", 1)
		refused.Noop = true
		for _, c := range []struct {
			f    *flight.Flight
			want layout.Version
		}{{write("a", 1), 1}, {batch, 4}, {refused, 5}, {write("b", 1), 6}} {
			if c.f == batch {
				batch.Reset(1)
			}
			if err := w.p.Push(c.f); err != nil || c.f.Version != c.want {
				t.Errorf("%s: version %v, %v", c.f.Op.Key, c.f.Version, err)
			}
		}
		_, limit := w.p.Versions()
		w.p.Skip(limit - 2)
		batch.Reset(1)
		if err := w.p.Push(batch); !errors.Is(err, base.ErrEpochs) {
			t.Errorf("a batch of three with two versions left: %v", err)
		}
		w.push("c")
		w.p.Extend(limit + 10)
		batch.Reset(1)
		if err := w.p.Push(batch); err != nil || batch.Version != limit+1 {
			t.Errorf("version %v behind a limit of %v: %v", batch.Version, limit, err)
		}
		w.end()
		if err := w.p.Push(write("late", 1)); !errors.Is(err, base.ErrClosed) {
			t.Errorf("Push behind Close: %v", err)
		}
	})
}

// TestPushers: whoever pushes, the order of the versions is the one order in which
// writes are appended, published and answered.
func TestPushers(t *testing.T) {
	for _, workers := range []int{0, 1, 2, 5} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) { pushers(t, workers) })
	}
}

func pushers(t *testing.T, workers int) {
	const pushers, each = 8, 200
	var appended, published, done layout.Version
	fence := base.NewFence(slog.New(slog.NewTextHandler(io.Discard, nil)), func(error) {})
	rise := func(what string, mark *layout.Version, c *Commit) {
		for _, f := range c.Flights {
			if f.Version != *mark+1 {
				t.Errorf("%s %v behind %v", what, f.Version, *mark)
			}
			*mark = f.Version
		}
	}
	p := New(Env{
		Append:  func(c *Commit) error { rise("appended", &appended, c); return nil },
		Sync:    func(*Commit) error { runtime.Gosched(); return nil },
		Publish: func(c *Commit) { rise("published", &published, c) },
		Done:    func(c *Commit) { rise("done", &done, c) },
	}, Limits{Bytes: 1 << 20, Writes: 24, Workers: workers}, fence, 1, 1<<40)
	var all sync.WaitGroup
	life := base.NewLife(fence)
	p.Start(life)
	for range pushers {
		all.Go(func() {
			for range each {
				if err := p.Push(write("k", 1)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	p.Close()
	<-life.Done()
	if done != pushers*each || published != done || appended != done {
		t.Errorf("%v appended, %v published, %v done", appended, published, done)
	}
}
