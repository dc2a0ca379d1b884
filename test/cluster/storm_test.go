package cluster

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestStorm lets processes and links fail at random, both at the same time and
// whichever node it is: the test does not demand that any node answers meanwhile,
// but no answer is wrong, every call ends, and when it is over every node comes
// back.
func TestStorm(t *testing.T) {
	if testing.Short() {
		t.Skip("kills nodes and cuts links: make cluster-test")
	}
	parallel(t)
	w := newWorld(t)
	d := newDrill(w.born())
	d.run("storm", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(*secondsFlag)*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		var processes, links error
		wg.Go(func() { processes = d.stormProcesses(ctx, rand.New(rand.NewPCG(*seedFlag, 1))) })
		wg.Go(func() { links = d.stormLinks(ctx, rand.New(rand.NewPCG(*seedFlag, 2)), w) })
		wg.Wait()
		if err := errors.Join(processes, links); err != nil {
			t.Fatalf("seed %d: %v", *seedFlag, err)
		}
		d.allWell(t, "after the storm")
		d.awaitAlive(t, d.east())
	})
	d.end()
}

// upTo is a random time.
func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }

// stormProcesses kills, stops, restarts and asks for new rkeys until the context
// ends, and leaves every node running.
func (d *drill) stormProcesses(ctx context.Context, rng *rand.Rand) error {
	start := func(s *Server) error { return s.Start(d.t.Context()) }
	for ctx.Err() == nil {
		s := d.Nodes[rng.IntN(len(d.Nodes))]
		var err error
		switch rng.IntN(4) {
		case 0:
			err = s.Kill()
			pause(ctx, upTo(rng, 1500*time.Millisecond))
			err = errors.Join(err, start(s))
		case 1:
			err = s.Signal(syscall.SIGSTOP)
			pause(ctx, upTo(rng, 3*d.opt.Lease))
			err = errors.Join(err, s.Signal(syscall.SIGCONT))
		case 2:
			if err = s.Stop(patience); err == nil {
				err = start(s)
			}
		case 3:
			// Of what is away at the moment it fails, and says so.
			_, _, _ = d.kvclient(d.t, d.east(), "--server", s.Addr(), "--timeout", "3s", "admin", "rotate-rkeys", "--all")
		}
		if err != nil {
			return err
		}
		pause(ctx, upTo(rng, 1500*time.Millisecond))
	}
	return nil
}

// stormLinks cuts links at random until the context ends, and heals them.
func (d *drill) stormLinks(ctx context.Context, rng *rand.Rand, w *world) error {
	for ctx.Err() == nil {
		for range 1 + rng.IntN(3) {
			from, to := names[rng.IntN(3)], names[rng.IntN(3)] // hosts of nodes
			if rng.IntN(2) == 0 {
				from = clientHosts[rng.IntN(len(clientHosts))]
			}
			if rng.IntN(2) == 0 {
				from, to = to, from
			}
			if from == to {
				continue
			}
			var err error
			switch what := rng.IntN(4); {
			case what == 0:
				err = d.net.Cut(from, to)
			case what == 1:
				err = d.net.CutOneWay(from, to)
			case w.net.Kind() != "namespaces": // it cannot do the rest
			case what == 2:
				err = d.net.Cut(from, to, []uint16{GossipPort, DataPort}[rng.IntN(2)])
			default:
				err = d.net.Delay(from, to, upTo(rng, 100*time.Millisecond))
			}
			if err != nil {
				return err
			}
		}
		pause(ctx, upTo(rng, 4*time.Second))
		if err := d.net.Heal(); err != nil {
			return err
		}
		pause(ctx, upTo(rng, 2*time.Second))
	}
	return d.net.Heal()
}
