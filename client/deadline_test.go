package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// What a real device and a real network do to deadlines: completions that do
// not come, registrations that take their time, servers that stand still.

// Registering takes as long as it takes; nobody waits for it but who needs the
// memory, and he no longer than he may.
func TestSlowRegistration(t *testing.T) {
	n := softNode(t, nil)
	r := newRig("a")
	c := n.rigged([]rdma.Fabric{r}, nil)
	small, large := []byte("small"), []byte("large")
	value := bytes.Repeat([]byte("v"), 30_000)
	if err := errors.Join(c.Put(t.Context(), small, value[:10]), c.Put(t.Context(), large, value)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), small); err != nil { // small buffers are there
		t.Fatal(err)
	}
	gate, asked := make(chan struct{}), make(chan struct{}, 1)
	r.set(func(r *rig) {
		r.register = func(int, rdma.Access) error {
			select {
			case asked <- struct{}{}:
			default:
			}
			<-gate
			return nil
		}
	})
	// The value's READ needs memory of a class that there is none of yet.
	patient := make(chan error)
	go func() { patient <- second(c.Get(context.Background(), large)) }()
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Get(ctx, large); !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	for range 20 { // the poller, and those who have what they need, go on
		if _, err := c.Get(t.Context(), small); err != nil {
			t.Fatal(err)
		}
		if err := c.Put(t.Context(), small, value[:10]); err != nil {
			t.Fatal(err)
		}
	}
	if c.Counters().BufferBytes == 0 {
		t.Error("no memory is counted")
	}
	close(gate)
	if err := <-patient; err != nil {
		t.Error(err)
	}
	settled(t, c)
}

// A device that does not register says so to everybody who waits for it.
func TestRegistrationFails(t *testing.T) {
	n := softNode(t, nil)
	r := newRig("a")
	c := n.rigged([]rdma.Fabric{r}, nil)
	value := bytes.Repeat([]byte("v"), 500_000)
	if err := c.Put(t.Context(), []byte("k"), value); err != nil {
		t.Fatal(err)
	}
	before := c.Counters()
	r.set(func(r *rig) {
		r.register = func(n int, _ rdma.Access) error { return fmt.Errorf("%d bytes: %w", n, syscall.ENOMEM) }
	})
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if _, err := c.Get(t.Context(), []byte("k")); !errors.Is(err, syscall.ENOMEM) {
				t.Errorf("%v", err)
			}
		})
	}
	wg.Wait()
	if after := c.Counters(); after.BufferBytes != before.BufferBytes {
		t.Errorf("%d bytes registered, %d before", after.BufferBytes, before.BufferBytes)
	}
	r.set(func(r *rig) { r.register = nil })
	if got, err := c.Get(t.Context(), []byte("k")); err != nil || !bytes.Equal(got, value) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	settled(t, c)
}

// The completions of READs do not come: each call ends at its deadline, its
// buffer waits in quarantine, and when too much waits the queue pair goes.
func TestQuarantineIsBounded(t *testing.T) {
	n := softNode(t, nil)
	r := newRig("a")
	c := n.rigged([]rdma.Fabric{r}, func(cfg *Config) { cfg.BufferBytes = minBufferBytes })
	value := bytes.Repeat([]byte("v"), 60_000)
	if err := c.Put(t.Context(), []byte("k"), value); err != nil {
		t.Fatal(err)
	}
	get := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		return second(c.Get(ctx, []byte("k")))
	}
	// (On a slow machine even a good get may take longer than that.)
	eventually(t, "the get works", func() bool { return get() == nil })
	first := c.solo.current.Load()
	r.set(func(r *rig) { r.swallow = func(wc rdma.WC) bool { return wc.Op == rdma.OpRDMARead } })
	most := int64(0)
	eventually(t, "the session is given up", func() bool {
		if err := get(); err != nil && !errors.Is(err, ErrTimeout) && !errors.Is(err, ErrUnavailable) {
			t.Errorf("%v", err)
		}
		most = max(most, c.Counters().QuarantinedBytes)
		return first.isDown()
	})
	if most == 0 || most > c.solo.cfg.BufferBytes/2 {
		t.Errorf("%d bytes in quarantine", most)
	}
	r.set(func(r *rig) { r.swallow = nil })
	<-first.gone
	eventually(t, "the get works again", func() bool { return get() == nil })
	settled(t, c)
}

