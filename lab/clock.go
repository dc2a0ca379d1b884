package lab

import (
	"fmt"
	"strconv"
	"sync"
	"time"
)

// A guest's cycle counter is the host's. A kernel that is started on a busy host
// measures its frequency wrong, by a factor even, and every deadline in the
// guest would come early. So it is measured here, where that can be done well,
// and the guest is told.

// calibration is how long the frequency is measured. The error is the time
// between two reads of clock and counter, some microseconds, to this.
const calibration = 100 * time.Millisecond

// tscKHz is the frequency of this machine's cycle counter; 0 if it has none.
var tscKHz = sync.OnceValue(func() uint64 {
	t0, c0 := clockAndCounter()
	if c0 == 0 {
		return 0
	}
	time.Sleep(calibration)
	t1, c1 := clockAndCounter()
	return uint64(float64(c1-c0) / t1.Sub(t0).Seconds() / 1000)
})

// countedKHz is the frequency of the cycle counter of a guest with Config.Count:
// QEMU makes it count instructions.
const countedKHz = 1_000_000

// clockAndCounter reads both at the same time: of several tries it takes the
// one in which least time passed, so that it was not interrupted.
func clockAndCounter() (at time.Time, counter uint64) {
	best := time.Duration(1 << 62)
	for range 20 {
		before := time.Now()
		c := readTSC()
		if d := time.Since(before); d < best {
			best, at, counter = d, before.Add(d/2), c
		}
	}
	return at, counter
}

// A clockCheck compares the guest's clock with the host's, from the two lines
// "clock SECONDS" that init.sh writes at its begin and end. It finds gross
// errors only, because lines may come late from a busy guest.
type clockCheck struct {
	guest float64 // of the first line
	host  time.Time
}

// Tolerance of the check, in seconds and as a share of the time that passed.
const (
	clockSlack = 1.5
	clockShare = 0.1
)

// line takes the text after "clock ", and when it came, and returns what is
// wrong.
func (c *clockCheck) line(text string, now time.Time) error {
	guest, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return fmt.Errorf("the guest's clock says %q", text)
	}
	if c.host.IsZero() {
		c.guest, c.host = guest, now
		return nil
	}
	passed, there := now.Sub(c.host).Seconds(), guest-c.guest
	if off := there - passed; off > clockSlack+clockShare*passed || -off > clockSlack+clockShare*passed {
		return fmt.Errorf("the guest's clock is wrong: %.1f s there were %.1f s here", there, passed)
	}
	return nil
}
