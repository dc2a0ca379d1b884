package server

import (
	"context"
	"errors"
	"fmt"
	"time"
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

// A pulse feels the lanes of a server. It counts ticks, not time, so a process
// that was stopped for a while and goes on has not become sick by that. Not safe
// for concurrent use.
type pulse struct {
	rounds []uint64 // of each lane, as seen last
	ticks  []int    // for how many ticks that has been the same round
}

// feel is called once a tick and returns for how many ticks the lane that hangs
// longest has been in one round; 0: none hangs.
func (p *pulse) feel(srv *Server) (most int) {
	i := 0
	for _, d := range srv.deviceList() {
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

// ticksOfSilence is how many ticks make a lane that hangs.
func (srv *Server) ticksOfSilence(tick time.Duration) int {
	return int(srv.laneSilence/tick) + 2 // the first and the last may be cut short
}

// feelLanes is called by the beat, once in each.
func (srv *Server) feelLanes(p *pulse) {
	hangs := p.feel(srv) >= srv.ticksOfSilence(srv.cfg.Beat)
	if srv.laneHangs.Swap(hangs) == hangs {
		return
	}
	if hangs {
		srv.log.Error(limitNone, "a lane hangs: its sessions are not served", "for", srv.laneSilence)
	} else {
		srv.log.Warn(limitNone, "the lane that hung goes on")
	}
}

// sick says what makes this process one to be started again, or nil: its
// durability is gone, or a lane of the node or of a space hangs.
func (srv *Server) sick() error {
	if err := srv.Err(); err != nil {
		return err
	}
	for _, sp := range srv.everySpace() {
		if sp.laneHangs.Load() {
			if sp.space != "" {
				return fmt.Errorf("space %q: %w", sp.space, errLaneHangs)
			}
			return errLaneHangs
		}
	}
	return nil
}

// endWithin runs the end of a server and gives it up when it has had its time and
// a lane hangs, which would have to be drained first. The server is fenced then:
// its memory may still be in use, and the process must end.
func (srv *Server) endWithin(ctx context.Context, end func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, srv.cfg.DrainTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- end(ctx) }()
	const perSilence = 10
	every := max(srv.laneSilence/perSilence, time.Millisecond)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for p := new(pulse); ; {
		select {
		case err := <-done:
			return err
		case <-tick.C:
			if p.feel(srv) >= srv.ticksOfSilence(every) && ctx.Err() != nil {
				srv.fatal(errLaneHangs)
				return errLaneHangs
			}
		}
	}
}
