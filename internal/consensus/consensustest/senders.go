package consensustest

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

// Scenes of those who send snapshots: one is slow on purpose, one is deposed meanwhile.

// maxOfSender is how many snapshots a node receives of one other node at a time, at most, and placePatience for how long the next one waits.
const (
	maxOfSender   = 2
	placePatience = 30 * time.Second
)

// A drip is the data of a snapshot of which next to nothing comes, until it breaks off.
type drip struct {
	ctx  context.Context
	long time.Duration // until then
	n    *network
	who  string
	in   bool // it is counted
}

// count counts one more that is read, or one less.
func (d *drip) count(n int) {
	d.n.mu.Lock()
	defer d.n.mu.Unlock()
	d.n.received.add(d.who, n)
}

// Read gives one byte, at the end of what its receiver would wait.
func (d *drip) Read(b []byte) (n int, err error) {
	if !d.in {
		d.in = true
		d.count(1)
	}
	defer func() {
		if err != nil {
			d.count(-1)
		}
	}()
	wait := min(d.long, 29*time.Second)
	d.long -= wait
	select {
	case <-time.After(wait):
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	}
	if d.long <= 0 {
		return 0, errBroken
	}
	b[0] = ' '
	return 1, nil
}

// drips has a node receive snapshots of groups as if another one had sent them, each of which takes so long, and returns what comes of each, and when.
func (w *World) drips(to *Node, from string, long time.Duration, groups ...consensus.GroupID) (errs []error, took []time.Duration) {
	errs, took = make([]error, len(groups)), make([]time.Duration, len(groups))
	began := time.Now()
	var all sync.WaitGroup
	for i, g := range groups {
		s, err := to.engineOf().Status(g)
		if err != nil {
			w.t.Fatal(err)
		}
		h := consensus.SnapshotHead{Group: g, To: s.ID, Term: s.Term, State: consensus.State{Applied: 1 << 20, Term: s.Term, Config: s.Config}}
		for _, m := range s.Config.Voters {
			if m.Node == from {
				h.From = m.ID
			}
		}
		all.Go(func() {
			d := &drip{ctx: context.Background(), long: long, n: w.net, who: "drips"}
			errs[i] = to.endpoint().Receive(d.ctx, from, h, d)
			took[i] = time.Since(began)
		})
	}
	all.Wait()
	return errs, took
}

// slowSender: a node that lets next to nothing come of its snapshots does not keep those of others from arriving, and whose last snapshots have not ended for
// the receiver yet waits, and is not refused.
func slowSender(w *World) {
	const groups = 8
	away := w.absentee(groups)
	evil := w.node(w.names[1])
	evil.crash(0, false) // the scene speaks for it
	for g := range groups {
		w.put(group+consensus.GroupID(g), "fourth")
	}
	w.net.isolate(away.name, true)
	away.boot()
	held := []consensus.GroupID{group, group + 1, group + 2, group + 3}
	var errs []error
	var took []time.Duration
	var evils sync.WaitGroup
	evils.Go(func() { errs, took = w.drips(away, evil.name, placePatience+5*time.Second, held...) })
	time.Sleep(time.Second)
	w.net.heal()
	began := time.Now()
	for g := len(held); g < groups; g++ {
		w.arrives(away, group+consensus.GroupID(g), 5*time.Second)
	}
	w.t.Logf("%d snapshots of others have arrived in %v", groups-len(held), time.Since(began))
	evils.Wait()
	w.net.mu.Lock()
	if n := w.net.received.most["drips"]; n != maxOfSender {
		w.errorf("%d snapshots of one sender were received at a time", n)
	}
	w.net.mu.Unlock()
	late := 0
	for i, err := range errs {
		switch {
		case errors.Is(err, errBroken): // it had a place
		case !errors.Is(err, consensus.ErrBusy):
			w.errorf("a snapshot without a place: %v", err)
		case took[i] < placePatience || took[i] > placePatience+time.Second:
			w.errorf("a snapshot has waited %v for a place", took[i])
		default:
			late++
		}
	}
	if late != len(held)-maxOfSender {
		w.errorf("%d of %d snapshots had no place: %v", late, len(held), errs)
	}
	evil.boot()
	for g := range groups {
		w.settle(group + consensus.GroupID(g))
	}
	errs, took = w.drips(away, evil.name, time.Second, held...)
	for i, err := range errs {
		if !errors.Is(err, errBroken) || took[i] > 3*time.Second {
			w.errorf("a snapshot that waits for those before it: %v, after %v", err, took[i])
		}
	}
}

// arrives waits until a node has what the leader of a group has.
func (w *World) arrives(to *Node, g consensus.GroupID, within time.Duration) {
	w.t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(10 * time.Millisecond) {
		want, err := w.leader(g).State()
		if err != nil {
			w.t.Fatal(err)
		}
		has, err := to.machine(g).State()
		if err == nil && has.Applied >= want.Applied {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("group %d has not arrived at %s, after %v: it has entry %d of %d%s", g, to.name, within, has.Applied, want.Applied, w.tell(g))
		}
	}
}

// deposedSender: a snapshot that ends because its sender leads no more is no failure: nothing is told of it, and if the sender leads again, the next one is
// sent without a pause.
func deposedSender(w *World) {
	away := w.absentee(1)
	haul := func(d time.Duration) {
		w.net.mu.Lock()
		defer w.net.mu.Unlock()
		w.net.haul = d
	}
	haul(time.Hour)
	away.boot()
	var slowest time.Duration
	for round, sent := 0, 0; round < 8; round++ {
		lead := w.leader(group)
		began := time.Now()
		for w.net.snapshotsSent() == sent {
			if time.Since(began) > 10*time.Second {
				w.t.Fatalf("round %d: no snapshot is sent%s", round, w.tell(group))
			}
			time.Sleep(time.Millisecond)
		}
		slowest, sent = max(slowest, time.Since(began)), w.net.snapshotsSent()
		for _, n := range w.others(lead.node.name) {
			if n == away {
				continue
			}
			ctx, cancel := within(5 * time.Second)
			if err := lead.node.engineOf().Transfer(ctx, group, n.machine(group).id); err != nil {
				w.errorf("transfer: %v", err)
			}
			cancel()
		}
	}
	if slowest > 150*time.Millisecond {
		w.errorf("a leader has sent its snapshot after %v", slowest)
	}
	if n := w.told.count(slog.LevelWarn, "a snapshot did not arrive"); n != 0 {
		w.errorf("%d lines tell of snapshots that did not arrive", n)
	}
	haul(0)
	lead := w.leader(group).node
	lead.crash(0, false) // and with it ends what it sends
	lead.boot()
	w.settle(group)
}

// A lines counts what nodes log. It implements slog.Handler.
type lines struct {
	mu sync.Mutex
	of map[line]int
}

type line struct {
	level slog.Level
	text  string
}

func (l *lines) count(level slog.Level, text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of[line{level, text}]
}

// Enabled implements slog.Handler, like the next ones.
func (l *lines) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of[line{r.Level, r.Message}]++
	return nil
}

func (l *lines) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l *lines) WithGroup(string) slog.Handler      { return l }
