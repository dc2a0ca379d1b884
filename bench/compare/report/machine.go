package report

import (
	"bufio"
	"cmp"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// A Machine is where a result was measured.
type Machine struct {
	OS     string `json:"os"`
	Kernel string `json:"kernel"`
	Arch   string `json:"arch"`
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"` // that this process may use
	// Virtual says that the processor reports a hypervisor: waking an idle core
	// then costs an exit to it.
	Virtual     bool   `json:"virtual"`
	MemoryBytes uint64 `json:"memory_bytes"`
	Disk        string `json:"disk"` // file system and device of the stores
	// Congestion is the default congestion control of TCP sockets where it ran: that
	// of the run's own network namespace, or else the machine's.
	Congestion string `json:"congestion,omitempty"`
}

// ThisMachine describes the machine, and the disk below dir. What cannot be
// found out is left empty.
func ThisMachine(dir string) Machine {
	m := Machine{
		OS:     osName(read("/etc/os-release")),
		Kernel: strings.TrimSpace(read("/proc/sys/kernel/osrelease")),
		Arch:   runtime.GOARCH,
		Cores:  runtime.NumCPU(),

		Congestion: strings.TrimSpace(read("/proc/sys/net/ipv4/tcp_congestion_control")),
	}
	m.CPU, m.Virtual = cpuName(read("/proc/cpuinfo"))
	m.MemoryBytes = kilobytes(read("/proc/meminfo"), "MemTotal:") << 10
	if dir, err := filepath.Abs(dir); err == nil {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			dir = real
		}
		m.Disk = mountOf(read("/proc/self/mounts"), dir)
	}
	return m
}

func read(path string) string {
	data, _ := os.ReadFile(path)
	return string(data)
}

func osName(release string) string {
	for line := range strings.Lines(release) {
		if name, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			return strings.Trim(strings.TrimSpace(name), `"`)
		}
	}
	return runtime.GOOS
}

// cpuName finds the model in /proc/cpuinfo, and whether the processor is a virtual
// one.
func cpuName(info string) (name string, virtual bool) {
	for line := range strings.Lines(info) {
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		switch strings.TrimSpace(key) {
		case "model name":
			name = cmp.Or(name, strings.TrimSpace(value))
		case "flags":
			virtual = virtual || slices.Contains(strings.Fields(value), "hypervisor")
		}
	}
	return name, virtual
}

// kilobytes finds a line "NAME N kB".
func kilobytes(text, name string) uint64 {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) >= 2 && fields[0] == name {
			n, _ := strconv.ParseUint(fields[1], 10, 54)
			return n
		}
	}
	return 0
}

// mountOf is "ext4 on /dev/vda" for a path: the longest mount point above it, the
// last one where several are on top of each other.
func mountOf(mounts, path string) string {
	best, longest := "", -1
	lines := bufio.NewScanner(strings.NewReader(mounts))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 3 {
			continue
		}
		point := fields[1]
		above := point == "/" || path == point || strings.HasPrefix(path, point+"/")
		if above && len(point) >= longest {
			best, longest = fields[2]+" on "+fields[0], len(point)
		}
	}
	return best
}
