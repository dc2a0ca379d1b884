package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/counters"
	"github.com/rdmakv/rdmakv/bench/compare/servers"
	"github.com/rdmakv/rdmakv/client"
)

// A crew is the workers of a measurement.
type crew []*worker

// each gives every worker an order, side by side, and adds up the answers.
func (c crew) each(d func(i int) order) (sum answer, err error) {
	errs := make([]error, len(c))
	answers := make([]answer, len(c))
	var wg sync.WaitGroup
	for i, w := range c {
		wg.Go(func() { answers[i], errs[i] = w.do(d(i)) })
	}
	wg.Wait()
	for _, a := range answers {
		sum.Reads += a.Reads
		sum.Renewals += a.Renewals
		sum.Process.Resident += a.Process.Resident
		sum.Process.Files += a.Process.Files
		sum.Process.Goroutines += a.Process.Goroutines
	}
	return sum, errors.Join(errs...)
}

func (c crew) look() (answer, error) { return c.each(func(int) order { return order{} }) }

// cpu is the processor time of all workers.
func (c crew) cpu() (sum time.Duration, err error) {
	for _, w := range c {
		d, err := servers.CPU(w.cmd.Process.Pid)
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}

// measureSessions opens so many sessions of one server, and lets them be.
func measureSessions(ctx context.Context, o options, fabric string, sessions int) (r sessionResult, err error) {
	r = sessionResult{Measured: time.Now().UTC(), Fabric: fabric, Sessions: sessions, Workers: (sessions + perWorker - 1) / perWorker}
	// By one fabric alone: fabrics share the receives, and 4,000 sessions of one of two lack some.
	n, err := start(ctx, o, minLimit, fabric)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	c, err := n.connect(ctx, fabric) // which asks for counters, and is taken off
	if err != nil {
		return r, err
	}
	defer c.Close()
	if err := c.Put(ctx, keys().Append(nil, 0), make([]byte, valueBytes)); err != nil {
		return r, err
	}
	var team crew
	defer func() {
		for _, w := range team {
			err = errors.Join(err, w.dismiss())
		}
	}()
	for range r.Workers {
		w, err := hire(ctx)
		if err != nil {
			return r, err
		}
		team = append(team, w)
	}
	serverBefore, before, err := serverOf(ctx, n, c)
	if err != nil {
		return r, err
	}
	clientBefore, err := team.look()
	if err != nil {
		return r, err
	}

	t := n.target(fabric)
	t.LeaseKeep = o.quiet
	begun := time.Now()
	_, err = team.each(func(i int) order {
		return order{Open: sessions/r.Workers + oneIf(i < sessions%r.Workers), Target: t}
	})
	if err != nil {
		return r, fmt.Errorf("opening sessions: %w", err)
	}
	r.Open = time.Since(begun).Seconds()
	o.say("%d sessions over %s: open after %.1f s; looking at them for %v", sessions, fabric, r.Open, (2*o.turn + o.quiet).Round(time.Second))
	if _, err := team.each(func(int) order { return order{Get: true} }); err != nil {
		return r, err
	}
	if r.Kept, err = r.idle(ctx, o, n, team); err != nil {
		return r, err
	}
	if err := sleep(ctx, o.quiet); err != nil {
		return r, err
	}
	if r.Quiet, err = r.idle(ctx, o, n, team); err != nil {
		return r, err
	}
	serverAfter, after, err := serverOf(ctx, n, c)
	if err != nil {
		return r, err
	}
	clientAfter, err := team.look()
	if err != nil {
		return r, err
	}
	if got := after.Sessions - before.Sessions; got != sessions {
		return r, fmt.Errorf("the server has %d sessions more, and %d were opened", got, sessions)
	}
	r.Server, r.Client = serverAfter.less(serverBefore), clientAfter.Process.less(clientBefore.Process)
	r.Receives = after.Memory["receives"] - before.Memory["receives"]
	r.Replies = after.Memory["replies"] - before.Memory["replies"]
	r.Credits = after.Credits * sessions / after.Sessions // the one that asks has some, too
	o.say("%d sessions over %s: each takes %d B resident and %.2f goroutines in the server, %d B and %.2f in the client", sessions, fabric,
		r.Server.Resident/int64(sessions), per(r.Server.Goroutines, sessions), r.Client.Resident/int64(sessions), per(r.Client.Goroutines, sessions))
	return r, nil
}

func oneIf(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func per(n, all int) float64 { return float64(n) / float64(all) }

// serverOf is what the server takes, and what it counts.
func serverOf(ctx context.Context, n *node, c *client.Client) (p process, st counters.Server, err error) {
	if st, err = counters.Of(ctx, c); err != nil {
		return p, st, err
	}
	p, err = n.process()
	p.Goroutines = st.Goroutines
	return p, st, err
}

// idle measures a while in which nobody asks for anything.
func (r *sessionResult) idle(ctx context.Context, o options, n *node, team crew) (d idle, err error) {
	a, err := team.look()
	if err != nil {
		return d, err
	}
	begun := time.Now()
	server, err := servers.CPU(n.PID())
	if err != nil {
		return d, err
	}
	own, err := team.cpu()
	if err != nil {
		return d, err
	}
	if err := sleep(ctx, o.turn); err != nil {
		return d, err
	}
	server2, err := servers.CPU(n.PID())
	if err != nil {
		return d, err
	}
	own2, err := team.cpu()
	if err != nil {
		return d, err
	}
	took := time.Since(begun).Seconds()
	b, err := team.look()
	if err != nil {
		return d, err
	}
	each := took * float64(r.Sessions)
	return idle{
		ServerCPU: (server2 - server).Seconds() / took, ClientCPU: (own2 - own).Seconds() / took,
		Reads: float64(b.Reads-a.Reads) / each, Renewals: float64(b.Renewals-a.Renewals) / each,
	}, nil
}
