//go:build linux && cgo

package ibv

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// repeat runs f in n goroutines until it fails, which it must do with
// ErrClosed, and returns a function that waits for all.
func repeat(t *testing.T, wg *sync.WaitGroup, n int, what string, f func() error) {
	for range n {
		wg.Go(func() {
			for !t.Failed() {
				if err := f(); err != nil {
					if !errors.Is(err, ErrClosed) {
						t.Errorf("%s: %v", what, err)
					}
					return
				}
			}
		})
	}
}

// cycles is how often the tests below do it all.
func cycles(full int) int {
	if testing.Short() {
		return full / 10
	}
	return full
}

// TestCloseRaces: everything is closed while other goroutines use it.
func TestCloseRaces(t *testing.T) {
	name := anyDevice(t)
	mem := pages(t, memSize)
	for range cycles(30) {
		var wg sync.WaitGroup
		c := must(Open(name))(t)
		pd := must(c.AllocPD())(t)
		mr := must(pd.RegMR(uintptr(addrOf(mem)), memSize, AccessLocalWrite))(t)
		ch := must(c.CreateCompChannel())(t)
		cq := must(c.CreateCQ(1024, ch))(t)
		srq := must(pd.CreateSRQ(1024, 1, 0))(t)
		qp, _, err := pd.CreateQP(QPInit{SendCQ: cq, RecvCQ: cq, SRQ: srq, Cap: QPCap{MaxSendWR: 16, MaxSendSGE: 1}})
		if err != nil {
			t.Fatal(err)
		}
		bg := context.Background()
		repeat(t, &wg, 2, "Poll", func() error { return second(cq.Poll(make([]WC, 2))) })
		repeat(t, &wg, 1, "Spin", func() error { return second(cq.Spin(make([]WC, 2), MaxSpin)) })
		repeat(t, &wg, 1, "ReqNotify", func() error { return cq.ReqNotify(false) })
		repeat(t, &wg, 2, "Get", func() error { return second(ch.Get(bg)) })
		repeat(t, &wg, 2, "AsyncEvent", func() error { return second(c.AsyncEvent(bg)) })
		repeat(t, &wg, 1, "Query", func() error { return second(qp.Query(QPMaskState)) })
		repeat(t, &wg, 1, "PostSend", func() error {
			// Refused in RESET.
			if _, err := qp.PostSend(make([]SendWR, 2)); errors.Is(err, ErrClosed) {
				return err
			}
			return nil
		})
		repeat(t, &wg, 1, "PostSRQ", func() error {
			if _, err := srq.PostRecv(make([]RecvWR, 1)); !isErrno(err, syscall.ENOMEM) {
				return err
			}
			return nil
		})
		repeat(t, &wg, 1, "CreateQP", func() error {
			q, _, err := pd.CreateQP(QPInit{SendCQ: cq, RecvCQ: cq, Cap: QPCap{MaxSendWR: 1, MaxSendSGE: 1}})
			if err == nil {
				err = q.Close()
			}
			return err
		})
		runtime.Gosched()
		for _, o := range []interface{ Close() error }{qp, srq, cq, ch, mr, pd, c} {
			for {
				err := o.Close()
				if err == nil {
					break
				}
				// A QP of the goroutine that makes them.
				if !isErrno(err, syscall.EBUSY) || !strings.Contains(err.Error(), "1 QP") {
					t.Fatalf("%T: %v", o, err)
				}
				runtime.Gosched()
			}
		}
		wg.Wait()
	}
}

// TestCMCloseRaces: ids are closed while requests come in and events are read.
func TestCMCloseRaces(t *testing.T) {
	l, d := newParty(t), newParty(t)
	for range cycles(30) {
		var wg sync.WaitGroup
		events := must(NewEventChannel())(t)
		listener := must(events.NewID())(t)
		l.ok(listener.Bind(netip.AddrPortFrom(l.addrs[0], 0)))
		l.ok(listener.Listen(4))
		repeat(t, &wg, 2, "Get", func() error {
			ev, err := events.Get(context.Background())
			if err == nil && ev.Type == CMConnectRequest {
				err = ev.ID.Close()
			}
			return err
		})
		repeat(t, &wg, 2, "LocalAddr", func() error {
			if listener.LocalAddr(); listener.Device() == "" {
				return ErrClosed
			}
			return nil
		})
		id := d.resolve(listener.LocalAddr())
		d.ok(id.Connect(hello("client", d.newQP())))
		d.ok(listener.Close())
		d.ok(id.Close())
		for {
			err := events.Close()
			if err == nil {
				break
			}
			if !isErrno(err, syscall.EBUSY) { // the id of a request, until its reader closed it
				t.Fatal(err)
			}
			runtime.Gosched()
		}
		wg.Wait()
	}
}

// open counts what a leak would leave behind.
func open(t *testing.T) (fds, objects int) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list), entries(&liveCQs) + entries(&liveQPs) + entries(&liveSRQs) + entries(&liveIDs)
}

func entries[T any](r *registry[T]) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.m)
}

// TestNoLeaks: a thousand times everything, and a hundred connections.
func TestNoLeaks(t *testing.T) {
	name := anyDevice(t)
	mem := pages(t, 4096)
	all := func() {
		c := must(Open(name))(t)
		pd := must(c.AllocPD())(t)
		mr := must(pd.RegMR(uintptr(addrOf(mem)), len(mem), AccessLocalWrite))(t)
		ch := must(c.CreateCompChannel())(t)
		cq := must(c.CreateCQ(8, ch))(t)
		srq := must(pd.CreateSRQ(8, 1, 0))(t)
		qp, _, err := pd.CreateQP(QPInit{SendCQ: cq, RecvCQ: cq, SRQ: srq, Cap: QPCap{MaxSendWR: 4, MaxSendSGE: 1}})
		if err != nil {
			t.Fatal(err)
		}
		events := must(NewEventChannel())(t)
		id := must(events.NewID())(t)
		for _, o := range []interface{ Close() error }{id, events, qp, srq, cq, ch, mr, pd, c} {
			if err := o.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	all() // the netpoller's and librdmacm's own descriptors stay
	fds, objects := open(t)
	for range cycles(1000) {
		all()
	}
	if f, o := open(t); f != fds || o != objects {
		t.Errorf("%d descriptors and %d objects before, %d and %d after", fds, objects, f, o)
	}
}

func TestNoLeaksOfConnections(t *testing.T) {
	l, d := newParty(t), newParty(t)
	listener := l.listen(l.addrs[0])
	once := func(t *testing.T) {
		l, d := *l, *d
		l.t, d.t = t, t
		c := connect(&d, &l, listener)
		d.ok(c.dialed.Disconnect())
		l.on(CMDisconnected)
		l.ok(c.accepted.Disconnect())
		d.on(CMDisconnected)
	}
	t.Run("first", once)
	fds, objects := open(t)
	for range cycles(100) {
		if !t.Run("again", once) {
			return
		}
		// What the channels still hold (TIMEWAIT_EXIT) belongs to ids that are
		// gone.
	}
	if f, o := open(t); f != fds || o != objects {
		t.Errorf("%d descriptors and %d objects before, %d and %d after", fds, objects, f, o)
	}
	quiet(t, l.events)
	quiet(t, d.events)
}
