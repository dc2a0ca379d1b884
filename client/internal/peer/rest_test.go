package peer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// How long a rest lasts: while calls wait and no server is there, never more than 100 ms,
// also when the call comes during the rest.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		k := &connector{c: &Peer{done: ctx}, called: make(chan struct{}, 1)}
		rest := func(d time.Duration, answered bool) time.Duration {
			begin := time.Now()
			k.rest(d, answered)
			return time.Since(begin)
		}
		between := func(what string, got, least, most time.Duration) {
			t.Helper()
			if got < least || got > most {
				t.Errorf("%s: rested for %v", what, got)
			}
		}
		between("none", rest(0, false), 0, 0)
		for range 100 {
			between("no call comes", rest(time.Second, false), time.Second/2, time.Second)
			k.waiting = 1
			between("a call waits", rest(time.Second, false), backoffCalls/2, backoffCalls)
			between("a short one", rest(10*time.Millisecond, false), 5*time.Millisecond, 10*time.Millisecond)
			between("a server refused", rest(time.Second, true), time.Second/2, time.Second)
			k.waiting = 0
			go func() {
				time.Sleep(20 * time.Millisecond)
				k.mu.Lock()
				k.waiting = 1
				k.mu.Unlock()
				k.called <- struct{}{}
			}()
			between("a call comes", rest(time.Second, false), backoffCalls/2, backoffCalls)
			k.waiting = 0
		}
		go func() {
			time.Sleep(time.Millisecond)
			cancel()
		}()
		between("closed", rest(time.Hour, false), time.Millisecond, time.Millisecond)
		synctest.Wait()
		for d, i := nextBackoff(0), 0; i < 20; d, i = nextBackoff(d), i+1 {
			if want := min(backoffFirst<<min(i, 20), backoffMax); d != want {
				t.Errorf("rest %d is %v", i, d)
			}
		}
	})
}

// TestMayCome: which failures of an attempt may pass by themselves, also among
// those of several fabrics and servers.
func TestMayCome(t *testing.T) {
	dns := &net.DNSError{Err: "no such host", Name: "kv1", IsNotFound: true}
	device := fmt.Errorf("verbs: %w: this machine has no RDMA device", rdma.ErrNoDevice)
	answered := func(err error) error { return refusal{err} }
	for _, c := range []struct {
		err  error
		want bool
	}{
		{fmt.Errorf("%w: dial: %w", rdma.ErrPeerGone, syscall.ECONNREFUSED), true},
		{fmt.Errorf("%w: %w", rdma.ErrNoDevice, fs.ErrNotExist), true}, // no socket of shm
		{fmt.Errorf("%w: %w", rdma.ErrPeerGone, dns), true},
		{fmt.Errorf("%w: %w", rdma.ErrNoDevice, dns), true},
		{rdma.ErrDeadline, true},
		{answered(base.Because(base.ErrUnavailable, base.Because(base.ErrOverloaded, wire.StatusBusy.Err()))), true},
		{answered(base.Because(base.ErrUnavailable, base.Because(base.ErrClosing, wire.StatusClosing.Err()))), true},
		{base.FabricErrors{device, fmt.Errorf("iwarp: %w", rdma.ErrPeerGone)}, true},
		{device, false},
		{base.FabricErrors{device, device}, false},
		{answered(base.ErrAuth), false},
		{errors.Join(answered(base.ErrAuth), rdma.ErrPeerGone), false},
		{answered(base.ErrVersion), false},
		{answered(base.ErrOtherCluster), false},
		{answered(base.ErrProtocol), false},
		{base.Because(base.ErrNoRDMA, rdma.ErrPeerGone), false},
		{rdma.ErrProtocol, false},
		{fmt.Errorf("%w: a certificate", rdma.ErrRejected), false},
		{rdma.ErrInvalid, false},
	} {
		if got := mayCome(base.Because(base.ErrUnavailable, c.err)); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}

// What a closed peer is to run has ended when Go returns, with a context that has ended; so it outlives no Close.
func TestGoOfAClosedPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Peer{}
		p.done, p.cancel = context.WithCancel(t.Context())
		p.conn.c = p
		begun, ended := false, false
		p.Go(func(ctx context.Context) {
			begun = true
			<-ctx.Done()
			ended = true
		})
		synctest.Wait()
		if !begun || ended {
			t.Errorf("begun: %v, ended: %v", begun, ended)
		}
		p.conn.close()
		if !ended {
			t.Error("close does not wait")
		}
		over := false
		p.Go(func(ctx context.Context) { over = ctx.Err() != nil })
		if !over {
			t.Error("it was not run, or goes on")
		}
	})
}
