package rdmatest

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

func checkNobodyListens(t *testing.T, cfg *Config) {
	a, b := newEnd(t, cfg, "a"), newEnd(t, cfg, "b")
	l := b.listen()
	addr := l.Addr().String()
	b.check("Close", l.Close())
	qa := a.qp(rdma.QPConfig{})
	id := a.recv(qa)
	_, err := qa.Connect(t.Context(), addr, rdma.ConnParams{})
	if !errors.Is(err, rdma.ErrPeerGone) {
		t.Errorf("Connect where nobody listens: %v", err)
	}
	// The QP is in ERR, its receive is flushed, and it can only be closed.
	a.expectDone(qa, rdma.ErrPeerGone)
	a.class(id, rdma.ErrFlushed)
	if _, err := qa.Connect(t.Context(), addr, rdma.ConnParams{}); err == nil {
		t.Error("a second Connect on the same QP")
	}
}

func checkBadAddresses(t *testing.T, cfg *Config) {
	a := newEnd(t, cfg, "a")
	for _, addr := range []string{"", "nonsense", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:http:1"} {
		_, err := a.qp(rdma.QPConfig{}).Connect(t.Context(), addr, rdma.ConnParams{})
		var op *rdma.OpError
		if !errors.As(err, &op) {
			t.Errorf("Connect(%q): %v, want an OpError", addr, err)
		}
	}
}

