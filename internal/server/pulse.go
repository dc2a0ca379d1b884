package server

import (
	"context"
	"errors"
	"fmt"
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

// errLaneHangs: the process has to be ended and started again.
var errLaneHangs = errors.New("server: a handler does not return and its lane serves nobody: start this process again, and report the stack of SIGQUIT")

// A lanePulse says whether a lane of a space hangs.
type lanePulse struct {
	laneHangs   atomic.Bool
	laneSilence time.Duration // after how long that is so
}

// ticksOfSilence is how many ticks make a lane that hangs.
func (p *lanePulse) ticksOfSilence(tick time.Duration) int {
	return int(p.laneSilence/tick) + 2 // the first and the last may be cut short
}

// feelLanes is called by the beat, once in each.
func (sp *Space) feelLanes(p *session.Pulse) {
	hangs := p.Feel(sp.rails.all()) >= sp.ticksOfSilence(sp.cfg.Beat)
	if sp.laneHangs.Swap(hangs) == hangs {
		return
	}
	if hangs {
		sp.log.Error(base.LogAlways, "a lane hangs: its sessions are not served", "for", sp.laneSilence)
	} else {
		sp.log.Warn(base.LogAlways, "the lane that hung goes on")
	}
}

// sick says what makes this process one to be started again, or nil: its
// durability is gone, or a lane of the node or of a space hangs.
func (srv *Server) sick() error {
	if err := srv.Err(); err != nil {
		return err
	}
	for _, sp := range srv.spaces.every() {
		if sp.laneHangs.Load() {
			if sp.name != "" {
				return fmt.Errorf("space %q: %w", sp.name, errLaneHangs)
			}
			return errLaneHangs
		}
	}
	return nil
}

// endWithin runs the end of a space, or of the node with its main space, and gives it up
// when it has had its time and a lane hangs, which would have to be drained first. The
// space is fenced then: its memory may still be in use, and the process must end.
func (sp *Space) endWithin(ctx context.Context, end func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, sp.cfg.DrainTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- end(ctx) }()
	const perSilence = 10
	every := max(sp.laneSilence/perSilence, time.Millisecond)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for p := new(session.Pulse); ; {
		select {
		case err := <-done:
			return err
		case <-tick.C:
			if p.Feel(sp.rails.all()) >= sp.ticksOfSilence(every) && ctx.Err() != nil {
				sp.fatal(errLaneHangs)
				return errLaneHangs
			}
		}
	}
}
