package peer

import (
	"context"
	"errors"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/session"
)

// An attempt to connect may hang for all of its time: a machine that is gone
// sends no refusal, and what the kernel sent on our behalf while the link was
// down it sends again only after a second or more. So while an attempt hangs and
// calls wait, others are made beside it, on the way that worked last: a new one
// each probeEvery, each given up after probeFor. The first that succeeds wins.
//
//	attempt  ├────────────────────────────────────────▶ Config.DialTimeout
//	probes        ├──────┤
//	                 ├──────┤
//	                    ├──────┤
//	                       ├──▶ server is back: session
//
// The patient one stays, because a server that is only slow must not be asked
// anew each time before it could answer.

const (
	ProbeEvery = 100 * time.Millisecond
	probeFor   = 300 * time.Millisecond
	MaxProbes  = 3
	// probeSlower: from an outage of probeSlower·probeEvery = 30 s on, the time
	// between two probes grows with it, up to backoffMax: a server that is stopped
	// keeps a connection request of each.
	probeSlower = 300
)

// errSuperseded ends a session that came second.
var ErrSuperseded = errors.New("another connection was made first")

// race makes one attempt, with probes beside it while it hangs.
func (k *connector) race(ctx context.Context) (*session.Session, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of those that have not won
	type result struct {
		s     *session.Session
		err   error
		probe bool
	}
	results := make(chan result)
	try := func(probe bool, dial func(context.Context) (*session.Session, error)) {
		k.c.wg.Go(func() {
			s, err := dial(ctx)
			select {
			case results <- result{s, err, probe}:
			case <-ctx.Done():
				if s != nil {
					s.Fail(ErrSuperseded)
					<-s.Gone
				}
			}
		})
	}
	try(false, k.dialAny)
	probes := 0
	timer := time.NewTimer(ProbeEvery)
	defer timer.Stop()
	for {
		select {
		case r := <-results:
			if r.err == nil || !r.probe {
				return r.s, r.err
			}
			probes--
		case <-timer.C:
			last, next := k.probing()
			timer.Reset(next)
			if last != nil && probes < MaxProbes {
				probes++
				try(true, func(ctx context.Context) (*session.Session, error) { return k.probe(ctx, last) })
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// probing returns the session whose way is to be probed, nil if no call waits,
// and when to ask again.
func (k *connector) probing() (last *session.Session, next time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.wantedLocked() {
		last = k.last
	}
	return last, min(max(ProbeEvery, time.Since(k.lost)/probeSlower), backoffMax)
}

// probe is a short attempt on the way that an earlier session took.
func (k *connector) probe(ctx context.Context, last *session.Session) (*session.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, probeFor)
	defer cancel()
	d := dialing{k: k, addr: last.Addr, fabric: last.Way.Fabric, left: 1}
	s, _, err := d.dialWay(ctx, ctx, last.Way)
	if err == nil {
		s.Skipped = last.Skipped
	}
	return s, err
}
