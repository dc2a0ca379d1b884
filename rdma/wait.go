package rdma

import "fmt"

// A WaitMode says how whoever waits for a completion spends the time.
type WaitMode uint8

const (
	// WaitAdaptive polls for a while that is chosen anew for each wait from what
	// the last ones took, and then sleeps (SpinBudget).
	WaitAdaptive WaitMode = iota
	// WaitPoll polls in every wait for the whole time to spin, and then sleeps.
	WaitPoll
	// WaitEvent sleeps at once.
	WaitEvent
)

var waitModes = [...]string{WaitAdaptive: "adaptive", WaitPoll: "poll", WaitEvent: "event"}

func (m WaitMode) String() string {
	if int(m) < len(waitModes) {
		return waitModes[m]
	}
	return fmt.Sprintf("WaitMode(%d)", uint8(m))
}

// ParseWaitMode reads a mode as configuration has it; "" is adaptive.
func ParseWaitMode(s string) (WaitMode, error) {
	if s == "" {
		return WaitAdaptive, nil
	}
	for m, name := range waitModes {
		if s == name {
			return WaitMode(m), nil
		}
	}
	return 0, fmt.Errorf("%w: %q is no way to wait: adaptive, poll or event", ErrInvalid, s)
}
