package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/wait"
)

// A call on a session that is no longer the one in force, because its server is
// about to end it, ends by its own limit, not when the session does.
func TestLimitOnRetiredSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := clienttest.NewServer(77)
		asked := make(chan struct{}, 1)
		f.OnRequest = func(h wire.Header, _ []byte) ([]byte, bool) {
			if h.Type != wire.TypePut {
				return nil, false
			}
			asked <- struct{}{}
			return nil, true // and no reply, ever
		}
		const timeout = 2 * time.Second
		c := dialFake(t, f, nil, func(cfg *client.Config) { cfg.Timeout = timeout })
		first := rt(c).Only().Current()
		put := make(chan error)
		go func() { put <- c.Put(context.Background(), []byte("k"), nil) }()
		<-asked
		time.Sleep(timeout / 2)
		f.QPs[0].Deliver(wire.AppendGoodbye(nil, wire.StatusClosing, "bye"))
		clienttest.Eventually(t, "another session", func() bool { s := rt(c).Only().Current(); return s != nil && s != first })
		if err := <-put; !errors.Is(err, client.ErrOutcomeUnknown) || !errors.Is(err, base.ErrLate) {
			t.Errorf("%v", err)
		}
		clienttest.Eventually(t, "the old session ends", func() bool { return first.IsDown() })
	})
}

// Likewise one that was left for a better fabric, and a get whose READ is never
// answered there.
func TestLimitOnSessionLeft(t *testing.T) {
	n := node.Soft(t, nil)
	best, bad := clienttest.NewRig("best"), clienttest.NewRig("bad")
	best.Refuse(rdma.ErrPeerGone)
	const timeout = 2 * time.Second
	c := rigged(n, []rdma.Fabric{best, bad}, func(cfg *client.Config) { cfg.Timeout = timeout })
	if err := c.Put(t.Context(), []byte("k"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	first := rt(c).Only().Current()
	bad.Set(func(r *clienttest.Rig) { r.Swallow = func(rdma.WC) bool { return true } })
	begun := time.Now()
	put := make(chan error)
	go func() { put <- c.Put(context.Background(), []byte("k"), []byte("w")) }()
	posted := first.Usage().ReadsPosted
	got := make(chan error)
	go func() { got <- second(c.Get(context.Background(), []byte("k"))) }()
	clienttest.Eventually(t, "the READ is under way", func() bool { return first.Usage().ReadsPosted > posted })
	time.Sleep(time.Until(begun.Add(timeout / 2)))
	best.Refuse(nil)
	clienttest.Eventually(t, "the move", func() bool { return c.Counters().Moves == 1 })
	if err := <-put; !errors.Is(err, client.ErrOutcomeUnknown) || !errors.Is(err, base.ErrLate) {
		t.Errorf("put: %v", err)
	}
	// It is made again on the better one, if there is a moment left.
	if err := <-got; err != nil && !errors.Is(err, client.ErrTimeout) {
		t.Errorf("get: %v", err)
	}
	if why := first.Why(); errors.Is(why, peer.ErrSuperseded) {
		t.Errorf("it was not ended because nothing moved: %v", why)
	}
	settled(t, c)
}

// A device that does not flush the READs of a dead connection holds up neither the
// call that waits for one nor Close, for longer than a few seconds.
func TestReadsAreNotFlushed(t *testing.T) {
	n := node.Soft(t, nil)
	r := clienttest.NewRig("a")
	c := rigged(n, []rdma.Fabric{r}, func(cfg *client.Config) { cfg.Timeout = time.Hour })
	if err := c.Put(t.Context(), []byte("k"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	first := rt(c).Only().Current()
	qpn := first.QP.QPN()
	r.Set(func(r *clienttest.Rig) {
		r.Lose = func(wc rdma.WC) bool { return wc.QPN == qpn && wc.ID == wait.RecvNumber(wc.ID) } // no receive
	})
	posted := first.Usage().ReadsPosted
	got := make(chan error, 1)
	go func() { got <- second(c.Get(context.Background(), []byte("k"))) }()
	clienttest.Eventually(t, "the READ is under way", func() bool { return first.Usage().ReadsPosted > posted })
	r.Cut()
	clienttest.Eventually(t, "the session ends", func() bool { return first.IsDown() })
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the call hangs")
	}
	<-first.Gone
	settled(t, c)
}
