package fabric

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmakv/rdmakv/internal/cli"
)

// unlimited stands for "no limit" in memlockReport, as -1 does in JSON.
const unlimited = int64(-1)

// bufferReserve is put on top of the slabs for the message buffers of
// connections, in bytes. They grow with the sessions; this is enough for
// thousands.
const bufferReserve = 64 << 20

// A memlockReport holds the limit of locked memory (RLIMIT_MEMLOCK) against what
// the slabs need: a NIC's memory is pinned, and the kernel counts that, once for
// each device that it is registered with. All sizes are in bytes.
type memlockReport struct {
	Soft     int64    `json:"soft_bytes"` // in force for this process; -1: no limit
	Hard     int64    `json:"hard_bytes"` // up to which Soft may be raised; -1: no limit
	IPCLock  bool     `json:"cap_ipc_lock"`
	Slabs    uint64   `json:"slabs_bytes"`  // memory_limit
	Needed   uint64   `json:"needed_bytes"` // the slabs once for each device, and buffers
	Verdict  string   `json:"verdict"`
	Advice   []string `json:"advice"`
	LimitErr string   `json:"fault,omitempty"`
}

// memlockOf is the report of this machine.
func memlockOf(slabs uint64, devices int) memlockReport {
	soft, hard, err := memlockLimit()
	m := judgeMemlock(soft, hard, canIPCLock("/"), slabs, devices)
	if err != nil {
		m.LimitErr, m.Verdict, m.Advice = err.Error(), "unknown: "+err.Error(), []string{}
	}
	return m
}

// judgeMemlock decides; it looks at nothing but its arguments. CAP_IPC_LOCK
// lifts the limit (mlock(2); the kernel's ib_umem_get asks for it).
func judgeMemlock(soft, hard int64, ipcLock bool, slabs uint64, devices int) memlockReport {
	m := memlockReport{Advice: []string{}, Soft: soft, Hard: hard, IPCLock: ipcLock, Slabs: slabs, Needed: slabs*uint64(max(devices, 1)) + bufferReserve}
	switch {
	case soft == unlimited:
		m.Verdict = "enough: there is no limit"
	case ipcLock:
		m.Verdict = "enough: this process has CAP_IPC_LOCK, for which the limit does not count"
	case uint64(soft) >= m.Needed:
		m.Verdict = "enough"
	default:
		m.Verdict = "too low: registering the slabs will fail with ENOMEM"
		// The remedy depends on whether the user may raise the limit, or only root.
		how := "raise it with LimitMEMLOCK=infinity (systemd), a line \"* - memlock unlimited\" in /etc/security/limits.conf (then log in again), or --ulimit memlock=-1 (docker)"
		if hard == unlimited || uint64(hard) >= m.Needed {
			how = "raise it with ulimit -l unlimited in the shell that starts the server; the hard limit allows that"
			if hard != unlimited {
				how = fmt.Sprintf("raise it with ulimit -l %d in the shell that starts the server; the hard limit allows that", (m.Needed+1023)/1024)
			}
		}
		m.Advice = []string{fmt.Sprintf("locked memory: the limit is %s, the slabs need %s: %s; or lower memory_limit", limitText(soft), cli.Bytes(int64(m.Needed)), how)}
	}
	return m
}

// limitText writes a limit.
func limitText(n int64) string {
	if n == unlimited {
		return "unlimited"
	}
	return cli.Bytes(n)
}

// canIPCLock reports whether this process has CAP_IPC_LOCK (bit 14) in force.
func canIPCLock(root string) bool {
	data, err := os.ReadFile(filepath.Join(root, "proc/self/status"))
	if err != nil {
		return false
	}
	// The effective set is what the kernel asks; a capability that is only
	// permitted does not count.
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "CapEff:"); ok {
			caps, err := strconv.ParseUint(strings.TrimSpace(rest), 16, 64)
			return err == nil && caps>>14&1 == 1
		}
	}
	return false
}

// A hugeReport is what the kernel says of huge pages, against what the slabs of
// this configuration would take.
type hugeReport struct {
	Pages   []hugeSize `json:"pages"`
	Default uint64     `json:"default_size_bytes"` // which the store uses
	Mode    string     `json:"huge_pages"`         // the key
	Needed  uint64     `json:"needed_pages"`       // of the default size, for all slabs
	Verdict string     `json:"verdict"`
	Advice  []string   `json:"advice"`
}

