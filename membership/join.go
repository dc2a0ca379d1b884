package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// A joiner reaches for others, and mends what gossip has not brought.
type joiner struct {
	m       *Members
	told    map[string]told // by seed; run's own
	retry   chan struct{}   // others have us at an old address
	settled chan struct{}   // closed by settle
}

func newJoiner(m *Members) *joiner {
	return &joiner{m, map[string]told{}, make(chan struct{}, 1), make(chan struct{})}
}

// run tries to reach the seeds that are not members yet, and members that are
// called dead: after a long cut, neither side would look for the other by itself.
// It goes on until Close, at intervals with jitter. The first intervals are
// short, because nodes that are started together do not begin to listen at the
// same time.
func (j *joiner) run() {
	begun, wait := time.Now(), time.Duration(0)
	moved, settled := false, false // moved: others have us at an old address
	for round := 0; ; round++ {
		select {
		case <-time.After(wait):
		case <-j.retry:
			moved = true
			wait = j.m.time.rejoin / 2
			round--
			continue
		case <-j.m.ctx.Done():
			return
		}
		again := moved
		moved = false
		away := false // a seed did not answer
		for _, seed := range j.m.cfg.Join {
			if j.m.ctx.Err() != nil {
				return
			}
			answered, err := j.reach(seed, again)
			if answered && !settled {
				settled = true
				j.settle(j.m.ctx)
			}
			away = away || err != nil && !turnedAway(err)
		}
		if !settled {
			settled = true
			j.settle(j.m.ctx)
		}
		if away && time.Since(begun) < hasteFor {
			wait = hastePause/2 + rand.N(hastePause)
			round-- // it is for the seeds alone
			continue
		}
		if round > 0 {
			j.revive()
			j.mend()
		}
		if round > 0 && round <= mingleRounds {
			j.mingle()
		}
		wait = j.m.time.rejoin/2 + rand.N(j.m.time.rejoin)
	}
}

// For this long after its start a node tries seeds that do not answer again at
// once. Until a seed has answered, neither side knows of the other, and a client
// that asks for the nodes of the cluster, as cluster init does, is told of one
// too few.
const (
	hasteFor   = 10 * time.Second
	hastePause = 200 * time.Millisecond
)

