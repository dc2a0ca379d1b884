package route

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/cluster"
)

// A node that is asked for a key of another's shard says so, and nothing has
// happened. The client then asks for the map and goes where that leads. Both are
// bounded: a map changes seldom, so a call that is sent from node to node is told
// nonsense by one of them.

const (
	maxReroutes  = 8
	rerouteFirst = 10 * time.Millisecond
	rerouteMost  = 200 * time.Millisecond
)

// A Reroute is how far one call has been sent around. The zero value is a call
// that has not been.
type Reroute struct {
	n      int
	pause  time.Duration
	cancel context.CancelFunc
	over   error // why the context ended while the call waited
	away   error // Router.mapAway, when the call last asked for a map

	// Among the replicas of a group (leaders.go).
	led      bool // it was sent there
	followed int  // how often it went at once to where it was told
	rest     time.Duration
	patience time.Duration
	silent   []*peer.Peer // gave no word in a try of this call
}

// PatienceAt is how long the next try may take at a replica at least; 0: it was not silent. One that was, and leads still as others say, may be slow.
// The others get no more time than ever: one that has died, too, would hold the call for as long.
func (r *Reroute) PatienceAt(p *peer.Peer) time.Duration {
	if slices.Contains(r.silent, p) {
		return r.patience
	}
	return 0
}

// wasSilent notes that a peer has failed with err.
func (r *Reroute) wasSilent(p *peer.Peer, err error) {
	if p != nil && base.TimeOver(err) && !slices.Contains(r.silent, p) {
		r.silent = append(r.silent, p)
	}
}

// bound is ctx with a deadline.
func (r *Reroute) bound(ctx context.Context, timeout time.Duration) context.Context {
	if _, ok := ctx.Deadline(); !ok {
		ctx, r.cancel = context.WithTimeout(ctx, timeout)
	}
	return ctx
}

// Because makes of an error for want of a map what its caller is told: that the
// nodes which have the map could not be asked, if that is so, and that the call's time was
// over while it waited; likewise of one that looked for a leader.
func (r *Reroute) Because(err error) error {
	if r.led && r.over != nil {
		return base.Reasoned(err, func(why error) error { return unled(why, r.over) })
	}
	if r.over == nil && r.away == nil || !errors.Is(err, base.ErrNoMap) {
		return err
	}
	e, inner := (*base.Error)(nil), err
	if errors.As(err, &e) {
		inner = e.Err
	}
	if r.away != nil {
		inner = r.away
	}
	if r.over != nil {
		inner = base.Caused(inner, base.AsTimeout(r.over))
	}
	if e == nil {
		return inner
	}
	of := *e
	of.Err = inner
	return &of
}

// End gives back what begin took.
func (r *Reroute) End() {
	if r.cancel != nil {
		r.cancel()
	}
}

// Again decides whether a call for key that failed with err at p, nil if it came to none, may be made
// again where Owner leads then, and waits for news as long as it may. It returns the
// context for the rest of the call, nil if there is none.
func (r *Router) Again(ctx context.Context, way *Reroute, p *peer.Peer, key []byte, err error) context.Context {
	if r.Only() != nil { // there is nowhere else
		return nil
	}
	way.wasSilent(p, err)
	next := way.again(ctx, r, r.table.Load().heed(ctx, p, key, err), err)
	if next == nil && p != nil && p.Led() && errors.Is(way.over, context.DeadlineExceeded) {
		p.Counts().Timeouts.Add(1) // of the call, not of each try
	}
	return next
}

// again is Router.Again for a call of which is known what becomes of it.
func (r *Reroute) again(ctx context.Context, f *Router, next step, err error) context.Context {
	if f.done.Err() != nil {
		return nil
	}
	switch next {
	case stepOver:
		return nil
	case stepRest, stepLed:
		return r.onward(ctx, f.cfg.Timeout, next, base.TimeOver(err))
	}
	moved, led := (*session.Moved)(nil), (*session.NotLeader)(nil)
	teller := (*session.Session)(nil)
	switch {
	case errors.Is(err, base.ErrOutcomeUnknown): // it may have taken effect where it was
		return nil
	case errors.As(err, &moved):
		teller = moved.Teller()
	case errors.Is(err, base.ErrNoMap):
	case errors.As(err, &led): // of a map that is newer than ours
		teller = led.Session
	case errors.Is(err, base.ErrClosed) && f.done.Err() == nil: // the node has left the map
	default:
		return nil
	}
	before := f.table.Load()
	if before.m != nil {
		r.n++
	}
	if r.n > maxReroutes {
		return nil
	}
	if r.pause == 0 {
		r.pause = rerouteFirst
		ctx = r.bound(ctx, f.cfg.Timeout)
	}
	news := f.Refresh(ctx, teller)
	if m := f.Map(); news == nil && moved != nil && m != nil && m.Version < moved.Version {
		news = f.Refresh(ctx, moved.Teller()) // the first one was another call's, and went to a node that has an older map
	}
	r.away = f.mapAway()
	if news != nil && (before.m == nil || ctx.Err() != nil) {
		r.over = ctx.Err()
		return nil
	}
	after := f.table.Load()
	switch {
	case after.m == nil:
		// No node has a map, and an operator may be about to give them one. The call
		// waits for that as for a server that is not there yet.
		tellWaiting(f, r.Because(base.ErrNoMap))
	case before.m != nil && before.m.Version == after.m.Version:
		// They do not agree, perhaps for a moment only.
	default:
		return ctx
	}
	rest := r.pause
	r.pause = min(2*r.pause, rerouteMost)
	if !base.Pause(ctx, rest) {
		r.over = ctx.Err()
		return nil
	}
	return ctx
}

