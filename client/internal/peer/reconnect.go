package peer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/session"
)

// How the client comes back. When a session is lost one goroutine, and never
// more than one, makes attempts: at once, and then again and again with a rest
// in between that grows. While calls wait and no server is there the rest stays
// below 100 ms, so that they go on as soon as the server is back; a server that
// answers and refuses, or takes us in and drops us, is left alone for up to 1 s.
// Each rest is shortened by a random part, so that a thousand clients of a
// restarted server do not come in step. An attempt may also hang, because the
// other machine is gone without a word: race.go.
//
// Calls wait for it as long as they may. If the server has been away for
// longer than Config.Timeout the circuit is open: a call then waits for one
// attempt only and fails with its reason, instead of holding its caller for the
// whole of its deadline each time. An attempt that succeeds closes it.

const (
	backoffFirst = 10 * time.Millisecond
	backoffCalls = 100 * time.Millisecond // while calls wait and no server is there
	backoffMax   = time.Second
	// settledFor is how long a session must have lasted for its loss to be news:
	// one that dies sooner is connected again with a rest, as after a refusal.
	settledFor = time.Second
	// reconnectFor is for how long attempts go on although no call comes.
	reconnectFor = 30 * time.Second
)

// A connector makes sessions. Lock order: connector.mu before session.mu and
// the lock of the peer's device.Set.
type connector struct {
	c      *Peer
	server string        // the store's name, learned by Dial; others are refused
	called chan struct{} // cap 1: a call waits

	mu       sync.Mutex
	closed   bool
	running  bool             // run is at work
	attempt  chan struct{}    // closed when the attempt under way, or the next one, has ended
	waiting  int              // calls that wait for a session
	sought   time.Time        // when a call last asked for the node without waiting
	lost     time.Time        // since when there is no session; zero: there is one
	lastErr  error            // of the last attempt
	backoff  time.Duration    // the next rest; 0: none
	last     *session.Session // the last one that was in force: how it was reached
	sessions sync.WaitGroup
}

// Session returns a session that was alive a moment ago, waiting for one if
// need be.
func (p *Peer) Session(l *base.Limit) (*session.Session, error) {
	if s := p.current.Load(); s != nil && !s.IsDown() {
		return s, nil
	}
	return p.conn.wait(l, false)
}

// wantedLocked reports whether a call waits, or would if it had not gone elsewhere.
func (k *connector) wantedLocked() bool {
	return k.waiting > 0 || !k.sought.IsZero() && time.Since(k.sought) < backoffMax
}

// install makes s the session in force.
func (p *Peer) install(s *session.Session) {
	k := &p.conn
	k.mu.Lock()
	defer k.mu.Unlock()
	k.installLocked(s)
	k.lost, k.lastErr = time.Time{}, nil
}

func (k *connector) installLocked(s *session.Session) {
	c := k.c
	c.n.Connects.Add(1)
	if k.closed {
		s.Fail(base.ErrClosed)
	}
	s.Announce()
	k.last = s
	c.current.Store(s)
	c.Devices.Trim(s.Device)
	k.sessions.Go(func() {
		<-s.Down
		c.lose(s)
		<-s.Gone
	})
	if s.Way.Fabric > 0 && !k.closed {
		c.wg.Go(func() { k.improve(s) })
	}
}

// lose notes that s has ended, and begins to connect again.
func (p *Peer) lose(s *session.Session) {
	k := &p.conn
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || !p.current.CompareAndSwap(s, nil) {
		return
	}
	p.n.SessionsLost.Add(1)
	p.log.Warn("connection lost", "server", s.Addr, "why", s.Why())
	if time.Since(s.Born) < settledFor {
		k.backoff = nextBackoff(k.backoff)
	} else {
		k.backoff = 0
	}
	k.beginLocked()
}

// Retire takes s out of use because the server will end it. What is under way
// on it is still answered.
func (p *Peer) Retire(s *session.Session) {
	k := &p.conn
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || !p.current.CompareAndSwap(s, nil) {
		return
	}
	// If the server does not end it, we do.
	k.sessions.Go(func() {
		s.WatchAside(func() bool { return false })
		if p.done.Err() != nil {
			s.Fail(base.ErrClosed)
		}
		s.Fail(fmt.Errorf("%w: the server said it would end the session", base.ErrUnavailable))
	})
	k.backoff = 0
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

// wait is session's slow path. With once it is over with the first attempt that fails.
func (k *connector) wait(p *base.Limit, once bool) (*session.Session, error) {
	ctx, cancel := p.Bounded()
	defer cancel()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waiting++
	defer func() { k.waiting-- }()
	select {
	case k.called <- struct{}{}:
	default:
	}
	for {
		if k.closed {
			return nil, base.ErrClosed
		}
		if s := k.c.current.Load(); s != nil && !s.IsDown() {
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
			return nil, base.ErrClosed
		case errors.Is(ended, context.Canceled):
			return nil, ended
		case ended != nil:
			return nil, fmt.Errorf("%w: %w%w", base.ErrUnavailable, base.ErrTimeout, base.LastAttempt{Err: k.lastErr})
		case k.lastErr != nil && (once || open || base.Fatal(k.lastErr)):
			return nil, base.Because(base.ErrUnavailable, k.lastErr)
		}
	}
}

// run connects, attempt after attempt, until there is a session, the client is
// closed, or no call has asked for one for a while.
func (k *connector) run() {
	c := k.c
	answered := true // a session that died at once is as good as a refusal
	for {
		k.mu.Lock()
		rest := k.backoff
		k.mu.Unlock()
		k.rest(rest, answered)
		s, err := k.race(c.done)
		answered = refused(err)
		k.mu.Lock()
		if err == nil {
			k.installLocked(s)
			k.lost = time.Time{}
		} else {
			c.n.ConnectsFailed.Add(1)
			k.backoff = nextBackoff(k.backoff)
			c.log.Info("connecting failed", "err", err, "again_in", k.backoff)
			if c.dir != nil {
				c.dir.Unreachable(c.Node) // perhaps it listens somewhere else now
			}
		}
		k.lastErr = err
		close(k.attempt)
		if err == nil || k.closed || !k.wantedLocked() && time.Since(k.lost) > reconnectFor {
			k.running = false
			if err != nil {
				k.backoff = 0 // the next call finds out at once
			}
			k.mu.Unlock()
			return
		}
		k.attempt = make(chan struct{})
		k.mu.Unlock()
	}
}

func nextBackoff(d time.Duration) time.Duration {
	return min(max(2*d, backoffFirst), backoffMax)
}

// rest waits for between a half and the whole of d, and for no more than
// backoffCalls while calls wait, unless a server has answered.
func (k *connector) rest(d time.Duration, answered bool) {
	if d == 0 {
		return
	}
	begin, share := time.Now(), (1+rand.Float64())/2
	for {
		k.mu.Lock()
		hurry := k.wantedLocked() && !answered
		k.mu.Unlock()
		if hurry {
			d = min(d, backoffCalls)
		}
		left := time.Duration(float64(d)*share) - time.Since(begin)
		if left <= 0 {
			return
		}
		t := time.NewTimer(left)
		select {
		case <-t.C:
		case <-k.called:
			t.Stop()
		case <-k.c.done.Done():
			t.Stop()
			return
		}
	}
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
	k.c.cancel()
	k.mu.Unlock()
	if s != nil {
		s.Fail(base.ErrClosed)
	}
	k.c.wg.Wait() // run may install one more, which install then fails
	k.sessions.Wait()
	return true
}
