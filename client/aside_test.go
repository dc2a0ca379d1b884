package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// A call on a session that is no longer the one in force, because its server is
// about to end it, ends by its own limit, not when the session does.
func TestLimitOnRetiredSession(t *testing.T) {
	f := newFakeServer(77)
	asked := make(chan struct{}, 1)
	f.onRequest = func(h wire.Header, _ []byte) ([]byte, bool) {
		if h.Type != wire.TypePut {
			return nil, false
		}
		asked <- struct{}{}
		return nil, true // and no reply, ever
	}
	const timeout = 2 * time.Second
	c := f.dial(t, nil, func(cfg *Config) { cfg.Timeout = timeout })
	first := c.solo.current.Load()
	put := make(chan error)
	go func() { put <- c.Put(context.Background(), []byte("k"), nil) }()
	<-asked
	time.Sleep(timeout / 2)
	f.qps[0].deliver(wire.AppendGoodbye(nil, wire.StatusClosing, "bye"))
	eventually(t, "another session", func() bool { s := c.solo.current.Load(); return s != nil && s != first })
	if err := <-put; !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, errLate) {
		t.Errorf("%v", err)
	}
	eventually(t, "the old session ends", func() bool { return first.isDown() })
}

// Likewise one that was left for a better fabric, and a get whose READ is never
// answered there.
func TestLimitOnSessionLeft(t *testing.T) {
	n := softNode(t, nil)
	best, bad := newRig("best"), newRig("bad")
	best.refuse(rdma.ErrPeerGone)
	const timeout = 2 * time.Second
	c := n.rigged([]rdma.Fabric{best, bad}, func(cfg *Config) { cfg.Timeout = timeout })
	if err := c.Put(t.Context(), []byte("k"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	first := c.solo.current.Load()
	bad.set(func(r *rig) { r.swallow = func(rdma.WC) bool { return true } })
	begun := time.Now()
	put := make(chan error)
	go func() { put <- c.Put(context.Background(), []byte("k"), []byte("w")) }()
	posted := first.readsPosted.Load()
	got := make(chan error)
	go func() { got <- second(c.Get(context.Background(), []byte("k"))) }()
	eventually(t, "the READ is under way", func() bool { return first.readsPosted.Load() > posted })
	time.Sleep(time.Until(begun.Add(timeout / 2)))
	best.refuse(nil)
	eventually(t, "the move", func() bool { return c.Counters().Moves == 1 })
	if err := <-put; !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, errLate) {
		t.Errorf("put: %v", err)
	}
	// It is made again on the better one, if there is a moment left.
	if err := <-got; err != nil && !errors.Is(err, ErrTimeout) {
		t.Errorf("get: %v", err)
	}
	if why := first.why(); errors.Is(why, errSuperseded) {
		t.Errorf("it was not ended because nothing moved: %v", why)
	}
	settled(t, c)
}

// A device that does not flush the READs of a dead connection keeps nobody: not
// the call that waits for one, and not Close.
func TestReadsAreNotFlushed(t *testing.T) {
	n := softNode(t, nil)
	r := newRig("a")
	c := n.rigged([]rdma.Fabric{r}, func(cfg *Config) { cfg.Timeout = time.Hour })
	if err := c.Put(t.Context(), []byte("k"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	first := c.solo.current.Load()
	qpn := first.qp.QPN()
	r.set(func(r *rig) {
		r.lose = func(wc rdma.WC) bool { return wc.QPN == qpn && wc.ID == rdma.RecvNumber(wc.ID) } // no receive
	})
	posted := first.readsPosted.Load()
	got := make(chan error, 1)
	go func() { got <- second(c.Get(context.Background(), []byte("k"))) }()
	eventually(t, "the READ is under way", func() bool { return first.readsPosted.Load() > posted })
	r.cut()
	eventually(t, "the session ends", func() bool { return first.isDown() })
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the call hangs")
	}
	<-first.gone
	settled(t, c)
}
