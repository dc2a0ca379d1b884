package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/rdmakv/rdmakv/bench/compare/servers"
)

// What a measurement takes at most, with room to spare: the program looks before it
// begins, because a machine that swaps measures its disk.
const (
	// memoryPerKey is resident in server and client; diskPerKey is the base while a
	// checkpoint is under way, which has the old tables beside the new ones.
	memoryPerKey, diskPerKey = 200, 400
	// memoryBase and diskBase are what an empty store takes, with its log.
	memoryBase, diskBase = 1 << 30, 1 << 30
	// memoryPerSession is resident in both ends together; filesPerSession is of the
	// end that has more.
	memoryPerSession, filesPerSession = 1 << 20, 4
	memoryPerMember, filesPerMember   = 4 << 20, 8

	// limitPerKey makes memory_limit: more than keys of 16 B with values of 64 B take,
	// so that none is evicted.
	limitPerKey = 160
	minLimit    = 256 << 20

	maxSessions = 4096 // max_sessions, as it is by default
	maxMembers  = 300  // in one process
	perWorker   = 500  // sessions
)

func limitFor(keys int) uint64 { return max(minLimit, uint64(keys)*limitPerKey) }

// A machine is what there is.
type machine struct {
	memory, disk uint64 // bytes that are free
	files        uint64 // file descriptors of one process
}

func thisMachine(dir string) (m machine, err error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return m, err
	}
	if m.memory, err = servers.Available(string(text)); err != nil {
		return m, err
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return m, fmt.Errorf("%s: %w", dir, err)
	}
	m.disk = fs.Bavail * uint64(fs.Bsize)
	var files syscall.Rlimit
	err = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files)
	m.files = files.Max // a Go program raises its own limit to that
	return m, err
}

// fits says what is in the way of a measurement, all of it at once.
func fits(m machine, o options) error {
	most := func(list []int) int { return slices.Max(append([]int{0}, list...)) }
	keys, sessions, members := most(o.keys), most(o.sessions), most(o.members)
	var errs []error
	need := func(what string, n int, kind string, want, have uint64, unit string) {
		if n > 0 && want > have {
			errs = append(errs, fmt.Errorf("%d %s want %d %s of %s, and %d are free: measure fewer", n, what, want, unit, kind, have))
		}
	}
	const mib = 1 << 20
	need("keys", keys, "memory", (memoryBase+uint64(keys)*memoryPerKey)/mib, m.memory/mib, "MiB")
	need("keys", keys, "disk", (diskBase+uint64(keys)*diskPerKey)/mib, m.disk/mib, "MiB")
	need("sessions", sessions, "memory", (memoryBase+uint64(sessions)*memoryPerSession)/mib, m.memory/mib, "MiB")
	need("sessions", sessions, "file descriptors (ulimit -Hn)", 100+uint64(sessions)*filesPerSession, m.files, "")
	need("members", members, "memory", uint64(members)*memoryPerMember/mib, m.memory/mib, "MiB")
	need("members", members, "file descriptors (ulimit -Hn)", 100+uint64(members)*filesPerMember, m.files, "")
	return errors.Join(errs...)
}