// A hugeSize is the pool of pages of one size, in pages.
type hugeSize struct {
	Size  uint64 `json:"size_bytes"`
	Total uint64 `json:"total"`
	Free  uint64 `json:"free"`
	// Reserved are free but promised to mappings.
	Reserved uint64 `json:"reserved"`
}

// hugeOf reads /sys/kernel/mm/hugepages and /proc/meminfo below root.
func hugeOf(root string, slabs uint64, mode string) hugeReport {
	h := hugeReport{Mode: mode, Pages: []hugeSize{}, Advice: []string{}}
	dir := filepath.Join(root, "sys/kernel/mm/hugepages")
	// One directory for each size that the kernel knows, with its pool in files.
	entries, err := os.ReadDir(dir)
	if err != nil {
		h.Verdict = "this kernel has none: " + cli.Cause(err).Error()
		return h
	}
	for _, e := range entries {
		kib, ok := strings.CutPrefix(e.Name(), "hugepages-")
		kib, ok2 := strings.CutSuffix(kib, "kB")
		n, err := strconv.ParseUint(kib, 10, 40)
		if !ok || !ok2 || err != nil {
			continue // not one of those
		}
		size := hugeSize{Size: n << 10}
		for file, to := range map[string]*uint64{"nr_hugepages": &size.Total, "free_hugepages": &size.Free, "resv_hugepages": &size.Reserved} {
			var readErr error
			*to, readErr = readNumber(filepath.Join(dir, e.Name(), file))
			err = errors.Join(err, readErr)
		}
		if err != nil {
			h.Verdict = "unknown: " + err.Error()
			return h
		}
		h.Pages = append(h.Pages, size)
	}
	// By size: directories come in the order of their names, as texts.
	slices.SortFunc(h.Pages, func(a, b hugeSize) int { return int(int64(a.Size>>10) - int64(b.Size>>10)) })
	h.Default = meminfoBytes(root, "Hugepagesize")
	h.judge(slabs)
	return h
}

// judge decides whether the pages are enough. It looks at nothing but the report.
func (h *hugeReport) judge(slabs uint64) {
	if h.Default == 0 {
		h.Verdict = "this kernel has none"
		return
	}
	// Slabs take pages of the default size alone; other pools do not help.
	var pages hugeSize
	for _, p := range h.Pages {
		if p.Size == h.Default {
			pages = p
		}
	}
	// Pages that are promised to a mapping look free until it touches them.
	h.Needed = (slabs + h.Default - 1) / h.Default
	free := pages.Free - min(pages.Reserved, pages.Free)
	raise := fmt.Sprintf("sysctl -w vm.nr_hugepages=%d", pages.Total+h.Needed-min(free, h.Needed))
	switch {
	case h.Mode == "off" || h.Mode == "":
		h.Verdict = "not used (huge_pages: off); with them registering is several times faster"
	case free >= h.Needed:
		h.Verdict = "enough"
	case h.Mode == "on":
		h.Verdict = "too few: with huge_pages: on the server will not get all of its slabs"
		h.Advice = append(h.Advice, fmt.Sprintf("huge pages: %d of %s are free, the slabs need %d: %s; or huge_pages: try", free, cli.Bytes(int64(h.Default)), h.Needed, raise))
	default:
		h.Verdict = "too few: with huge_pages: try the rest of the slabs takes pages of the normal size"
		h.Advice = append(h.Advice, fmt.Sprintf("huge pages: %d of %s are free, the slabs would use %d: %s", free, cli.Bytes(int64(h.Default)), h.Needed, raise))
	}
}

// readNumber reads a file of sysfs that is one number.
func readNumber(path string) (uint64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
}

// meminfoBytes is a line of /proc/meminfo in bytes; 0 if there is none.
func meminfoBytes(root, name string) uint64 {
	data, err := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			n, err := strconv.ParseUint(number, 10, 50)
			if err == nil {
				return n << 10
			}
		}
	}
	return 0
}