// Nothing completes, and the calls have no deadline of their own.
func TestNothingCompletes(t *testing.T) {
	n := softNode(t, nil)
	r := newRig("a")
	c := n.rigged([]rdma.Fabric{r}, func(cfg *Config) { cfg.Timeout, cfg.DialTimeout = 300*time.Millisecond, 5*time.Second })
	eventually(t, "a put", func() bool { return c.Put(t.Context(), []byte("k"), []byte("v")) == nil })
	r.set(func(r *rig) { r.swallow = func(rdma.WC) bool { return true } })
	var wg sync.WaitGroup
	for name, call := range map[string]func() error{
		"get":   func() error { return second(c.Get(context.Background(), []byte("k"))) },
		"large": func() error { return c.Put(context.Background(), []byte("l"), make([]byte, 1<<20)) },
		"put":   func() error { return c.Put(context.Background(), []byte("k"), nil) },
		"scan":  func() error { return second(c.solo.scanPage(context.Background(), ScanOptions{}, nil, false, 0)) },
		"ping":  func() error { return second(c.Ping(context.Background())) },
		"read":  func() error { return second(c.PingRead(context.Background())) },
	} {
		for range 3 {
			wg.Go(func() {
				err := call()
				if !errors.Is(err, ErrTimeout) && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrOutcomeUnknown) {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
	}
	wg.Wait()
	eventually(t, "the session is given up", func() bool { return c.Counters().SessionsLost > 0 })
	r.set(func(r *rig) { r.swallow = nil })
	eventually(t, "the client recovers", func() bool { return second(c.Get(t.Context(), []byte("k"))) == nil })
	settled(t, c)
}

// The host behind an idle connection vanishes: that is noticed without a call.
func TestIdleConnectionToNobody(t *testing.T) {
	n := softNode(t, func(cfg *server.Config) {
		cfg.Keepalive, cfg.Lease, cfg.Beat = 100*time.Millisecond, 400*time.Millisecond, 40*time.Millisecond
	})
	r := newRig("a")
	c := n.rigged([]rdma.Fabric{r}, func(cfg *Config) { cfg.DialTimeout, cfg.LeaseKeep = 500*time.Millisecond, -1 })
	first := c.solo.current.Load()
	r.set(func(r *rig) {
		r.swallow = func(rdma.WC) bool { return true }
		r.connect = hang
	})
	eventually(t, "the session is given up", func() bool { return first.isDown() })
	if !errors.Is(first.why(), ErrUnavailable) {
		t.Errorf("%v", first.why())
	}
	r.set(func(r *rig) { r.swallow, r.connect = nil, nil })
	eventually(t, "the client is connected again", func() bool { return c.Server().Address != "" })
}

// stoppable makes a fake server whose program can be stopped, while its NIC goes
// on answering READs and nothing answers messages or connections.
func stoppable(f *fakeServer) (stop, resume func()) {
	var mu sync.Mutex
	stopped := false
	beat := uint64(10)
	f.onRequest = func(wire.Header, []byte) ([]byte, bool) {
		mu.Lock()
		defer mu.Unlock()
		return nil, stopped
	}
	f.connect = func(ctx context.Context) error {
		for {
			mu.Lock()
			now := stopped
			mu.Unlock()
			if !now {
				return nil
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Millisecond):
			}
		}
	}
	f.onRead = func(place uint64, dst []byte) {
		mu.Lock()
		if !stopped { // it beats whenever somebody looks
			beat++
			f.beatLocked(beat) // whose lock the READ holds
		}
		mu.Unlock()
		copy(dst, f.mem[place:])
	}
	set := func(to bool) func() {
		return func() {
			mu.Lock()
			defer mu.Unlock()
			stopped = to
		}
	}
	return set(true), set(false)
}

// The server's program is stopped and its NIC goes on: gets go on to the end of
// the lease and then end with a typed error at their deadline, and they are back
// when it is.
func TestStoppedServer(t *testing.T) {
	f := newFakeServer(77)
	f.change(func(mem []byte) {
		f.buildIndex(mem, oldSeg)
		f.putItem(mem, oldSeg, placeA, fakeKey, []byte("one"), 1)
	})
	const lease = 600 * time.Millisecond
	f.welcome = func(w *wire.Welcome) { w.Lease, w.Beat, w.Keepalive = lease, 20*time.Millisecond, 200*time.Millisecond }
	stop, resume := stoppable(f)
	c := f.dial(t, nil, func(cfg *Config) { cfg.Timeout, cfg.DialTimeout = 10*time.Second, 500*time.Millisecond })
	get := func(timeout time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		got, err := c.Get(ctx, fakeKey)
		if err == nil && string(got) != "one" {
			t.Fatalf("%q", got)
		}
		return err
	}
	eventually(t, "gets are one-sided", func() bool { return get(time.Second) == nil && c.Counters().OneSidedHits > 0 })
	stop()
	hits, stopped := c.Counters().OneSidedHits, time.Now()
	var err error
	for err == nil {
		if err = get(100 * time.Millisecond); err == nil && time.Since(stopped) > lease+10*time.Second {
			t.Fatal("the dead server's memory is still believed")
		}
	}
	if !errors.Is(err, ErrTimeout) {
		t.Errorf("%v", err)
	}
	if c.Counters().OneSidedHits == hits {
		t.Error("no get was answered although the lease was in force")
	}
	eventually(t, "the session is given up", func() bool { return c.solo.current.Load() == nil })
	if err := get(50 * time.Millisecond); !errors.Is(err, ErrTimeout) || !errors.Is(err, ErrUnavailable) {
		t.Errorf("while it is away: %v", err)
	}
	resume()
	eventually(t, "gets are back", func() bool { return get(time.Second) == nil })
	settled(t, c)
}

// A device that can register nothing more is a bound that was reached; one that
// has gone takes the connection with it, and the call is made again.
func TestRegistrationErrors(t *testing.T) {
	n := softNode(t, nil)
	r := newRig("a")
	c := n.rigged([]rdma.Fabric{r}, nil)
	value := bytes.Repeat([]byte("v"), 500_000)
	if err := c.Put(t.Context(), []byte("k"), value); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*session{c.solo.current.Load()} { // no memory is left over
		s.t.buffers.trim()
		s.t.staging.trim()
	}
	r.set(func(r *rig) { r.register = func(int, rdma.Access) error { return rdma.ErrLimit } })
	if _, err := c.Get(t.Context(), []byte("k")); !errors.Is(err, ErrOverloaded) || !errors.Is(err, rdma.ErrLimit) {
		t.Errorf("get: %v", err)
	}
	if _, err := c.PingRead(t.Context()); err != nil && !errors.Is(err, ErrOverloaded) {
		t.Errorf("ping: %v", err)
	}
	if err := c.Put(t.Context(), []byte("k"), value); !errors.Is(err, ErrOverloaded) || errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("put: %v", err)
	}
	var gone sync.Once
	r.set(func(r *rig) {
		r.register = func(int, rdma.Access) error {
			gone.Do(func() { go r.cut() })
			return rdma.ErrNoDevice
		}
	})
	done := make(chan error)
	go func() { done <- second(c.Get(t.Context(), []byte("k"))) }()
	eventually(t, "the connection is lost", func() bool { return c.Counters().SessionsLost > 0 })
	r.set(func(r *rig) { r.register = nil })
	if err := <-done; err != nil {
		t.Errorf("get: %v", err)
	}
	if err := c.Put(t.Context(), []byte("k"), value); err != nil {
		t.Errorf("put: %v", err)
	}
	settled(t, c)
}
