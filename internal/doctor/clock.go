package doctor

import (
	"context"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
)

// These bound what clocks may differ by. Answers do not depend on wall clocks
// (leases go by elapsed time, and a server's time never jumps); keys that expire
// and certificates do.
const (
	skewWarn = time.Second
	skewFail = 10 * time.Second
)

// clock examines the clocks of this machine alone; peers come later.
func (e *exam) clock() {
	if err := bootClock(); err != nil {
		e.bad(Fail, "clock", "", CodeClockSource, "a Linux kernel of 2.6.39 or later", "CLOCK_BOOTTIME, by which leases run, cannot be read: %v", err)
		return
	}
	switch source := e.line("sys/devices/system/clocksource/clocksource0/current_clocksource"); source {
	case "hpet", "acpi_pm", "jiffies", "refined-jiffies":
		e.bad(Warn, "clock", "", CodeClockSource, "tsc=reliable on the kernel's command line, if the processor's counter can be trusted",
			"CLOCK_BOOTTIME is there, and the clock source is %s: every look at the clock is a slow system call", source)
	default:
		e.ok("clock", "", "CLOCK_BOOTTIME is there; clock source %s", orUnknown(source))
	}
	if !e.set.Node {
		return
	}
	switch synced, within, err := wallClock(); {
	case err != nil:
		e.skip("wall clock", "", "whether somebody keeps it right is not known: %v", err)
	case !synced:
		e.bad(Warn, "wall clock", "", CodeClockUnsynced, "run chrony or systemd-timesyncd (in a virtual machine: on its host)",
			"the kernel says that nobody synchronises it: keys expire by it")
	default:
		e.ok("wall clock", "", "synchronised, says the kernel (error at most %v)", within)
	}
}

// skew judges the difference of a peer's time and ours. between is how long the
// look took: the difference is known only to that.
func (e *peerExam) skew(addr string, theirs, ours time.Time, between time.Duration) {
	off := theirs.Sub(ours)
	size := max(off.Abs()-between, 0)
	level := Warn
	switch {
	case size < skewWarn:
		e.ok("clock of peer", addr, "differs by less than %v (looked at within %v)", max(skewWarn, between), between.Round(time.Millisecond))
		return
	case size >= skewFail:
		level = Fail
	}
	which := "ahead of"
	if off < 0 {
		which = "behind"
	}
	e.bad(level, "clock of peer", addr, CodeClockSkew, "compare both with a third (chronyc tracking, timedatectl) and synchronise them; a node's time then follows slowly, by 0.5 %",
		"the node's time is %v %s this machine's wall clock: keys expire at another time than clients expect", off.Abs().Round(10*time.Millisecond), which)
}

// peerClock READs the node's beat, which has its time, and compares.
func (e *peerExam) peerClock(ctx context.Context, p Peer, addr string, view *layout.View) {
	ctx, cancel := context.WithTimeout(ctx, e.Patience)
	defer cancel()
	region, off, ok := view.Locate(view.BeatPlace(), layout.BeatSize)
	if !ok {
		return
	}
	raw := make([]byte, layout.BeatSize)
	before := e.Now()
	if err := p.ReadRegion(ctx, view.Regions[region].ID, off, raw); err != nil {
		e.skip("clock of peer", addr, "its beat cannot be read: %v", err)
		return
	}
	after := e.Now()
	b, err := layout.ParseBeat(raw, view.Incarnation)
	if err != nil {
		e.skip("clock of peer", addr, "its beat makes no sense: %v", err)
		return
	}
	// The beat may have been written up to a period before it was READ.
	const period = 200 * time.Millisecond
	e.skew(addr, time.UnixMicro(int64(b.TimeMicros)), after, after.Sub(before)+2*period)
}
