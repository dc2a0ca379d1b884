package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A source is where a watch of a cluster gets pages from: a node, or where shards have replicas a group, which
// some node leads. Each has cursors of its own. It is used by one goroutine at a time.
type source struct {
	f     *route.Router
	share route.Share
	name  string                   // of its cursor in a Position
	wg    *sync.WaitGroup          // of the goroutines that tell; nil: nobody is told
	told  map[*peer.Peer]time.Time // the replicas that did not lead, and when they were
}

const (
	// groupPoll is for how long the leader of a group is asked to wait for an event. It is short, because a leader that
	// says nothing is left after twice as long.
	groupPoll = 1250 * time.Millisecond
	// tellEvery is how often the replicas that do not lead are told that somebody watches, so that they keep events for the watch to
	// go on there. They do for 10 minutes.
	tellEvery = 3 * time.Minute
)

// sources are all that there are.
func sources(ctx context.Context, f *route.Router) ([]*source, error) {
	shares, err := route.Shares(ctx, f)
	if err != nil {
		return nil, err
	}
	list := make([]*source, len(shares))
	for i, s := range shares {
		list[i] = &source{f: f, share: s, name: s.Node()}
		if s.Group != 0 {
			list[i].name = groupName(s.Group)
		}
	}
	return list, nil
}

// poll asks once; see the function of that name. Of a group it is as a get: by whoever leads.
func (q *source) poll(ctx context.Context, prefix []byte, opts WatchOptions) (page eventPage, err error) {
	if q.share.Group == 0 {
		p, err := q.share.At(q.f)
		if err != nil {
			return page, err
		}
		return poll(ctx, p, prefix, opts)
	}
	var way route.Reroute
	defer way.End()
	begun, pause, hurry := time.Now(), base.RetryFirst, false
	for {
		p, err := q.share.At(q.f)
		if err == nil {
			q.tell(ctx, p, prefix)
			page, err = q.pollLed(ctx, p, way.PatienceAt(p), prefix, opts, hurry)
		}
		switch {
		case err == nil:
			return page, nil
		case errors.Is(err, ErrOverloaded) && time.Since(begun) < q.f.Config().Timeout:
			// So many wait at the node that this one cannot: it asks now and then.
			if hurry = true; base.Pause(ctx, pause) {
				pause = min(2*pause, base.RetryMost)
				continue
			}
		}
		next := q.share.Again(ctx, q.f, &way, p, err)
		if next == nil {
			return page, q.f.Fail("watch", prefix, way.Because(err))
		}
		ctx = next
	}
}

// pollLed is one try at a replica.
func (q *source) pollLed(ctx context.Context, p *peer.Peer, patience time.Duration, prefix []byte, opts WatchOptions, hurry bool) (page eventPage, err error) {
	l := p.Begin(ctx)
	p.Replica.Hurry(&l, max(patience, 2*groupPoll))
	at, err := p.Replica.Reach(&l)
	if err != nil {
		return page, p.Replica.Fail("watch", prefix, "", err)
	}
	page, err = pollOnce(p, &l, at, pollAt{node: q.name, group: q.share.Group, most: groupPoll}, prefix, opts, hurry)
	if base.Again(err) {
		p.Counts().RetryLost.Add(1)
		p.Settle(&l, at)
	}
	return page, p.Replica.Fail("watch", prefix, at.Addr, route.PutOff(err))
}

// tell has the replicas that do not lead keep events, if that was long ago, or they were none of the group's then: each is asked for events, which it refuses.
func (q *source) tell(ctx context.Context, leads *peer.Peer, prefix []byte) {
	if q.wg == nil {
		return
	}
	told := make(map[*peer.Peer]time.Time) // without those that have left
	for _, p := range q.share.Others(q.f, leads) {
		if at, was := q.told[p]; was && time.Since(at) < tellEvery {
			told[p] = at
			continue
		}
		told[p] = time.Now()
		q.wg.Go(func() {
			l := p.Begin(ctx)
			p.Replica.Hurry(&l, 0)
			at, err := p.Replica.Reach(&l)
			if err != nil {
				return // it keeps them anyhow when it has just been started
			}
			if sl := at.TryOpenLeaving(&l, 1); sl != nil {
				if r, err := sl.Call(&l, wire.AppendWatch(sl.Buf[:0], sl.ID(), wire.Watch{Group: q.share.Group, Prefix: prefix})); err == nil {
					r.Done()
				}
			}
		})
	}
	if at, was := q.told[leads]; was {
		told[leads] = at // it may not lead for long
	}
	q.told = told
}
