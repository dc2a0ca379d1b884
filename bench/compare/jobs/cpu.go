package jobs

import (
	"syscall"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/report"
	"github.com/rdmakv/rdmakv/bench/compare/servers"
)

// CPU is what each of the servers has used so far of processor time.
func (t *Target) CPU() (used []time.Duration, err error) {
	for _, pid := range t.PIDs {
		one, err := servers.CPU(pid)
		if err != nil {
			return nil, err
		}
		used = append(used, one)
	}
	return used, nil
}

// Spent adds to a sample what the servers have used from before to after, by operation: all
// of them together and, where one leads, that one and the mean of the others. share is the
// part of it that was measured.
func (t *Target) Spent(s *report.Sample, before, after []time.Duration, share float64) {
	var all, leader time.Duration
	for i, pid := range t.PIDs {
		all += after[i] - before[i]
		if pid == t.Leader {
			leader = after[i] - before[i]
		}
	}
	each := func(d time.Duration) float64 { return micros(d) * share / float64(s.Ops) }
	s.ServerCPU = each(all)
	if t.Leader == 0 {
		return
	}
	s.LeaderCPU = each(leader)
	if n := len(t.PIDs) - 1; n > 0 {
		s.FollowerCPU = each(all-leader) / float64(n)
	}
}

// used is the processor time of this process.
func used() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
