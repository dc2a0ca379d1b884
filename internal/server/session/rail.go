package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/wait"
)

// A Rail is what a group of sessions has made on an opened RNIC: a protection domain, and
// the lanes that sessions live on.
type Rail struct {
	*base.Device
	group *Group
	Index int     // in regions and staging; no other rail of the space ever has it
	PD    rdma.PD // of slabs and buffers; nil where it could not be made

	run     context.Context // of its lanes
	halt    context.CancelFunc
	running sync.WaitGroup

	lanes   []*Lane
	laneErr error // why makeLanes failed
	closed  bool

	opens    atomic.Int32              // sessions that are open
	lastPath atomic.Pointer[rdma.Path] // of the one opened last

	Shared    bool // sessions take receives from their lane's SRQ
	sendDepth int  // replies that one QP has posted at most
	readDepth int  // READs from one client that are in flight at most
	maxRead   int  // bytes of one READ
}

// Shared says whether sessions take receives from a shared receive queue.
type Shared uint8

const (
	// SharedAuto shares where the device has CapSRQ and CapRNR. Without RNR
	// (iWARP) a SEND that finds the shared queue empty ends the connection, so
	// one client that ignores its credits could end the sessions of others.
	SharedAuto Shared = iota
	// SharedOn shares; New fails if the device has no CapSRQ.
	SharedOn
	// SharedOff gives every session receives of its own.
	SharedOff
)

func (s Shared) String() string {
	switch s {
	case SharedAuto:
		return "auto"
	case SharedOn:
		return "on"
	case SharedOff:
		return "off"
	}
	return fmt.Sprintf("Shared(%d)", uint8(s))
}

// MaxReadDepth and maxReadPiece bound the READs of a rendezvous: beyond them
// more in flight brings nothing and holds more of the client's link.
const (
	MaxReadDepth = 16
	maxReadPiece = 256 << 10
	// maxFetches is how many values of one client are READ at a time: enough
	// to keep its link busy, and no more than the device has READs in flight,
	// because each of them has one at least.
	maxFetches = 2
)

// NewRail makes a PD on an opened device. Its lanes run until ctx ends. After an error
// nothing is left of it but the device.
func NewRail(ctx context.Context, g *Group, opened *base.Device, index int) (_ *Rail, err error) {
	d := &Rail{Device: opened, group: g, Index: index}
	credits := g.cfg.Credits
	d.Shared = g.cfg.SharedReceives == SharedOn ||
		g.cfg.SharedReceives == SharedAuto && d.Attr.Caps.Has(rdma.CapSRQ|rdma.CapRNR)
	d.readDepth = clampLimit(MaxReadDepth, d.Attr.MaxQPInitRdAtom)
	d.sendDepth = clampLimit(credits+2, d.Attr.MaxQPWR-d.readDepth)
	d.maxRead = clampLimit(maxReadPiece, int(min(uint64(d.Attr.MaxMsgSize), maxReadPiece)))
	if d.PD, err = d.Dev.AllocPD(); err != nil {
		return nil, err
	}
	if d.Shared && !d.Attr.Caps.Has(rdma.CapSRQ) {
		return nil, errors.Join(fmt.Errorf("server: shared receives: device %q has no SRQ: %w", d.Dev.Name(), rdma.ErrNotSupported), d.PD.Close())
	}
	if credits+1 > d.Attr.MaxQPWR && !d.Shared {
		return nil, errors.Join(fmt.Errorf("server: credits = %d: device %q takes %d receives per QP", credits, d.Dev.Name(), d.Attr.MaxQPWR), d.PD.Close())
	}
	d.run, d.halt = context.WithCancel(ctx)
	return d, nil
}

// AbsentRail stands for the rail on a device on which none can be made now.
func AbsentRail(g *Group, opened *base.Device, index int) *Rail {
	return &Rail{Device: opened, group: g, Index: index}
}

// Lanes returns how many lanes there are.
func (d *Rail) Lanes() int { return len(d.lanes) }

// Opens returns how many sessions are open.
func (d *Rail) Opens() int { return int(d.opens.Load()) }

// LastPath returns the path of the session that was opened last; nil before the first.
func (d *Rail) LastPath() *rdma.Path { return d.lastPath.Load() }

// clampLimit returns want, or a device's limit if that is lower; a device that
// names none has none.
func clampLimit(want, limit int) int {
	if limit <= 0 {
		return want
	}
	return min(want, limit)
}

// MakeLanes makes the lanes, if they are not there yet. The memory of their buffers is
// bounded for all rails of the group together, of which there are so many.
func (d *Rail) MakeLanes(rails int) error {
	n := d.group.cfg.Lanes
	for i := len(d.lanes); i < n && d.laneErr == nil; i++ {
		var l *Lane
		if l, d.laneErr = newLane(d, n, rails); d.laneErr == nil {
			d.lanes = append(d.lanes, l)
		}
	}
	return d.laneErr
}

