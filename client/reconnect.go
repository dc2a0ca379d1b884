package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// How the client comes back. When a session is lost one goroutine, and never
// more than one, tries the servers in turn, at once and then with a back-off
// that doubles from 10 ms to 1 s, each wait shortened by a random part so that
// a thousand clients of a restarted server do not come in step.
//
// Calls wait for it as long as they may. If the server has been away for
// longer than Config.Timeout the circuit is open: a call then waits for one
// attempt only and fails with its reason, instead of holding its caller for the
// whole of its deadline each time. An attempt that succeeds closes it.

const (
	backoffFirst = 10 * time.Millisecond
	backoffMax   = time.Second
	// reconnectFor is for how long attempts go on although nobody calls.
	reconnectFor = 30 * time.Second
)

// A connector makes sessions. Lock order: connector.mu before session.mu.
type connector struct {
	c      *Client
	server string // the store's name, learned by Dial; others are refused

	mu       sync.Mutex
	closed   bool
	running  bool          // run is at work
	attempt  chan struct{} // closed when the attempt under way, or the next one, has ended
	waiting  int           // calls that wait for a session
	lost     time.Time     // since when there is no session; zero: there is one
	lastErr  error         // of the last attempt
	sessions sync.WaitGroup
}

// session returns a session that was alive a moment ago, waiting for one if
// need be.
func (c *Client) session(p *patience) (*session, error) {
	if s := c.current.Load(); s != nil && !s.isDown() {
		return s, nil
	}
	return c.conn.wait(p)
}

// install makes s the session in force.
func (c *Client) install(s *session) {
	c.n.connects.Add(1)
	c.log.Info("connected", "server", s.addr, "id", s.server, "incarnation", s.incarnation,
		"session", s.welcome.Session, "transport", s.qp.Info().Detail)
	k := &c.conn
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		s.fail(ErrClosed)
	}
	k.lost, k.lastErr = time.Time{}, nil
	c.current.Store(s)
	k.sessions.Go(func() {
		<-s.down
		c.lose(s)
		<-s.gone
	})
}

// lose notes that s has ended, and begins to connect again.
func (c *Client) lose(s *session) {
	k := &c.conn
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || !c.current.CompareAndSwap(s, nil) {
		return
	}
	c.n.sessionsLost.Add(1)
	c.log.Warn("connection lost", "server", s.addr, "why", s.why())
	k.beginLocked()
}

// retire takes s out of use because the server will end it. What is under way
// on it is still answered.
func (c *Client) retire(s *session) {
	k := &c.conn
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || !c.current.CompareAndSwap(s, nil) {
		return
	}
	// If the server does not end it, we do.
	k.sessions.Go(func() {
		t := time.NewTimer(c.cfg.Timeout)
		defer t.Stop()
		select {
		case <-s.down:
		case <-t.C:
			s.fail(fmt.Errorf("%w: the server said it would end the session", ErrUnavailable))
		case <-c.done.Done():
			s.fail(ErrClosed)
		}
	})
	k.beginLocked()
}

// beginLocked starts run if it is not at work.
func (k *connector) beginLocked() {
	if k.lost.IsZero() {
		k.lost = time.Now()
	}
	if k.running || k.closed {
		return
	}
	k.running = true
	k.attempt = make(chan struct{})
	k.c.wg.Go(k.run)
}

// wait is session's slow path.
func (k *connector) wait(p *patience) (*session, error) {
	ctx, cancel := p.bounded()
	defer cancel()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waiting++
	defer func() { k.waiting-- }()
	for {
		if k.closed {
			return nil, ErrClosed
		}
		if s := k.c.current.Load(); s != nil && !s.isDown() {
			return s, nil
		}
		open := !k.lost.IsZero() && time.Since(k.lost) > k.c.cfg.Timeout
		k.beginLocked()
		attempt := k.attempt
		k.mu.Unlock()
		var ended error
		select {
		case <-attempt:
		case <-ctx.Done():
			ended = ctx.Err()
		}
		k.mu.Lock()
		switch {
		case k.closed:
			return nil, ErrClosed
		case errors.Is(ended, context.Canceled):
			return nil, ended
		case ended != nil:
			return nil, fmt.Errorf("%w: %w (last attempt: %v)", ErrUnavailable, ErrTimeout, k.lastErr)
		case k.lastErr != nil && (open || fatal(k.lastErr)):
			return nil, because(ErrUnavailable, k.lastErr)
		}
	}
}

