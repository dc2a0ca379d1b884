package machine

import (
	"os"
	"path"
	"strconv"
	"strings"
)

// Memory is how much memory this process may use in all, bytes: the machine's,
// or less where a control group sets a limit. It is 0 if the system does not
// say.
func Memory() int64 { return memoryFrom(os.ReadFile) }

// memoryFrom is Memory with the files of another machine.
func memoryFrom(read func(name string) ([]byte, error)) int64 {
	limit := memTotal(read)
	groups, _ := read("/proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		// ID:CONTROLLERS:PATH; version 2 has ID 0 and no controllers.
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		var root, file string
		switch {
		case fields[0] == "0" && fields[1] == "":
			root, file = "/sys/fs/cgroup", "memory.max"
		case strings.Contains(","+fields[1]+",", ",memory,"):
			root, file = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		// The limits of all groups around it hold, too. In a container the path
		// may be that of the host; the root of the mounted file system is then
		// its own group.
		for dir := path.Clean("/" + fields[2]); ; dir = path.Dir(dir) {
			if n, ok := readNumber(read, path.Join(root, dir, file)); ok && (limit == 0 || n < limit) {
				limit = n
			}
			if dir == "/" {
				break
			}
		}
	}
	return limit
}

// memTotal is the machine's memory as /proc/meminfo has it.
func memTotal(read func(string) ([]byte, error)) int64 {
	text, _ := read("/proc/meminfo")
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			if n, err := strconv.ParseInt(number, 10, 64); err == nil && n > 0 && n < 1<<40 {
				return n << 10
			}
		}
	}
	return 0
}

// readNumber reads a file that holds one number; "max" and the like count as
// none.
func readNumber(read func(string) ([]byte, error), name string) (int64, bool) {
	text, err := read(name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil && n > 0
}