// RunLanes begins to poll.
func (d *Rail) RunLanes() {
	for _, l := range d.lanes {
		d.running.Add(1)
		d.group.lanes.Go(func() {
			defer d.running.Done()
			l.run(d.run)
		})
	}
}

// Pick chooses the lane with the fewest sessions and reserves a place on it;
// nil if all are full.
func (d *Rail) Pick() *Lane {
	var best *Lane
	for _, l := range d.lanes {
		if best == nil || l.sessions.Load() < best.sessions.Load() {
			best = l
		}
	}
	// The goroutine that takes a place then looks whether the device is gone. The one
	// that closes the device marks it as gone first, and then waits until no place is taken.
	if best == nil || int(best.sessions.Add(1)) > best.capacity || d.Away() != nil {
		if best != nil {
			best.sessions.Add(-1)
		}
		return nil
	}
	return best
}

// Scarce says whether receives of a lane are to be kept for sessions that have none.
func (d *Rail) Scarce() bool {
	return slices.ContainsFunc(d.lanes, (*Lane).scarce)
}

// GiveUp gives a place that pick has reserved back.
func (l *Lane) GiveUp() { l.sessions.Add(-1) }

// End ends every session on the rail, those included that are being set up, and returns
// how many places are still taken.
func (d *Rail) End(why error) (places int) {
	for _, s := range d.group.List() {
		if s.lane.rail == d {
			s.End(base.CauseFabric, why)
		}
	}
	for _, l := range d.lanes {
		places += int(l.sessions.Load())
	}
	return places
}

// A BufferCount is how many buffers of a kind there are, and how many are in use.
type BufferCount struct{ Total, Used int }

// Buffers counts the buffers of all lanes: receives, and replies from small to large.
func (d *Rail) Buffers() (n [1 + len(workReply)]BufferCount) {
	for _, l := range d.lanes {
		for i, p := range [...]*bufPool{l.recvs, l.replies[0], l.replies[1], l.replies[2]} {
			total, used := p.count()
			n[i].Total += total
			n[i].Used += used
		}
	}
	return n
}

// SharedReceives returns how many receives of shared queues sessions own, how many there
// are, and how many sessions take theirs from there.
func (d *Rail) SharedReceives() (owned, existing, sessions int) {
	for _, l := range d.lanes {
		l.sharedMu.Lock()
		owned, existing, sessions = owned+l.promised, existing+l.existing, sessions+len(l.byQPN)
		l.sharedMu.Unlock()
	}
	return owned, existing, sessions
}

// Spins tells how the lanes have spun, and a fabric that serves READs in software.
func (d *Rail) Spins() (lanes, responder wait.SpinStats) {
	for _, l := range d.lanes {
		lanes.Add(l.budget.Stats())
	}
	if s, ok := d.Dev.(interface{ SpinStats() wait.SpinStats }); ok {
		responder = s.SpinStats()
	}
	return lanes, responder
}

// Close closes what was made on the device. Sessions, and regions in its PD, are gone. A
// second call, which comes once the first has returned, does nothing.
func (d *Rail) Close() error {
	if d.closed {
		return nil
	}
	d.closed = true
	if d.halt != nil {
		d.halt()
		d.running.Wait()
	}
	var errs []error
	for _, l := range d.lanes {
		errs = append(errs, l.close())
	}
	if d.PD != nil {
		errs = append(errs, d.PD.Close())
	}
	return errors.Join(errs...)
}

// A Pulse feels whether lanes are alive: each lane counts its rounds of polling, up when a
// round begins and up again when it has ended. A count that is odd and stays the same is a
// round that does not end; a lane that sleeps has an even one. It counts ticks, not time, so a process
// that was stopped for a while and goes on has not become sick by that. Not safe
// for concurrent use.
type Pulse struct {
	rounds []uint64 // of each lane, as seen last
	ticks  []int    // for how many ticks that has been the same round
}

// Feel is called once a tick and returns for how many ticks the lane that hangs
// longest has been in one round; 0: none hangs.
func (p *Pulse) Feel(rails []*Rail) (most int) {
	i := 0
	for _, d := range rails {
		for _, l := range d.lanes {
			if i == len(p.rounds) {
				p.rounds, p.ticks = append(p.rounds, 0), append(p.ticks, 0)
			}
			n := l.rounds.Load()
			switch {
			case n&1 == 0:
				p.ticks[i] = 0
			case n != p.rounds[i]:
				p.ticks[i] = 1
			default:
				p.ticks[i]++
			}
			p.rounds[i] = n
			most = max(most, p.ticks[i])
			i++
		}
	}
	return most
}
