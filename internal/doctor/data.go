package doctor

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds for the data directory.
const (
	syncRounds   = 8
	syncSlow     = 20 * time.Millisecond
	spaceLow     = 1 << 30 // bytes
	identityMost = 4096
)

// dataDir examines the directory of the durable store: that it is this node's,
// can be written, has room, and syncs in reasonable time.
func (e *exam) dataDir() {
	dir := e.set.DataDir
	if e.set.Cache {
		e.skip("data directory", dir, "mode: cache keeps nothing on disk")
		return
	}
	st, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.dataParent(dir)
		return
	case err != nil:
		e.bad(Fail, "data directory", dir, CodeDataDir, "the user who runs the node must be able to reach it", "%v", err)
		return
	case !st.IsDir():
		e.bad(Fail, "data directory", dir, CodeDataDir, "name a directory", "it is no directory")
		return
	}
	if e.otherNode(dir) {
		return
	}
	if err := unix.Faccessat(unix.AT_FDCWD, dir, unix.R_OK|unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		e.bad(Fail, "data directory", dir, CodeDataDir, "chown it to the user who runs the node (and examine as that user: sudo -u USER kvclient doctor)", "this user may not write in it: %v", err)
		return
	}
	if !e.space(dir) {
		return
	}
	if pid := e.lockedBy(dir); pid != 0 {
		e.holder[pid] = true
		e.ok("data directory", dir, "in use by the node that runs (process %d)", pid)
	}
	took, err := syncTimes(dir)
	switch p50 := took[len(took)/2]; {
	case err != nil:
		e.bad(Fail, "data directory", dir, CodeDataDir, "look at the mount (read-only?), quota and disk", "writing and syncing a small file there: %v", err)
	case p50 > syncSlow:
		e.bad(Warn, "data directory", dir, CodeDataSlow, "a disk with power-loss protection, or one that is nobody else's; sync: interval trades durability for time",
			"a write with fsync takes %v (slowest of %d: %v): every put waits for one", p50.Round(10*time.Microsecond), len(took), took[len(took)-1].Round(10*time.Microsecond))
	default:
		e.ok("data directory", dir, "a write with fsync takes %v (slowest of %d: %v)", p50.Round(time.Microsecond), len(took), took[len(took)-1].Round(time.Microsecond))
	}
}

// dataParent is for a directory that the node will make.
func (e *exam) dataParent(dir string) {
	parent := filepath.Dir(filepath.Clean(dir))
	for {
		if _, err := os.Stat(parent); !errors.Is(err, fs.ErrNotExist) || parent == filepath.Dir(parent) {
			break
		}
		parent = filepath.Dir(parent)
	}
	if err := unix.Faccessat(unix.AT_FDCWD, parent, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		e.bad(Fail, "data directory", dir, CodeDataDir, fmt.Sprintf("make it, owned by the user who runs the node: install -d -o USER -m 0700 %s", dir),
			"it does not exist, and this user may not make it in %s: %v", parent, err)
		return
	}
	if e.space(parent) {
		e.ok("data directory", dir, "it does not exist yet: the node makes it")
	}
}

// space looks at what is free, and at file systems that keep nothing.
func (e *exam) space(dir string) (enough bool) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		e.bad(Fail, "data directory", dir, CodeDataDir, "", "%v", err)
		return false
	}
	free := uint64(max(fs.Bavail, 0)) * uint64(fs.Bsize)
	if inMemory(&fs) {
		e.bad(Warn, "data directory", dir, CodeDataSlow, "a directory on a disk; or mode: cache, if nothing needs to survive", "it is on tmpfs: what is durable there ends with the machine")
	}
	switch {
	case free < 64<<20:
		e.bad(Fail, "data directory", dir, CodeDataSpace, "make room: puts are refused when the disk is full", "%s are free", Bytes(free))
		return false
	case free < max(spaceLow, e.set.MemoryLimit):
		e.bad(Warn, "data directory", dir, CodeDataSpace, "make room: what is in memory is on disk too, and compaction needs as much again", "%s are free, memory_limit is %s", Bytes(free), Bytes(e.set.MemoryLimit))
	default:
		e.ok("data space", dir, "%s free", Bytes(free))
	}
	return true
}

// syncTimes writes and syncs a small file a few times, and removes it. The times are
// sorted, and there is at least one.
func syncTimes(dir string) (took []time.Duration, err error) {
	took = make([]time.Duration, 1, syncRounds)
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return took, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	block := make([]byte, 4096)
	rand.Read(block)
	took = took[:0]
	for range syncRounds {
		begin := time.Now()
		if _, err := f.Write(block); err != nil {
			return append(took, 0), err
		}
		if err := f.Sync(); err != nil {
			return append(took, 0), err
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	return took, nil
}

// lockedBy is the process that has the directory open as its store: the holder of the
// lock of LOCK, by /proc/locks ("… FLOCK ADVISORY WRITE PID MAJ:MIN:INODE …"). It
// returns 0 if there is none, or it is not known.
func (e *exam) lockedBy(dir string) int {
	st, err := os.Stat(filepath.Join(dir, "LOCK"))
	if err != nil {
		return 0
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	for line := range strings.SplitSeq(e.line("proc/locks"), "\n") {
		f := strings.Fields(line)
		for i := 1; i < len(f); i++ {
			if parts := strings.Split(f[i], ":"); len(parts) == 3 && parts[2] == strconv.FormatUint(sys.Ino, 10) {
				if pid, err := strconv.Atoi(f[i-1]); err == nil && pid > 0 {
					return pid
				}
			}
		}
	}
	return 0
}