// tellWaiting tells Config.OnWait what a call waits for.
func tellWaiting(f *Router, why error) {
	if f.cfg.OnWait != nil {
		f.cfg.OnWait(why)
	}
}

// A refresh is a look for news that is under way, for all calls that wait for it.
type refresh struct {
	done chan struct{}
	err  error
}

// Refresh brings news of the cluster, from s if it is not nil and alive, else
// from any node that there is a session with, else from Config.Servers. Calls that
// need it at the same time share one. It fails if no node could be asked.
func (r *Router) Refresh(ctx context.Context, s *session.Session) error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return base.ErrClosed
	}
	a := r.refreshing
	if a == nil {
		a = &refresh{done: make(chan struct{})}
		r.refreshing = a
		r.wg.Go(func() {
			ctx, cancel := context.WithTimeout(r.done, r.cfg.Timeout)
			defer cancel()
			if a.err = r.ask(ctx, s); a.err == nil {
				r.askMapped(ctx)
			}
			r.mu.Lock()
			r.refreshing = nil
			r.mu.Unlock()
			close(a.done)
		})
	}
	r.mu.Unlock()
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

func (r *Router) ask(ctx context.Context, first *session.Session) error {
	sessions := make([]*session.Session, 0, 8)
	if first != nil {
		sessions = append(sessions, first)
	}
	for _, p := range r.table.Load().peers { // in no order
		if s := p.Current(); s != nil && s != first && len(sessions) < cap(sessions) {
			sessions = append(sessions, s)
		}
	}
	var errs []error
	for _, s := range sessions {
		if s.IsDown() || s.Node == "" {
			continue
		}
		part, cancel := context.WithTimeout(ctx, r.cfg.Timeout/askPart)
		p := s.Clock.Unlimited(part)
		err := peer.RefreshNews(r, &p, s)
		cancel()
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", s.Node, base.Plain(err)))
	}
	if err := askServers(ctx, r); err != nil {
		return errors.Join(append(errs, err)...)
	}
	return nil
}

// mapAway is why no node that has a map, by gossip, could be asked for it; nil if
// there is a map, or no node is known to have one. It wraps ErrUnavailable.
func (r *Router) mapAway() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.table.Load().m != nil {
		return nil
	}
	return r.away
}

// askMapped asks nodes that have a map, by gossip, if the nodes that were asked so far
// have none: a node that cluster init was not told of, or has left out, leads to
// the others, too. What they say is judged as any node's word is. It keeps no peer
// of them: gossip may name ever new ones.
func (r *Router) askMapped(ctx context.Context) {
	if r.table.Load().m != nil {
		return
	}
	var have, others []string
	r.mu.Lock()
	for id, seen := range r.members {
		switch {
		case seen.m.MapVersion == 0 || len(seen.m.Endpoints) == 0:
		case seen.m.State == cluster.Alive:
			have = append(have, id)
		default: // that is what the teller thinks; if it is true, the call's error says why
			others = append(others, id)
		}
	}
	r.mu.Unlock()
	have = append(have, others...)
	have = have[:min(len(have), askPart-1)]
	var away base.FabricErrors
	for _, id := range have {
		part, cancel := context.WithTimeout(ctx, r.cfg.Timeout/askPart)
		r.mu.Lock()
		p := newPeer(r, id, nil)
		r.mu.Unlock()
		err := meet(part, r, p)
		cancel()
		if r.table.Load().m != nil {
			return
		}
		if err != nil {
			away = append(away, err)
		}
		r.log.Info("a node that gossip says has a shard map does not tell it", "node", id, "err", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = nil
	if away != nil {
		r.away = fmt.Errorf("%w: the cluster has a shard map, and who has it was not reached: %w", base.ErrUnavailable, away)
	}
}

// askServers begins anew, with Config.Servers: for the time of one answer.
func askServers(ctx context.Context, f *Router) error {
	f.mu.Lock()
	client := f.client
	f.mu.Unlock()
	return meet(ctx, f, peer.New(f.cfg, f.world, "", f, client))
}

// meet connects a peer that no table has for the time of one answer, and
// closes it.
func meet(ctx context.Context, f *Router, p *peer.Peer) error {
	defer p.Release()
	s, err := p.DialOnce(ctx)
	if err != nil {
		return err
	}
	clustered := s.Node != ""
	s.Fail(peer.ErrSuperseded)
	<-s.Gone
	if !clustered {
		return fmt.Errorf("%w: the server at %s is no node of a cluster", base.ErrOtherCluster, s.Addr)
	}
	return nil
}
