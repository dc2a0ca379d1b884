package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// A node that is asked for a key of another's shard says so, and nothing has
// happened. The client then asks for the map and goes where that leads. Both are
// bounded: a map changes seldom, so who is sent from node to node is being told
// nonsense by one of them.

const (
	maxReroutes  = 8
	rerouteFirst = 10 * time.Millisecond
	rerouteMost  = 200 * time.Millisecond
)

// A rerouting is how far one call has been sent around. The zero value is a call
// that has not been.
type rerouting struct {
	n      int
	pause  time.Duration
	cancel context.CancelFunc
	over   error // why the context ended while the call waited
	away   error // fleet.mapAway, when the call last asked for a map
}

// because makes of an error for want of a map what its caller is told: that those
// who have the map could not be asked, if that is so, and that the call's time was
// over while it waited.
func (r *rerouting) because(err error) error {
	if r.over == nil && r.away == nil || !errors.Is(err, ErrNoMap) {
		return err
	}
	e, inner := (*Error)(nil), err
	if errors.As(err, &e) {
		inner = e.Err
	}
	if r.away != nil {
		inner = r.away
	}
	if r.over != nil {
		inner = &causeError{inner, asTimeout(r.over)}
	}
	if e == nil {
		return inner
	}
	of := *e
	of.Err = inner
	return &of
}

// end gives back what begin took.
func (r *rerouting) end() {
	if r.cancel != nil {
		r.cancel()
	}
}

// again decides whether a call that failed with err may be made again by the map
// in force then, and waits for news as long as it may. It returns the context
// for the rest of the call, nil if there is none.
func (f *fleet) again(ctx context.Context, r *rerouting, err error) context.Context {
	moved := (*movedError)(nil)
	switch {
	case errors.Is(err, ErrOutcomeUnknown): // it may have taken effect where it was
		return nil
	case errors.As(err, &moved), errors.Is(err, ErrNoMap):
	case errors.Is(err, ErrClosed) && f.done.Err() == nil: // the node has left the map
	default:
		return nil
	}
	before := f.routing.Load()
	if before.m != nil {
		r.n++
	}
	if r.n > maxReroutes {
		return nil
	}
	if r.pause == 0 {
		r.pause = rerouteFirst
		if _, ok := ctx.Deadline(); !ok {
			ctx, r.cancel = context.WithTimeout(ctx, f.cfg.Timeout)
		}
	}
	news := f.refresh(ctx, moved.teller())
	r.away = f.mapAway()
	if news != nil && (before.m == nil || ctx.Err() != nil) {
		r.over = ctx.Err()
		return nil
	}
	after := f.routing.Load()
	switch {
	case after.m == nil:
		// Nobody has a map: whoever gives them one may be about to. That is waited
		// for as a server is that is not there yet.
		f.waiting(r.because(ErrNoMap))
	case before.m != nil && before.m.Version == after.m.Version:
		// They do not agree, perhaps for a moment only.
	default:
		return ctx
	}
	rest := r.pause
	r.pause = min(2*r.pause, rerouteMost)
	if !pause(ctx, rest) {
		r.over = ctx.Err()
		return nil
	}
	return ctx
}

// waiting tells who wants to know what a call waits for.
func (f *fleet) waiting(why error) {
	if f.cfg.OnWait != nil {
		f.cfg.OnWait(why)
	}
}

// A movedError is a node's word that the shard of a key is another's.
type movedError struct {
	s       *session // who says so
	version uint64   // of the map that he has
	digest  uint64
	owner   string // by that map
}

func (e *movedError) Error() string {
	return fmt.Sprintf("%v: %q, by version %d of the shard map", ErrMoved, e.owner, e.version)
}

func (e *movedError) Unwrap() error { return ErrMoved }

// teller is the session of who has said so; nil for no error.
func (e *movedError) teller() *session {
	if e == nil {
		return nil
	}
	return e.s
}

// asking is one refresh, and those who wait for it.
type asking struct {
	done chan struct{}
	err  error
}

