package read

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Many keys that may be as old as d (bounded.go). The groups of the keys are looked at side by side, where no look is new enough. Then the keys are READ at the
// replicas that were looked at, those of one node together, whichever groups they are of:
//
//	keys of groups 3, 7 and 9 ──▶ node a   read for 3 and 9    their items
//	                              node c   read for 7          their items
//
// What has no answer so goes by Many.

// A boundedPart is keys that are READ at one node.
type boundedPart struct {
	seen  *route.Seen // of one of their groups; the session is that of all
	which []int       // indexes of keys
}

// ManyBounded answers many keys, each as it was at some time since d before the call, or as Many does. It fails as Many does.
func ManyBounded(ctx context.Context, f *route.Router, keys [][]byte, results []base.Result, d time.Duration) error {
	if len(keys) == 0 || d == 0 || route.LedOf(f, keys[0]).IsNone() {
		return Many(ctx, f, keys, results)
	}
	for i := range keys {
		results[i].Err = errPending
	}
	if d >= leastBound {
		var wg sync.WaitGroup
		for _, part := range boundedParts(ctx, f, keys, d) {
			wg.Go(func() { getPart(ctx, f, part, keys, results) })
		}
		wg.Wait()
	}
	var rest []int
	for i := range keys {
		if results[i].Err == errPending {
			rest = append(rest, i)
		}
	}
	if len(rest) > 0 {
		some, answers := make([][]byte, len(rest)), make([]base.Result, len(rest))
		for at, i := range rest {
			some[at], answers[at] = keys[i], base.Result{Value: results[i].Value}
			route.LedOf(f, keys[i]).Leader().Counts().FallbackBound.Add(1)
		}
		_ = Many(ctx, f, some, answers) // the answers have their errors
		for at, i := range rest {
			results[i] = answers[at]
			Showed(f, keys[i])
		}
	}
	return partial(results)
}

// boundedParts are the keys whose groups have a replica that is known to be new enough, by the node of that.
func boundedParts(ctx context.Context, f *route.Router, keys [][]byte, d time.Duration) (parts []boundedPart) {
	type team struct {
		led   route.Led
		seen  *route.Seen
		which []int
	}
	var teams []*team
	of := map[uint32]*team{}
	for i, key := range keys {
		if base.CheckKey(key) != nil {
			continue // Many says so
		}
		led := route.LedOf(f, key)
		t := of[led.Group()]
		if t == nil {
			t = &team{led: led}
			of[led.Group()] = t
			teams = append(teams, t)
		}
		t.which = append(t.which, i)
	}
	var wg sync.WaitGroup
	for _, t := range teams {
		since := t.led.Fresh().Now() - int64(d)
		if t.led.Fresh().Since(since) != nil {
			t.seen = lookedSince(ctx, t.led, since, d) // it waits for nothing, and renews
			continue
		}
		wg.Go(func() { t.seen = lookedSince(ctx, t.led, since, d) })
	}
	wg.Wait()
next:
	for _, t := range teams {
		if t.seen == nil {
			continue
		}
		for i := range parts {
			if parts[i].seen.Session == t.seen.Session {
				parts[i].which = append(parts[i].which, t.which...)
				continue next
			}
		}
		parts = append(parts, boundedPart{t.seen, t.which})
	}
	return parts
}

// getPart gets keys at the node that was looked at. Those that have no answer there stay pending.
func getPart(ctx context.Context, f *route.Router, part boundedPart, keys [][]byte, results []base.Result) {
	c, s := part.seen.Peer, part.seen.Session
	if s.Mapped() { // a READ is a copy
		for _, i := range part.which {
			r, led := &results[i], route.LedOf(f, keys[i])
			if s.IsDown() || !led.Fresh().Reads(s) { // one key before this one has waited in vain
				continue
			}
			w := Query{N: -1, Dst: r.Value[:0]}
			if err := getBounded(ctx, led, part.seen, "get", keys[i], &w); err == nil {
				if r.Value, r.Err = w.Dst, nil; r.Value == nil {
					r.Value = []byte{}
				}
			} else if errors.Is(err, base.ErrNotFound) {
				r.Err = err
			}
		}
		return
	}
	for begin := 0; begin < len(part.which); begin += groupKeys {
		which := part.which[begin:min(begin+groupKeys, len(part.which))]
		p := c.Begin(ctx)
		p.Hurry(boundedPatience)
		within, cancel := p.Bounded()
		p.Ctx = within
		rest, learned := groupOn(c, nil, true, &p, s, keys, results, which)
		if learned { // a newer view: once more
			rest, _ = groupOn(c, nil, true, &p, s, keys, results, rest)
		}
		late := within.Err() != nil
		cancel()
		for _, i := range which {
			switch r, fresh := &results[i], route.LedOf(f, keys[i]).Fresh(); {
			case r.Err == errPending:
			case !fresh.Reads(s), layout.IsHead(r.Value): // R28; the parts of a value are got without a bound
				r.Value, r.Err = r.Value[:0], errPending
			default:
				c.Counts().Bounded.Add(1)
			}
		}
		if len(rest) > 0 && (late || s.IsDown()) && ctx.Err() == nil { // it was lost, or does not answer
			s.Groups.WasSlow()
			for _, i := range which {
				route.LedOf(f, keys[i]).Fresh().Leave(s)
			}
			return
		}
	}
}