// fatal: trying again cannot help unless somebody changes a configuration.
func fatal(err error) bool {
	return errors.Is(err, ErrAuth) || errors.Is(err, ErrVersion)
}

// run connects, attempt after attempt, until there is a session, the client is
// closed, or nobody has asked for one for a while.
func (k *connector) run() {
	backoff := backoffFirst
	for {
		s, err := k.dialAny(k.c.done)
		if err == nil {
			k.c.install(s)
		} else {
			k.c.n.connectsFailed.Add(1)
			k.c.log.Info("connecting failed", "err", err, "again_in", backoff)
		}
		k.mu.Lock()
		k.lastErr = err
		close(k.attempt)
		if err == nil || k.closed || k.waiting == 0 && time.Since(k.lost) > reconnectFor {
			k.running = false
			k.mu.Unlock()
			return
		}
		k.attempt = make(chan struct{})
		k.mu.Unlock()
		wait := backoff/2 + rand.N(backoff/2)
		backoff = min(2*backoff, backoffMax)
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-k.c.done.Done():
			t.Stop()
		}
	}
}

// dialAny is one attempt: each server in turn.
func (k *connector) dialAny(ctx context.Context) (*session, error) {
	var errs []error
	for _, addr := range k.c.cfg.Servers {
		s, err := k.c.connect(ctx, addr)
		if err == nil && k.server != "" && s.server != k.server {
			err = fmt.Errorf("%w: store %q answers at %s, this client has been using %q; a client serves one store",
				ErrUnavailable, s.server, addr, k.server)
			s.fail(err)
			<-s.gone
		}
		if err == nil {
			return s, nil
		}
		if ctx.Err() != nil {
			return nil, because(ErrUnavailable, fmt.Errorf("%s: %w", addr, err))
		}
		errs = append(errs, fmt.Errorf("%s: %w", addr, err))
	}
	return nil, because(dialClass(errs), errors.Join(errs...))
}

// dialClass is what an attempt that failed everywhere counts as: a refusal that
// a person must deal with if there was one, else unavailable.
func dialClass(errs []error) error {
	for _, class := range []error{ErrAuth, ErrVersion, ErrProtocol} {
		for _, err := range errs {
			if errors.Is(err, class) {
				return class
			}
		}
	}
	return ErrUnavailable
}

// connectError explains why a connection was not made.
func connectError(err error, private []byte) error {
	if !errors.Is(err, rdma.ErrRejected) {
		return because(ErrUnavailable, err)
	}
	r, perr := wire.ParseReject(private)
	if perr != nil {
		return because(ErrUnavailable, err)
	}
	switch r.Status {
	case wire.StatusVersion:
		return fmt.Errorf("%w: the server speaks %d to %d, this client %d to %d",
			ErrVersion, r.Min, r.Max, wire.VersionMin, wire.VersionMax)
	case wire.StatusAuth:
		return because(ErrAuth, r.Status.Err())
	}
	return because(ErrUnavailable, r.Status.Err())
}

// close ends the current session and forbids new ones; false if it was closed
// before.
func (k *connector) close() bool {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return false
	}
	k.closed = true
	s := k.c.current.Load()
	k.mu.Unlock()
	k.c.cancel()
	if s != nil {
		s.fail(ErrClosed)
	}
	k.c.wg.Wait() // run may install one more, which install then fails
	k.sessions.Wait()
	return true
}