// checkDialContext: a dial that gets no answer ends with its context, before
// and during the set-up.
func checkDialContext(t *testing.T, cfg *Config) {
	a, b := newEnd(t, cfg, "a"), newEnd(t, cfg, "b")
	l := b.listen()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	qa := a.qp(rdma.QPConfig{})
	if _, err := qa.Connect(ended, l.Addr().String(), rdma.ConnParams{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Connect with a context that has ended: %v", err)
	}
	for _, how := range []string{"cancel", "deadline"} {
		ctx, cancel := context.WithCancel(t.Context())
		want := context.Canceled
		if how == "deadline" {
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
			want = context.DeadlineExceeded
		}
		qa := a.qp(rdma.QPConfig{})
		id := a.recv(qa)
		result := make(chan error, 1)
		go func() {
			_, err := qa.Connect(ctx, l.Addr().String(), rdma.ConnParams{})
			result <- err
		}()
		if how == "cancel" {
			// The request has arrived, so the dialer is waiting for the answer.
			req, err := l.Accept(t.Context())
			b.check("Accept", err)
			cancel()
			err = <-result
			if !errors.Is(err, want) {
				t.Errorf("%s: %v", how, err)
			}
			_ = req.Reject(nil) // the dialer is gone; the error does not matter
		} else if err := <-result; !errors.Is(err, want) && !errors.Is(err, rdma.ErrDeadline) {
			t.Errorf("%s: %v", how, err)
		}
		cancel()
		if s := qa.State(); s != rdma.QPError {
			t.Errorf("%s: state %v", how, s)
		}
		a.class(id, rdma.ErrFlushed)
		a.check("Close", qa.Close())
	}
	p := newPair(t, cfg, pairOptions{connectionOnly: &pair{a: a, b: b}})
	p.stillWorks()
}

func checkAcceptContext(t *testing.T, cfg *Config) {
	b := newEnd(t, cfg, "b")
	l := b.listen()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Accept(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Accept with a context that has ended: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := l.Accept(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Accept with a deadline: %v", err)
	}
	// The listener is as good as before.
	a := newEnd(t, cfg, "a")
	p := &pair{a: a, b: b, qa: a.qp(rdma.QPConfig{}), qb: b.qp(rdma.QPConfig{})}
	if _, err := p.join(l, rdma.ConnParams{}, rdma.ConnParams{}); err != nil {
		t.Errorf("after that: %v", err)
	}
}

// checkLeftAlone: the fabric drops a request that its program never answers. The
// dialer has no deadline of its own.
func checkLeftAlone(t *testing.T, cfg *Config) {
	a := newEndOn(t, cfg, "a", cfg.NewImpatient(t), cqDepth)
	b := newEndOn(t, cfg, "b", cfg.NewImpatient(t), cqDepth)
	l := b.listen()
	qa := a.qp(rdma.QPConfig{})
	result := make(chan error, 1)
	go func() {
		_, err := qa.Connect(context.Background(), l.Addr().String(), rdma.ConnParams{})
		result <- err
	}()
	req, err := l.Accept(t.Context())
	b.check("Accept", err)
	select {
	case err := <-result:
		if !isAny(err, rdma.ErrPeerGone, rdma.ErrDeadline, rdma.ErrRejected) {
			t.Errorf("the dialer ended with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the dialer waits for ever")
	}
	qb := b.qp(rdma.QPConfig{})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := req.Accept(ctx, qb, rdma.ConnParams{}); err == nil {
		t.Error("a dropped request was accepted")
	}
}

// checkAbandonedRequest: the dialer is gone when the request is accepted.
func checkAbandonedRequest(t *testing.T, cfg *Config) {
	a, b := newEnd(t, cfg, "a"), newEnd(t, cfg, "b")
	l := b.listen()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	qa, qb := a.qp(rdma.QPConfig{}), b.qp(rdma.QPConfig{})
	into := b.region(64, rdma.AccessLocalWrite)
	id := b.recv(qb, into.sge(0, 64))
	result := make(chan error, 1)
	go func() {
		_, err := qa.Connect(ctx, l.Addr().String(), rdma.ConnParams{})
		result <- err
	}()
	req, err := l.Accept(t.Context())
	b.check("Accept", err)
	cancel()
	<-result
	a.check("Close", qa.Close())
	// Either Accept notices, or the QP dies right after it.
	short, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	if _, err := req.Accept(short, qb, rdma.ConnParams{}); err == nil {
		b.expectDone(qb, rdma.ErrPeerGone)
	} else {
		b.check("Close", qb.Close())
	}
	b.class(id, rdma.ErrFlushed)
}

// checkUntaken: closing a listener refuses the dialers that wait in its
// backlog. Which dials had arrived by then cannot be seen from outside, so
// either class will do; the test checks that all of them end.
func checkUntaken(t *testing.T, cfg *Config) {
	const n, taken = 32, 16
	a, b := newEnd(t, cfg, "a"), newEnd(t, cfg, "b")
	l := b.listen()
	results := make(chan error, n)
	for range n {
		qa := a.qp(rdma.QPConfig{})
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			_, err := qa.Connect(ctx, l.Addr().String(), rdma.ConnParams{})
			results <- err
		}()
	}
	for range taken {
		req, err := l.Accept(t.Context())
		b.check("Accept", err)
		b.check("Reject", req.Reject(nil))
	}
	b.check("Close", l.Close())
	for range n {
		if err := <-results; !isAny(err, rdma.ErrRejected, rdma.ErrPeerGone) {
			t.Errorf("a dial that nobody took: %v", err)
		}
	}
}

// checkConnectMisuse: a QP connects once, and a request accepts only what fits.
func checkConnectMisuse(t *testing.T, cfg *Config) {
	p := newPair(t, cfg, pairOptions{})
	l := p.b.listen()
	if _, err := p.qa.Connect(t.Context(), l.Addr().String(), rdma.ConnParams{}); err == nil {
		t.Error("Connect on a connected QP")
	}
	req, result := dial(t, p.a, p.b, l, rdma.ConnParams{})
	if _, err := req.Accept(t.Context(), p.qb, rdma.ConnParams{}); err == nil {
		t.Error("a request accepted with a connected QP")
	}
	_ = req.Reject(nil)
	if d := <-result; d.err == nil {
		t.Error("connected all the same")
	}
	other := newEnd(t, cfg, "other device")
	req, result = dial(t, p.a, p.b, l, rdma.ConnParams{})
	if _, err := req.Accept(t.Context(), other.qp(rdma.QPConfig{}), rdma.ConnParams{}); !errors.Is(err, rdma.ErrInvalid) {
		t.Errorf("a request accepted with a QP of another device: %v", err)
	}
	_ = req.Reject(nil)
	if d := <-result; d.err == nil {
		t.Error("connected all the same")
	}
	p.stillWorks()
	// A peer that speaks another protocol does not hurt the listener.
	if conn, err := net.Dial("tcp", l.Addr().String()); err == nil {
		_, _ = conn.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		_ = conn.Close()
	}
	newPair(t, cfg, pairOptions{connectionOnly: p}).stillWorks()
}
