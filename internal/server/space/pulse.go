package space

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/session"
)

// Whether the lanes are alive. A handler that never returns takes its lane with
// it: every session there, and each session's end, which has to drain the lane.
// Nothing else of the node notices: the beat goes on, and so do READs. So each
// lane counts its rounds of polling, up when a round begins and up again when it
// has ended; a count that is odd and stays the same is a round that does not
// end. A lane that sleeps because nothing comes has an even count, for however
// long.

// laneSilence is how long a round of a lane may take before /healthz calls the
// process sick. Handlers on a lane wait for nothing; the slowest takes
// milliseconds.
const laneSilence = 5 * time.Second

// ErrLaneHangs: the process has to be ended and started again.
var ErrLaneHangs = errors.New("server: a handler does not return and its lane serves nobody: start this process again, and report the stack of SIGQUIT")

// A lanePulse says whether a lane of a space hangs.
type lanePulse struct {
	LaneHangs   atomic.Bool
	LaneSilence time.Duration // after how long that is so
}

// ticksOfSilence is how many ticks make a lane that hangs.
func (p *lanePulse) ticksOfSilence(tick time.Duration) int {
	return int(p.LaneSilence/tick) + 2 // the first and the last may be cut short
}

// feelLanes is called by the beat, once in each.
func (sp *Space) feelLanes(p *session.Pulse) {
	hangs := p.Feel(sp.Rails.All()) >= sp.ticksOfSilence(sp.Config.Store.BeatInterval)
	if sp.LaneHangs.Swap(hangs) == hangs {
		return
	}
	if hangs {
		sp.Log.Error(base.LogAlways, "a lane hangs: its sessions are not served", "for", sp.LaneSilence)
	} else {
		sp.Log.Warn(base.LogAlways, "the lane that hung goes on")
	}
}

// EndWithin runs the end of a space, or of the node with its main space, and gives it up
// when it has had its time and a lane hangs, which would have to be drained first. The
// space is fenced then: its memory may still be in use, and the process must end.
func (sp *Space) EndWithin(ctx context.Context, end func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, sp.Config.DrainTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- end(ctx) }()
	const perSilence = 10
	every := max(sp.LaneSilence/perSilence, time.Millisecond)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for p := new(session.Pulse); ; {
		select {
		case err := <-done:
			return err
		case <-tick.C:
			if p.Feel(sp.Rails.All()) >= sp.ticksOfSilence(every) && ctx.Err() != nil {
				sp.Fail(ErrLaneHangs)
				return ErrLaneHangs
			}
		}
	}
}
