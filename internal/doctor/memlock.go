package doctor

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Unlimited stands for "no limit".
const Unlimited = int64(-1)

// bufferReserve is put on top of the slabs for the message buffers of
// connections, in bytes. They grow with the sessions; this is enough for
// thousands.
const bufferReserve = 64 << 20

// clientBuffers is what a client registers at most with its defaults: the
// memory that gets land in, and that of large puts.
const clientBuffers = 192 << 20

// memlockOf reads the limit of locked memory of a process, and whether it has
// CAP_IPC_LOCK (bit 14), for which the limit does not count.
func (h *Host) memlockOf(pid string) (soft, hard int64, ipcLock bool, err error) {
	if soft, hard, err = h.limitOf(pid, "Max locked memory"); err != nil {
		return 0, 0, false, err
	}
	status, err := os.ReadFile(h.path("proc", pid, "status"))
	if err != nil {
		return soft, hard, false, nil
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "CapEff:"); ok {
			caps, err := strconv.ParseUint(strings.TrimSpace(rest), 16, 64)
			ipcLock = err == nil && caps>>14&1 == 1
		}
	}
	return soft, hard, ipcLock, nil
}

// limitOf reads a line of /proc/PID/limits.
func (h *Host) limitOf(pid, name string) (soft, hard int64, err error) {
	data, err := os.ReadFile(h.path("proc", pid, "limits"))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			if f := strings.Fields(rest); len(f) >= 2 {
				return limit(f[0]), limit(f[1]), nil
			}
		}
	}
	return 0, 0, fmt.Errorf("/proc/%s/limits has no line %q", pid, name)
}

// examined is the process whose limits count: the node if it runs, or else this
// process, whose shell is another one than the node may get.
func (e *exam) examined() (pid, whose string) {
	for p := range e.holder {
		return strconv.Itoa(p), fmt.Sprintf("the running node (process %d)", p)
	}
	return "self", "this shell (a node started elsewhere, as by systemd, has its own)"
}

// fileReserve are descriptors beside those of sessions: the store's files,
// listeners, gossip.
const fileReserve = 512

// openFiles holds the limit of open files against the sessions that are
// allowed: with iwarp each has a socket.
func (e *exam) openFiles() {
	pid, whose := e.examined()
	soft, _, err := e.limitOf(pid, "Max open files")
	need := int64(e.set.MaxSessions) + fileReserve
	switch {
	case err != nil:
		e.skip("open files", "", "the limit is unknown: %v", err)
	case soft != Unlimited && soft < need:
		e.bad(Warn, "open files", "", CodeOpenFiles, fmt.Sprintf("LimitNOFILE=%d (systemd), ulimit -n %d; or lower max_sessions", max(need, 65536), need),
			"the limit of %s is %d; max_sessions %d and what a node opens beside them need about %d", whose, soft, e.set.MaxSessions, need)
	default:
		e.ok("open files", "", "the limit of %s allows %d sessions", whose, e.set.MaxSessions)
	}
}

func limit(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return Unlimited // "unlimited"
	}
	return n
}

// memlock holds the limit against the slabs, once for each device on which they
// are registered. If a node runs, its own limit counts, because the shell's may
// differ.
func (e *exam) memlock() {
	if e.set.Fabric == "iwarp" || len(e.names("sys/class/infiniband")) == 0 {
		e.skip("locked memory", "", "no RDMA device pins memory here")
		return
	}
	pid, whose := e.examined()
	soft, hard, ipcLock, err := e.memlockOf(pid)
	if err != nil {
		e.skip("locked memory", "", "the limit is unknown: %v", err)
		return
	}
	devices := e.set.Devices
	if len(devices) == 0 {
		devices = e.names("sys/class/infiniband")
	}
	need, what := uint64(clientBuffers), "the buffers of a client"
	if e.set.Node {
		need = e.set.MemoryLimit*uint64(max(len(devices), 1)) + bufferReserve
		what = fmt.Sprintf("the slabs (memory_limit %s, once for each of %d devices) and buffers", Bytes(e.set.MemoryLimit), max(len(devices), 1))
	}
	switch {
	case ipcLock:
		e.ok("locked memory", "", "%s has CAP_IPC_LOCK, for which the limit does not count", whose)
	case soft == Unlimited:
		e.ok("locked memory", "", "no limit for %s", whose)
	case uint64(soft) >= need:
		e.ok("locked memory", "", "the limit of %s is %s; %s need %s", whose, Bytes(uint64(soft)), what, Bytes(need))
	default:
		do := "LimitMEMLOCK=infinity (systemd), \"* - memlock unlimited\" in /etc/security/limits.conf (then log in again), --ulimit memlock=-1 (docker), capability IPC_LOCK (Kubernetes); or lower memory_limit"
		if hard == Unlimited || uint64(hard) >= need {
			do = "ulimit -l unlimited in the shell that starts it: its hard limit allows that; for systemd LimitMEMLOCK=infinity"
			if hard != Unlimited {
				do = fmt.Sprintf("ulimit -l %d in the shell that starts it: its hard limit allows that; for systemd LimitMEMLOCK=infinity", (need+1023)/1024)
			}
		}
		e.bad(e.without(), "locked memory", "", CodeMemlock, do,
			"the limit of %s is %s; %s need %s: registering them will fail with ENOMEM", whose, Bytes(uint64(soft)), what, Bytes(need))
	}
}
