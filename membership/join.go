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

// joiner reaches for the seeds that are not members yet, and for members that
// are called dead: after a long cut, neither side would look for the other by
// itself. It goes on for ever, at intervals with jitter; soon again at first, for
// nodes that are started together do not listen at the same time.
func (m *Members) joiner() {
	defer m.wg.Done()
	begun, wait := time.Now(), time.Duration(0)
	moved, settled := false, false // moved: others have us at an old address
	for round := 0; ; round++ {
		select {
		case <-time.After(wait):
		case <-m.retry:
			moved = true
			wait = m.time.rejoin / 2
			round--
			continue
		case <-m.ctx.Done():
			return
		}
		again := moved
		moved = false
		away := false // a seed did not answer
		for _, seed := range m.cfg.Join {
			if m.ctx.Err() != nil {
				return
			}
			answered, err := m.reach(seed, again)
			if answered && !settled {
				settled = true
				m.settle(m.ctx)
			}
			away = away || err != nil && !turnedAway(err)
		}
		if !settled {
			settled = true
			m.settle(m.ctx)
		}
		if away && time.Since(begun) < hasteFor {
			wait = hastePause/2 + rand.N(hastePause)
			round-- // it is for the seeds alone
			continue
		}
		if round > 0 {
			m.revive()
		}
		if round > 0 && round <= mingleRounds {
			m.mingle()
		}
		wait = m.time.rejoin/2 + rand.N(m.time.rejoin)
	}
}

// For so long after its start a node tries seeds that do not answer again at
// once: until then neither side knows of the other, and who asks for the nodes of
// the cluster, as cluster init does, is told of one too few.
const (
	hasteFor   = 10 * time.Second
	hastePause = 200 * time.Millisecond
)

// turnedAway: somebody answers at the seed and does not want us, which does not
// change by asking again at once.
func turnedAway(err error) bool {
	for _, e := range []error{ErrConfig, ErrWrongKey, ErrWrongCluster, ErrNotAllowed, ErrBusy} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// reach joins by one seed, unless it is ourselves, or, if again is not said, a
// member. It reports whether somebody else has answered, and why the seed was not
// joined.
func (m *Members) reach(seed string, again bool) (bool, error) {
	n, err := m.join(m.ctx, seed, again)
	if m.ctx.Err() != nil {
		return false, m.ctx.Err()
	}
	if err == nil {
		m.stats.joined(seed, "")
		delete(m.told, seed)
		if n > 0 {
			m.say(event{level: slog.LevelDebug, kind: sayJoin, msg: "gossip: joined", args: []any{"by", seed}})
		}
		return n > 0, nil
	}
	m.stats.joined(seed, err.Error())
	level := slog.LevelWarn
	if last := m.told[seed]; last.why == err.Error() && time.Since(last.at) < tellAgain {
		level = slog.LevelDebug // the same as the last time
	} else {
		m.told[seed] = told{err.Error(), time.Now()}
	}
	m.say(event{level: level, kind: sayJoin + " " + clean(seed), msg: "gossip: a seed cannot be joined; it will be tried again", args: []any{"seed", seed, "err", err}})
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
		n, err := m.join(ctx, seed, false)
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
func (m *Members) join(ctx context.Context, seed string, again bool) (int, error) {
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
		if m.local(addr) || m.knows(addr) && !again {
			return 0, nil
		}
	}
	for _, ip := range ips {
		addr := netip.AddrPortFrom(ip, uint16(n)).String()
		if err = m.dial(ctx, addr); err == nil {
			return 1, nil
		}
		if ctx.Err() != nil || m.ctx.Err() != nil {
			break
		}
	}
	return 0, fmt.Errorf("membership: joining by %s: %w", clean(seed), whyNot(err))
}

// dial runs memberlist's Join, which knows no context: it ends by its own
// time, or with Close.
func (m *Members) dial(ctx context.Context, addr string) error {
	done := make(chan error, 1)
	if !m.begin() {
		return ErrClosed
	}
	go func() {
		defer m.wg.Done()
		_, err := m.list.Join([]string{addr})
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-m.ctx.Done():
		return ErrClosed
	}
}

// knows reports whether a living member gossips at an address.
func (m *Members) knows(addr string) bool {
	return slices.ContainsFunc(m.View().Members, func(p cluster.Member) bool {
		return p.Gossip == addr && (p.State == cluster.Alive || p.State == cluster.Suspect)
	})
}

// mingleRounds is how often a node that has just come compares notes with
// another one by itself. When many nodes start at once, each learns of some of
// the others by gossip only, some packets are lost, and memberlist's own next
// push/pull is up to minutes away in a large cluster.
const mingleRounds = 3

// mingle does a push/pull with one of the living, chosen at random.
func (m *Members) mingle() {
	var alive []string
	for _, p := range m.View().Members {
		if p.State == cluster.Alive && p.ID != m.cfg.NodeID {
			alive = append(alive, p.Gossip)
		}
	}
	if len(alive) > 0 {
		_ = m.dial(m.ctx, alive[rand.IntN(len(alive))])
	}
}

// revive knocks at one of the dead, chosen at random: it may be we who were
// cut off. Those that said goodbye are left in peace.
func (m *Members) revive() {
	var dead []string
	for _, p := range m.View().Members {
		if p.State == cluster.Dead {
			dead = append(dead, p.Gossip)
		}
	}
	if len(dead) == 0 {
		return
	}
	// No word in the log: this fails as a rule.
	_ = m.dial(m.ctx, dead[rand.IntN(len(dead))])
}
