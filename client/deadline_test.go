package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// What a real device and a real network do to deadlines: completions that do
// not come, registrations that take their time, servers that stand still.

// Registering takes as long as it takes; only calls that need the
// memory wait for it, and none longer than it may.
func TestSlowRegistration(t *testing.T) {
	n := node.Soft(t, nil)
	r := clienttest.NewRig("a")
	c := rigged(n, []rdma.Fabric{r}, nil)
	small, large := []byte("small"), []byte("large")
	value := bytes.Repeat([]byte("v"), 30_000)
	if err := errors.Join(c.Put(t.Context(), small, value[:10]), c.Put(t.Context(), large, value)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), small); err != nil { // small buffers are there
		t.Fatal(err)
	}
	gate, asked := make(chan struct{}), make(chan struct{}, 1)
	r.Set(func(r *clienttest.Rig) {
		r.Register = func(int, rdma.Access) error {
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
	if _, err := c.Get(ctx, large); !errors.Is(err, client.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	for range 20 { // the poller, and calls that have what they need, go on
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

// A device that does not register says so to every call that waits for it.
func TestRegistrationFails(t *testing.T) {
	n := node.Soft(t, nil)
	r := clienttest.NewRig("a")
	c := rigged(n, []rdma.Fabric{r}, nil)
	value := bytes.Repeat([]byte("v"), 500_000)
	if err := c.Put(t.Context(), []byte("k"), value); err != nil {
		t.Fatal(err)
	}
	before := c.Counters()
	r.Set(func(r *clienttest.Rig) {
		r.Register = func(n int, _ rdma.Access) error { return fmt.Errorf("%d bytes: %w", n, syscall.ENOMEM) }
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
	r.Set(func(r *clienttest.Rig) { r.Register = nil })
	if got, err := c.Get(t.Context(), []byte("k")); err != nil || !bytes.Equal(got, value) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	settled(t, c)
}

// The completions of READs do not come: each call ends at its deadline, its
// buffer waits in quarantine, and when too much waits the queue pair goes.
func TestQuarantineIsBounded(t *testing.T) {
	n := node.Soft(t, nil)
	r := clienttest.NewRig("a")
	c := rigged(n, []rdma.Fabric{r}, func(cfg *client.Config) { cfg.BufferBytes = client.LeastBufferBytes })
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
	clienttest.Eventually(t, "the get works", func() bool { return get() == nil })
	first := rt(c).Only().Current()
	r.Set(func(r *clienttest.Rig) { r.Swallow = func(wc rdma.WC) bool { return wc.Op == rdma.OpRDMARead } })
	most := int64(0)
	clienttest.Eventually(t, "the session is given up", func() bool {
		if err := get(); err != nil && !errors.Is(err, client.ErrTimeout) && !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("%v", err)
		}
		most = max(most, c.Counters().QuarantinedBytes)
		return first.IsDown()
	})
	if most == 0 || most > rt(c).Only().Config().BufferBytes/2 {
		t.Errorf("%d bytes in quarantine", most)
	}
	r.Set(func(r *clienttest.Rig) { r.Swallow = nil })
	<-first.Gone
	clienttest.Eventually(t, "the get works again", func() bool { return get() == nil })
	settled(t, c)
}

// Nothing completes, and the calls have no deadline of their own.
func TestNothingCompletes(t *testing.T) {
	n := node.Soft(t, nil)
	r := clienttest.NewRig("a")
	c := rigged(n, []rdma.Fabric{r}, func(cfg *client.Config) { cfg.Timeout, cfg.DialTimeout = 300*time.Millisecond, 5*time.Second })
	clienttest.Eventually(t, "a put", func() bool { return c.Put(t.Context(), []byte("k"), []byte("v")) == nil })
	r.Set(func(r *clienttest.Rig) { r.Swallow = func(rdma.WC) bool { return true } })
	var wg sync.WaitGroup
	for name, call := range map[string]func() error{
		"get":   func() error { return second(c.Get(context.Background(), []byte("k"))) },
		"large": func() error { return c.Put(context.Background(), []byte("l"), make([]byte, 1<<20)) },
		"put":   func() error { return c.Put(context.Background(), []byte("k"), nil) },
		"scan": func() error {
			return client.FetchPage(context.Background(), c)
		},
		"ping": func() error { return second(c.Ping(context.Background())) },
		"read": func() error { return second(admin.Of(c).PingRead(context.Background())) },
	} {
		for range 3 {
			wg.Go(func() {
				err := call()
				if !errors.Is(err, client.ErrTimeout) && !errors.Is(err, client.ErrUnavailable) && !errors.Is(err, client.ErrOutcomeUnknown) {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
	}
	wg.Wait()
	clienttest.Eventually(t, "the session is given up", func() bool { return c.Counters().SessionsLost > 0 })
	r.Set(func(r *clienttest.Rig) { r.Swallow = nil })
	clienttest.Eventually(t, "the client recovers", func() bool { return second(c.Get(t.Context(), []byte("k"))) == nil })
	settled(t, c)
}

// The host behind an idle connection vanishes: that is noticed without a call.
func TestIdleConnectionToNoServer(t *testing.T) {
	n := node.Soft(t, func(cfg *server.Config) {
		cfg.Keepalive, cfg.Lease, cfg.Beat = 100*time.Millisecond, 400*time.Millisecond, 40*time.Millisecond
	})
	r := clienttest.NewRig("a")
	c := rigged(n, []rdma.Fabric{r}, func(cfg *client.Config) { cfg.DialTimeout, cfg.LeaseKeep = 500*time.Millisecond, -1 })
	first := rt(c).Only().Current()
	r.Set(func(r *clienttest.Rig) {
		r.Swallow = func(rdma.WC) bool { return true }
		r.Connect = clienttest.Hang
	})
	clienttest.Eventually(t, "the session is given up", func() bool { return first.IsDown() })
	if !errors.Is(first.Why(), client.ErrUnavailable) {
		t.Errorf("%v", first.Why())
	}
	r.Set(func(r *clienttest.Rig) { r.Swallow, r.Connect = nil, nil })
	clienttest.Eventually(t, "the client is connected again", func() bool { return admin.Of(c).Server().Address != "" })
}

// stoppable makes a fake server whose program can be stopped, while its NIC goes
// on answering READs and nothing answers messages or connections.
func stoppable(f *clienttest.Server) (stop, resume func()) {
	var mu sync.Mutex
	stopped := false
	beat := uint64(10)
	f.OnRequest = func(wire.Header, []byte) ([]byte, bool) {
		mu.Lock()
		defer mu.Unlock()
		return nil, stopped
	}
	f.Connect = func(ctx context.Context) error {
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
	f.OnRead = func(place uint64, dst []byte) {
		mu.Lock()
		if !stopped { // it beats with each READ
			beat++
			f.BeatLocked(beat) // whose lock the READ holds
		}
		mu.Unlock()
		copy(dst, f.Mem[place:])
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
	synctest.Test(t, func(t *testing.T) {
		f := clienttest.NewServer(77)
		f.Change(func(mem []byte) {
			f.BuildIndex(mem, oldSeg)
			f.PutItem(mem, oldSeg, placeA, fakeKey, []byte("one"), 1)
		})
		const lease = 600 * time.Millisecond
		f.Welcome = func(w *wire.Welcome) { w.Lease, w.Beat, w.Keepalive = lease, 20*time.Millisecond, 200*time.Millisecond }
		stop, resume := stoppable(f)
		clock := clienttest.NewClock()
		c := dialFake(t, f, clock, func(cfg *client.Config) { cfg.Timeout, cfg.DialTimeout = 10*time.Second, 500*time.Millisecond })
		get := func(timeout time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			got, err := c.Get(ctx, fakeKey)
			if err == nil && string(got) != "one" {
				t.Fatalf("%q", got)
			}
			return err
		}
		clienttest.Eventually(t, "gets are one-sided", func() bool { return get(time.Second) == nil && c.Counters().OneSidedHits > 0 })
		stop()
		hits, stopped := c.Counters().OneSidedHits, time.Now()
		var err error
		for err == nil {
			time.Sleep(time.Millisecond)
			clock.Advance(time.Millisecond)
			if err = get(100 * time.Millisecond); err == nil && time.Since(stopped) > lease+10*time.Second {
				t.Fatal("the dead server's memory is still believed")
			}
		}
		if !errors.Is(err, client.ErrTimeout) {
			t.Errorf("%v", err)
		}
		if c.Counters().OneSidedHits == hits {
			t.Error("no get was answered although the lease was in force")
		}
		clienttest.Eventually(t, "the session is given up", func() bool { return rt(c).Only().Current() == nil })
		if err := get(50 * time.Millisecond); !errors.Is(err, client.ErrTimeout) || !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("while it is away: %v", err)
		}
		resume()
		clienttest.Eventually(t, "gets are back", func() bool { return get(time.Second) == nil })
		settled(t, c)
	})
}

// A device that can register nothing more is a bound that was reached; one that
// has gone takes the connection with it, and the call is made again.
func TestRegistrationErrors(t *testing.T) {
	n := node.Soft(t, nil)
	r := clienttest.NewRig("a")
	c := rigged(n, []rdma.Fabric{r}, nil)
	value := bytes.Repeat([]byte("v"), 500_000)
	if err := c.Put(t.Context(), []byte("k"), value); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*session.Session{rt(c).Only().Current()} { // no memory is left over
		s.Device.Buffers.Trim()
		s.Device.Staging.Trim()
	}
	r.Set(func(r *clienttest.Rig) { r.Register = func(int, rdma.Access) error { return rdma.ErrLimit } })
	if _, err := c.Get(t.Context(), []byte("k")); !errors.Is(err, client.ErrOverloaded) || !errors.Is(err, rdma.ErrLimit) {
		t.Errorf("get: %v", err)
	}
	if _, err := admin.Of(c).PingRead(t.Context()); err != nil && !errors.Is(err, client.ErrOverloaded) {
		t.Errorf("ping: %v", err)
	}
	if err := c.Put(t.Context(), []byte("k"), value); !errors.Is(err, client.ErrOverloaded) || errors.Is(err, client.ErrOutcomeUnknown) {
		t.Errorf("put: %v", err)
	}
	var gone sync.Once
	r.Set(func(r *clienttest.Rig) {
		r.Register = func(int, rdma.Access) error {
			gone.Do(func() { go r.Cut() })
			return rdma.ErrNoDevice
		}
	})
	done := make(chan error)
	go func() { done <- second(c.Get(t.Context(), []byte("k"))) }()
	clienttest.Eventually(t, "the connection is lost", func() bool { return c.Counters().SessionsLost > 0 })
	r.Set(func(r *clienttest.Rig) { r.Register = nil })
	if err := <-done; err != nil {
		t.Errorf("get: %v", err)
	}
	if err := c.Put(t.Context(), []byte("k"), value); err != nil {
		t.Errorf("put: %v", err)
	}
	settled(t, c)
}
