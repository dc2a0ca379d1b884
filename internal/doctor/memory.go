package doctor

import (
	"cmp"
	"fmt"
	"path"
	"strconv"
	"strings"
)

// hugePages holds the free huge pages of the default size against the slabs.
func (e *exam) hugePages() {
	switch e.set.HugePages {
	case "", "off", "auto": // auto takes none of those that are reserved
		e.skip("huge pages", "", "huge_pages: %s; with try or on a device registers and translates many times faster", cmp.Or(e.set.HugePages, "off"))
		return
	}
	size := e.meminfo("Hugepagesize")
	dir := fmt.Sprintf("sys/kernel/mm/hugepages/hugepages-%dkB", size>>10)
	free, known := e.number(dir, "free_hugepages")
	level, what := Warn, "with huge_pages: try the rest takes pages of the normal size"
	if e.set.HugePages == "on" {
		level, what = Fail, "with huge_pages: on a region that finds none is an error"
	}
	if size == 0 || !known {
		e.bad(level, "huge pages", "", CodeHugePages, "a kernel with CONFIG_HUGETLBFS; or huge_pages: off", "this kernel has none; %s", what)
		return
	}
	total, _ := e.number(dir, "nr_hugepages")
	reserved, _ := e.number(dir, "resv_hugepages")
	free -= min(free, reserved)
	need := (e.set.MemoryLimit + size - 1) / size
	if len(e.holder) > 0 && free < need {
		e.skip("huge pages", "", "%d of %s are free, and the node that runs has taken its own", free, Bytes(size))
		return
	}
	if free < need {
		e.bad(level, "huge pages", "", CodeHugePages, fmt.Sprintf("sysctl -w vm.nr_hugepages=%d, and the same in /etc/sysctl.d; after a boot, before memory is in pieces", total+need-free),
			"%d of %s are free, memory_limit %s needs %d: %s", free, Bytes(size), Bytes(e.set.MemoryLimit), need, what)
		return
	}
	e.ok("huge pages", "", "%d of %s are free, memory_limit %s needs %d", free, Bytes(size), Bytes(e.set.MemoryLimit), need)
}

// meminfo is a line of /proc/meminfo in bytes; 0 if there is none.
func (h *Host) meminfo(name string) uint64 {
	for line := range strings.SplitSeq(h.line("proc/meminfo"), "\n") {
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

// heapReserve is what a node takes beside the slabs: Pebble's caches, sessions
// and Go's own, roughly.
const heapReserve = 256 << 20

// cgroup looks for limits of control groups (version 2, and memory of version
// 1) that are below what is configured, on the way up from our own group.
func (e *exam) cgroup() {
	need := e.set.MemoryLimit + heapReserve
	groups := 0
	bad := false
	for line := range strings.SplitSeq(e.line("proc/self/cgroup"), "\n") {
		parts := strings.SplitN(line, ":", 3) // "0::/system.slice/x.service", "5:memory:/x"
		if len(parts) != 3 || !strings.HasPrefix(parts[2], "/") || len(parts[2]) > 4096 {
			continue
		}
		base, file := "sys/fs/cgroup", "memory.max"
		switch {
		case parts[0] == "0" && parts[1] == "":
		case parts[1] == "memory":
			base, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for dir := path.Clean(parts[2]); ; dir = path.Dir(dir) {
			groups++
			if max, ok := e.number(base, dir, file); ok && max < need {
				bad = true
				e.bad(Fail, "cgroup", dir, CodeCgroup, "raise the limit (systemd: MemoryMax=; Kubernetes: resources.limits.memory, huge pages counted apart), or lower memory_limit",
					"%s is %s; memory_limit %s and what a node takes beside it need about %s: the kernel would kill it", file, Bytes(max), Bytes(e.set.MemoryLimit), Bytes(need))
			}
			bad = e.cgroupRDMA(base, dir) || bad
			if dir == "/" {
				break
			}
		}
	}
	switch {
	case bad:
	case groups == 0:
		e.skip("cgroup", "", "this process is in no control group that is known here")
	default:
		e.ok("cgroup", "", "no limit of memory or RDMA objects below what is configured")
	}
}

// cgroupRDMA looks at rdma.max: lines of "DEVICE hca_handle=N hca_object=N".
// A session takes a few objects, a slab one.
func (e *exam) cgroupRDMA(base, dir string) (bad bool) {
	for line := range strings.SplitSeq(e.line(base, dir, "rdma.max"), "\n") {
		f := strings.Fields(line)
		for _, pair := range f[min(1, len(f)):] {
			name, value, _ := strings.Cut(pair, "=")
			n, err := strconv.ParseUint(value, 10, 64)
			if err != nil { // "max"
				continue
			}
			regions := e.set.MemoryLimit/max(e.set.RegionSize, 1) + 64
			if name == "hca_handle" && n < 2 || name == "hca_object" && n < regions {
				bad = true
				e.bad(e.without(), "cgroup", dir, CodeCgroup, "raise or remove the limit: echo \""+f[0]+" hca_handle=max hca_object=max\" into rdma.max of the group",
					"rdma.max allows %s of %s on %s; the slabs and sessions need more (%d objects for the slabs alone)", value, name, f[0], regions)
			}
		}
	}
	return bad
}