// turnedAway: a node answers at the seed and refuses us, which does not
// change by asking again at once.
func turnedAway(err error) bool {
	for _, e := range []error{ErrConfig, ErrWrongKey, ErrWrongCluster, ErrNotAllowed, ErrBusy} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// reach joins by one seed, unless the seed is this node or, if again is not set,
// a member. It reports whether another node has answered, and why the seed was
// not joined.
func (j *joiner) reach(seed string, again bool) (bool, error) {
	n, err := j.join(j.m.ctx, seed, again)
	if j.m.ctx.Err() != nil {
		return false, j.m.ctx.Err()
	}
	if err == nil {
		j.m.stats.joined(seed, "")
		delete(j.told, seed)
		if n > 0 {
			j.m.say(event{level: slog.LevelDebug, kind: sayJoin, msg: "gossip: joined", args: []any{"by", seed}})
		}
		return n > 0, nil
	}
	j.m.stats.joined(seed, err.Error())
	level := slog.LevelWarn
	if last := j.told[seed]; last.why == err.Error() && time.Since(last.at) < tellAgain {
		level = slog.LevelDebug // the same as the last time
	} else {
		j.told[seed] = told{err.Error(), time.Now()}
	}
	j.m.say(event{level: level, kind: sayJoin + " " + clean(seed), msg: "gossip: a seed cannot be joined; it will be tried again", args: []any{"seed", seed, "err", err}})
	return false, err
}

// tellAgain is how often the log names a seed that fails in the same way.
const tellAgain = time.Minute

// A told is what the log said of a seed last.
type told struct {
	why string
	at  time.Time
}

// Join reaches for more members, now. It returns how many answered, and the
// error of the last that did not if none did. Seeds that are members already
// are not asked again.
func (m *Members) Join(ctx context.Context, seeds ...string) (int, error) {
	total := 0
	var last error
	for _, seed := range seeds {
		n, err := m.joiner.join(ctx, seed, false)
		total += n
		if err != nil {
			last = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	if total > 0 {
		last = nil
	}
	return total, last
}

// join tries the addresses of one seed, in order, until one answers.
func (j *joiner) join(ctx context.Context, seed string, again bool) (int, error) {
	host, port, err := net.SplitHostPort(seed)
	if err != nil {
		return 0, fmt.Errorf("%w: seed %q is no HOST:PORT: %w", ErrConfig, clean(seed), err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%w: seed %q has no port: %w", ErrConfig, clean(seed), err)
	}
	ips, err := lookup(ctx, host)
	if err != nil {
		return 0, fmt.Errorf("membership: seed %s: %w", clean(seed), err)
	}
	for _, ip := range ips {
		addr := netip.AddrPortFrom(ip, uint16(n)).String()
		if j.m.local(addr) || j.knows(addr) && !again {
			return 0, nil
		}
	}
	for _, ip := range ips {
		addr := netip.AddrPortFrom(ip, uint16(n)).String()
		if err = j.dial(ctx, addr); err == nil {
			return 1, nil
		}
		if ctx.Err() != nil || j.m.ctx.Err() != nil {
			break
		}
	}
	return 0, fmt.Errorf("membership: joining by %s: %w", clean(seed), whyNot(err))
}

// dial runs memberlist's Join, which knows no context: it ends by its own
// time, or with Close.
func (j *joiner) dial(ctx context.Context, addr string) error {
	done := make(chan error, 1)
	if !j.m.begin() {
		return ErrClosed
	}
	go func() {
		defer j.m.wg.Done()
		_, err := j.m.list.Join([]string{addr})
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-j.m.ctx.Done():
		return ErrClosed
	}
}

// knows reports whether a living member gossips at an address.
func (j *joiner) knows(addr string) bool {
	return slices.ContainsFunc(j.m.View().Members, func(p cluster.Member) bool {
		return p.Gossip == addr && (p.State == cluster.Alive || p.State == cluster.Suspect)
	})
}

// mingleRounds is how often a node that has just come does a push/pull with
// another one by itself. When many nodes start at once, each learns of some of
// the others by gossip only, some packets are lost, and memberlist's own next
// push/pull is up to minutes away in a large cluster.
const mingleRounds = 3

// mingle does a push/pull with one of the living, chosen at random.
func (j *joiner) mingle() {
	var alive []string
	for _, p := range j.m.View().Members {
		if p.State == cluster.Alive && p.ID != j.m.cfg.NodeID {
			alive = append(alive, p.Gossip)
		}
	}
	if len(alive) > 0 {
		_ = j.dial(j.m.ctx, alive[rand.IntN(len(alive))])
	}
}

// revive tries one of the dead nodes, chosen at random, because this node may be
// the one that was cut off. It leaves out nodes that said goodbye.
func (j *joiner) revive() {
	var dead []string
	for _, p := range j.m.View().Members {
		if p.State == cluster.Dead {
			dead = append(dead, p.Gossip)
		}
	}
	if len(dead) == 0 {
		return
	}
	// It does not log a failure, because it fails as a rule.
	_ = j.dial(j.m.ctx, dead[rand.IntN(len(dead))])
}

// Settled returns a channel that is closed once this node knows whether it may
// serve, as far as the first seed can tell: a seed has answered and what it said
// of our id is judged, or every seed has been tried in vain, or there is none.
// Look at Failed, too.
func (m *Members) Settled() <-chan struct{} { return m.joiner.settled }

// settle closes Settled when what has come in so far is handled.
func (j *joiner) settle(ctx context.Context) {
	done := make(chan struct{})
	for _, next := range []func() bool{
		func() bool { return send(ctx, j.m.in.queue, message{done: done}) },
		func() bool { return send(ctx, j.m.referee.twin, claim{done: done}) },
	} {
		done = make(chan struct{})
		if !next() {
			return
		}
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
	close(j.settled)
}

func send[T any](ctx context.Context, c chan<- T, x T) bool {
	select {
	case c <- x:
		return true
	case <-ctx.Done():
		return false
	}
}
