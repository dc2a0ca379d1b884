package wait

import (
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// A Mode says how a goroutine spends the time while it waits for a completion.
type Mode uint8

const (
	// Adaptive polls for a while and then sleeps. For how long it polls is chosen for
	// each wait, by how long the last ones took (SpinBudget).
	Adaptive Mode = iota
	// Poll polls for the whole time that a wait may spin, and then sleeps.
	Poll
	// Event sleeps at once.
	Event
)

var waitModes = [...]string{Adaptive: "adaptive", Poll: "poll", Event: "event"}

func (m Mode) String() string {
	if int(m) < len(waitModes) {
		return waitModes[m]
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// ParseMode reads a mode as it stands in configuration: "adaptive", which is also
// "", "poll" or "event". Other texts are ErrInvalid.
func ParseMode(s string) (Mode, error) {
	if s == "" {
		return Adaptive, nil
	}
	for m, name := range waitModes {
		if s == name {
			return Mode(m), nil
		}
	}
	return 0, fmt.Errorf("%w: %q is no way to wait: adaptive, poll or event", rdma.ErrInvalid, s)
}

// SpinTime is for how long one wait on cq may spin, for Options.Spin. asked is what
// the configuration says: below 0 none, above 0 that long, 0 what suits cq. A CQ
// that is no rdma.Spinner belongs to a fabric whose own goroutines need the
// processor, so what suits it is not to spin. A Spinner may know its time
// (rdma.SpinAdviser).
func SpinTime(cq rdma.CQ, mode Mode, asked time.Duration) time.Duration {
	s, can := cq.(rdma.Spinner)
	switch {
	case asked != 0:
		return max(asked, 0)
	case !can:
		return 0
	case mode == Poll:
		return MaxSpin
	}
	if knows, ok := s.(rdma.SpinAdviser); ok {
		return knows.DefaultSpin()
	}
	return DefaultSpin
}