// refresh brings news of the cluster, from s if it is not nil and alive, else
// from any node that there is a session with, else from Config.Servers. Many who
// want it at a time share one. It fails if nobody could be asked.
func (f *fleet) refresh(ctx context.Context, s *session) error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return ErrClosed
	}
	a := f.asking
	if a == nil {
		a = &asking{done: make(chan struct{})}
		f.asking = a
		f.wg.Go(func() {
			ctx, cancel := context.WithTimeout(f.done, f.cfg.Timeout)
			defer cancel()
			if a.err = f.ask(ctx, s); a.err == nil {
				f.askMapped(ctx)
			}
			f.mu.Lock()
			f.asking = nil
			f.mu.Unlock()
			close(a.done)
		})
	}
	f.mu.Unlock()
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// askPart is how much of a refresh's time one node may take that does not
// answer.
const askPart = 4

func (f *fleet) ask(ctx context.Context, first *session) error {
	sessions := make([]*session, 0, 8)
	if first != nil {
		sessions = append(sessions, first)
	}
	for _, p := range f.routing.Load().peers { // in no order
		if s := p.current.Load(); s != nil && s != first && len(sessions) < cap(sessions) {
			sessions = append(sessions, s)
		}
	}
	var errs []error
	for _, s := range sessions {
		if s.isDown() || s.node == "" {
			continue
		}
		part, cancel := context.WithTimeout(ctx, f.cfg.Timeout/askPart)
		err := s.refreshNews(&patience{c: s.c, ctx: part})
		cancel()
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", s.node, plain(err)))
	}
	if err := f.askServers(ctx); err != nil {
		return errors.Join(append(errs, err)...)
	}
	return nil
}

// mapAway is why no node that has a map, by gossip, could be asked for it; nil if
// there is a map, or nobody is known to have one. It wraps ErrUnavailable.
func (f *fleet) mapAway() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.routing.Load().m != nil {
		return nil
	}
	return f.away
}

// askMapped asks nodes that have a map, by gossip, if those who were asked so far
// have none: a node that cluster init was not told of, or has left out, leads to
// the others, too. What they say is judged as any node's word is. It keeps no peer
// of them: gossip may name ever new ones.
func (f *fleet) askMapped(ctx context.Context) {
	if f.routing.Load().m != nil {
		return
	}
	var have, others []string
	f.mu.Lock()
	for id, seen := range f.members {
		switch {
		case seen.m.MapVersion == 0 || len(seen.m.Endpoints) == 0:
		case seen.m.State == cluster.Alive:
			have = append(have, id)
		default: // that is what the teller thinks; if it is true, the call's error says why
			others = append(others, id)
		}
	}
	f.mu.Unlock()
	have = append(have, others...)
	have = have[:min(len(have), askPart-1)]
	var away fabricErrors
	for _, id := range have {
		part, cancel := context.WithTimeout(ctx, f.cfg.Timeout/askPart)
		err := f.meet(part, f.newPeer(id))
		cancel()
		if f.routing.Load().m != nil {
			return
		}
		if err != nil {
			away = append(away, err)
		}
		f.log.Info("a node that gossip says has a shard map does not tell it", "node", id, "err", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = nil
	if away != nil {
		f.away = fmt.Errorf("%w: the cluster has a shard map, and who has it was not reached: %w", ErrUnavailable, away)
	}
}

// askServers begins anew, with Config.Servers: for the time of one answer.
func (f *fleet) askServers(ctx context.Context) error {
	p := newPeer(f.cfg)
	p.fleet = f
	return f.meet(ctx, p)
}

// meet connects a peer that nobody else has for the time of one answer, and
// closes it.
func (f *fleet) meet(ctx context.Context, p *peer) error {
	defer p.release()
	s, err := p.conn.dialAny(ctx)
	if err != nil {
		return err
	}
	clustered := s.node != ""
	s.fail(errSuperseded)
	<-s.gone
	if !clustered {
		return fmt.Errorf("%w: the server at %s is no node of a cluster", ErrOtherCluster, s.addr)
	}
	return nil
}
