package machine

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// pinPasses bounds the passes over the threads: each new thread inherits from
// the one that made it, so the second pass finds nothing to do unless a thread
// was made while the first one ran.
const pinPasses = 16

// Pin makes all threads of this process run on the given processors, those that
// come later included, and tells the Go runtime how many they are unless the
// variable GOMAXPROCS says so already. An empty list changes nothing. It is for
// the start of a program, before there is work.
//
// A processor that the process may not use now is an error that wraps ErrNoCPU
// and lists those that it may. sched_setaffinity(2).
func Pin(cpus []int) error {
	if len(cpus) == 0 {
		return nil
	}
	var may, want unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return fmt.Errorf("machine: sched_getaffinity: %w", err)
	}
	for _, n := range cpus {
		if n < 0 || n >= len(may)*strconv.IntSize || !may.IsSet(n) {
			return fmt.Errorf("%w: %d; it may use %s", ErrNoCPU, n, ranges(members(&may)))
		}
		want.Set(n)
	}
	for range pinPasses {
		changed, err := pinThreads(&want)
		if err != nil {
			return err
		}
		if !changed {
			if os.Getenv("GOMAXPROCS") == "" {
				runtime.SetDefaultGOMAXPROCS()
			}
			return nil
		}
	}
	return fmt.Errorf("machine: threads come faster than they are told where to run, after %d passes", pinPasses)
}

// pinThreads tells every thread that there is now.
func pinThreads(want *unix.CPUSet) (changed bool, err error) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return false, fmt.Errorf("machine: the threads of this process: %w", err)
	}
	for _, t := range tasks {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		var has unix.CPUSet
		err = unix.SchedGetaffinity(id, &has)
		if err == nil && has != *want {
			changed = true
			err = unix.SchedSetaffinity(id, want)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) { // it has ended
			return false, fmt.Errorf("machine: processors %s for thread %d: %w", ranges(members(want)), id, err)
		}
	}
	return changed, nil
}

// members lists a set.
func members(set *unix.CPUSet) (list []int) {
	for n := range len(set) * strconv.IntSize {
		if set.IsSet(n) {
			list = append(list, n)
		}
	}
	return list
}
