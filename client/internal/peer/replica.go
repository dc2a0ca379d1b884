package peer

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/session"
)

// A Replica is a peer for calls that may go to another one instead, because its node has but a replica
// of what they ask for. Such a call makes one try here, which is short: it does not wait for a node
// that is away, nor long for one that says nothing, and who of the others is asked next is the
// router's to say. The peer goes on connecting meanwhile, as for any call.
type Replica struct {
	c    *Peer
	mute atomic.Int64 // coarse time until which Silent holds, if nothing is heard
}

// Silence is how long a try may go without a word of the node before the call goes elsewhere; it is never
// more than a quarter of Config.Timeout. Some elections are over by then, and a call asks the others again after a rest, so it
// hears soon of one that is not. If it were longer, calls to a leader that is paused would wait for more than its successor; if it were
// much shorter, puts would leave a leader whose disk is slow, to be sent back to it.
const Silence = 200 * time.Millisecond

// Hurry bounds a try: by patience, and by Silence if that is more.
func (r *Replica) Hurry(l *base.Limit, patience time.Duration) {
	l.Hurry(max(patience, min(Silence, r.c.cfg.Timeout/4)))
}

// Reach is Peer.Session that waits for one attempt to connect, no more.
func (r *Replica) Reach(l *base.Limit) (*session.Session, error) {
	if s := r.c.current.Load(); s != nil && !s.IsDown() {
		return s, nil
	}
	return r.c.conn.wait(l, true)
}

// Away reports whether there is no session, and why is more than that none was asked for yet: it was
// lost, or an attempt has failed or takes long.
func (r *Replica) Away() bool {
	if s := r.c.current.Load(); s != nil {
		return s.IsDown()
	}
	k := &r.c.conn
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.lost.IsZero() && (k.last != nil || k.lastErr != nil || time.Since(k.lost) > backoffCalls)
}

// Mute notes that a try has ended without a word of the node.
func (r *Replica) Mute() { r.mute.Store(r.c.Clock.Coarse() + int64(Muted)) }

// Muted is for how long a node that gave no word counts as silent. With Silence it is twice as long as an election takes at most, so that
// whoever leads instead is elected by then, as a rule.
const Muted = 3 * Silence

// Silent reports whether a try has ended so a moment ago, and nothing was heard of the node since. Whoever leads instead is elected in that time.
func (r *Replica) Silent() bool {
	until := r.mute.Load()
	if until == 0 || r.c.Clock.Coarse() > until {
		return false
	}
	s := r.c.current.Load()
	return s == nil || s.Heard() <= until-int64(Muted)
}

// Seek has the peer look for its node as if a call waited, for a while.
func (r *Replica) Seek() {
	k := &r.c.conn
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := r.c.current.Load(); k.closed || s != nil && !s.IsDown() {
		return
	}
	k.sought = time.Now()
	select {
	case k.called <- struct{}{}:
	default:
	}
	k.beginLocked()
}

// Fail makes the *Error of a try. A deadline that has passed in it is no timeout of the call yet, and is
// not counted.
func (r *Replica) Fail(op string, key []byte, server string, err error) error {
	if e := (*base.Error)(nil); err == nil || errors.As(err, &e) {
		return err
	}
	if !errors.Is(err, base.ErrOutcomeUnknown) && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, base.ErrLate)) {
		err = base.Because(base.ErrTimeout, err)
	}
	return &base.Error{Op: op, Server: server, Node: r.c.Node, Key: base.QuoteKey(key), Err: err}
}
