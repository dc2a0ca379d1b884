package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

// Snapshots for others. The library asks for one when a replica lacks what the log has no more, and then sends that replica nothing
// until it hears what came of it (core.Replica.Sent).
//
//	          there is a place (places)        it has arrived, Sent(true)
//	waiting ─────────────────────────────▶ going ────────────────────────▶ lingers ──▶ gone
//	   ▲                                     │ it has not
//	   │ the library asks again              ▼
//	   └─────────────── failed ◀───────── pauses
//	                      │   Sent(false)
//	                      └──▶ gone: the library has not asked for a long time
//
// Without places, all groups of a node would send at once to a node that was away, and the first one would arrive no sooner than the last; if
// the leader changes meanwhile, all was in vain. Without pauses, one that fails would be begun again with the next heartbeat.

// A sending is a snapshot for a replica. The log keeps what follows it while it is going, and while it lingers.
type sending struct {
	state    sendingState
	ctx      context.Context // while it is going
	cancel   context.CancelFunc
	index    uint64       // of the snapshot
	read     atomic.Int64 // bytes that the link has taken
	seen     int64        // of them at the last tick
	ticks    int          // going: since the link has taken any; in later states: that are left
	failures int          // one after the other, of snapshots for this replica
}

type sendingState int

const (
	waiting sendingState = iota
	going
	lingers
	pauses
	failed
)

// Ticks: linger is for how long the log still keeps what follows a snapshot that has arrived, because the replica asks for it now; stalled is after
// how long without progress a snapshot is given up; a pause behind one that did not arrive is twice as long as the one before, from shortPause to longPause.
const (
	linger     = 20
	stalled    = 3000
	shortPause = 10
	longPause  = 1000
)

// MaxSending bounds the snapshots that a node sends to one other node at a time, and MaxReceiving those that it receives, MaxOfSender of
// them of one sender: others wait at the receiver, one of each group, until the sender has seen no progress for too long. MaxOfSender is what
// a sender has under way, so that nobody waits who keeps to that, and half of all places, so that one sender leaves room for others.
const (
	MaxSending   = 2
	MaxOfSender  = MaxSending
	MaxReceiving = 4
)

// Places counts the snapshots that are under way to each node.
type places struct {
	mu    sync.Mutex
	taken map[string]int
}

// take takes a place until ctx is over; false: there is none.
func (p *places) take(ctx context.Context, node string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[node] >= MaxSending {
		return false
	}
	if p.taken == nil {
		p.taken = map[string]int{}
	}
	p.taken[node]++
	context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.taken[node]--; p.taken[node] == 0 {
			delete(p.taken, node)
		}
	})
	return true
}

// needs is what the library says of a replica that has to be sent a snapshot.
func (g *group) needs(to consensus.ReplicaID) {
	s := &sending{}
	switch last := g.sending[to]; {
	case last == nil || last.state == lingers:
	case last.state == failed:
		s.failures = last.failures
	default:
		return // the library asks again when it hears what came of this one
	}
	g.sending[to] = s
	g.begin(to, s)
}

// begin has the applier make the snapshot, if there is a place for it.
func (g *group) begin(to consensus.ReplicaID, s *sending) {
	ctx, cancel := context.WithCancel(g.ctx)
	if !g.n.places.take(ctx, g.node(to)) {
		cancel()
		return
	}
	s.state, s.ctx, s.cancel = going, ctx, cancel
	s.index = g.saved // what the machine makes is not older
	g.queue.put(job{snapshot: to, sending: s})
}

// sent notes what came of a snapshot.
func (g *group) sent(to consensus.ReplicaID, s *sending, err error) error {
	s.cancel()
	if g.sending[to] != s {
		return nil
	}
	if err == nil {
		s.state, s.ticks = lingers, linger
		return g.r.Sent(to, true)
	}
	s.state, s.ticks = pauses, min(shortPause<<min(s.failures, 16), longPause)
	s.failures++
	level := slog.LevelWarn
	if errors.Is(err, consensus.ErrBusy) {
		level = slog.LevelInfo
	}
	g.n.c.Logger.Log(g.ctx, level, "a snapshot did not arrive", "group", g.id, "for", to, "at", g.node(to), "again after", time.Duration(s.ticks)*g.n.c.Tick, "err", err)
	return nil
}

// look goes over the snapshots for others. It is called each tick, behind hear.
func (g *group) look() error {
	for to, s := range g.sending {
		switch s.state {
		case waiting:
			if lacks(g.peers, to) {
				g.begin(to, s)
			} else {
				delete(g.sending, to) // it has got what it needs elsewhere, or is no replica any more
			}
		case going:
			s.ticks++
			if n := s.read.Load(); n != s.seen {
				s.seen, s.ticks = n, 0
			}
			if s.ticks > stalled || g.config.Node(to) == "" {
				s.cancel()
			}
		case lingers, failed:
			if s.ticks--; s.ticks < 0 {
				delete(g.sending, to)
			}
		case pauses:
			if s.ticks--; s.ticks < 0 {
				s.state, s.ticks = failed, longPause
				if err := g.r.Sent(to, false); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// lacks reports whether a replica needs a snapshot still.
func lacks(peers []consensus.Peer, to consensus.ReplicaID) bool {
	return slices.ContainsFunc(peers, func(p consensus.Peer) bool { return p.ID == to && p.Snapshot })
}

// abandon ends what is under way: this replica does not lead any more. What comes of it afterwards counts for nothing (sent): a snapshot that its
// sender gave up is none that failed, so nobody is told of it, and if this replica leads again, it sends the next one without a pause.
func (g *group) abandon() {
	for _, s := range g.sending {
		if s.state == going {
			s.cancel()
		}
	}
	clear(g.sending)
}

// snapshot begins to send the machine's state to a replica. The applier calls it, so it is
// between two Apply (R8).
func (a *applier) snapshot(to consensus.ReplicaID, out *sending) {
	s, err := a.g.m.Snapshot(out.ctx)
	if err != nil {
		a.g.post(func(_ *turn, g *group) error { return g.sent(to, out, fmt.Errorf("make it: %w", err)) })
		return
	}
	drop := func() { s.Close() }
	if !a.g.postEvent(event{do: func(t *turn, g *group) error { return t.sendSnapshot(g, to, out, s) }, drop: drop}, false) {
		drop()
	}
}

// A progress counts what is read.
type progress struct {
	io.Reader
	n *atomic.Int64
}

// Read implements io.Reader.
func (p progress) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	p.n.Add(int64(n))
	return n, err
}

// sendSnapshot sends what the applier has taken of the machine.
func (t *turn) sendSnapshot(g *group, to consensus.ReplicaID, out *sending, s consensus.Snapshot) error {
	head := consensus.SnapshotHead{Group: g.id, From: g.self, To: to, Term: g.r.Word(), State: s.State()}
	node := g.node(to)
	if !g.enter() {
		return s.Close() // the replica is about to end
	}
	if role := g.r.Role(); !role.Leads || node == "" || out.ctx.Err() != nil {
		go func() {
			defer g.leave()
			s.Close()
		}()
		return g.sent(to, out, errNoMore)
	}
	out.index = head.State.Applied
	go func() {
		defer g.leave()
		err := t.n.c.Link.Snapshot(out.ctx, node, head, progress{s, &out.read})
		if closing := s.Close(); err == nil {
			err = closing
		}
		g.post(func(_ *turn, g *group) error { return g.sent(to, out, err) })
	}()
	return nil
}

// errNoMore is why a snapshot is not sent that was made.
var errNoMore = errors.New("consensus: this replica leads no more, or the other one is gone")
