package machine

import (
	"io/fs"
	"testing"
)

func TestMemory(t *testing.T) {
	const info = "MemFree: 1 kB\nMemTotal:       8000000 kB\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"nothing is known", nil, 0},
		{"the machine's", map[string]string{"/proc/meminfo": info}, 8000000 << 10},
		{"damaged", map[string]string{"/proc/meminfo": "MemTotal: -5 kB\n"}, 0},
		{"version 2", map[string]string{
			"/proc/meminfo": info, "/proc/self/cgroup": "0::/a/b\n",
			"/sys/fs/cgroup/a/b/memory.max": "max\n", "/sys/fs/cgroup/a/memory.max": "1000000000\n",
		}, 1000000000},
		{"a container sees its own group as the root", map[string]string{
			"/proc/meminfo": info, "/proc/self/cgroup": "0::/../../x\n", "/sys/fs/cgroup/memory.max": "5000\n",
		}, 5000},
		{"version 1", map[string]string{
			"/proc/meminfo": info, "/proc/self/cgroup": "12:cpu,cpuacct:/z\n9:memory:/docker/q\n0::/\n",
			"/sys/fs/cgroup/memory/docker/q/memory.limit_in_bytes": "777\n", "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 777},
		{"no limit", map[string]string{
			"/proc/meminfo": info, "/proc/self/cgroup": "9:memory:/\n",
			"/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 8000000 << 10},
	} {
		got := memoryFrom(func(name string) ([]byte, error) {
			if text, ok := c.files[name]; ok {
				return []byte(text), nil
			}
			return nil, fs.ErrNotExist
		})
		if got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	if here := Memory(); here < 64<<20 {
		t.Errorf("this machine has %d bytes", here)
	}
}
