package report

import "testing"

func TestMachine(t *testing.T) {
	if got := osName("ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n"); got != "Debian GNU/Linux 12 (bookworm)" {
		t.Errorf("os %q", got)
	}
	info := "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t\t: fpu hypervisor\nprocessor\t: 1\nmodel name\t: Other\nflags\t\t: fpu hypervisor\n"
	if name, virtual := cpuName(info); name != "Some CPU @ 2 GHz" || !virtual {
		t.Errorf("cpu %q, virtual %v", name, virtual)
	}
	if _, virtual := cpuName("flags : fpu hypervisors\n"); virtual {
		t.Error("hypervisors is no flag of ours")
	}
	if got := kilobytes("MemFree: 3 kB\nMemTotal:       24 kB\n", "MemTotal:"); got != 24 {
		t.Errorf("memory %d", got)
	}
	if got := kilobytes("MemTotal:\n", "MemTotal:"); got != 0 {
		t.Errorf("memory of nothing %d", got)
	}
}

func TestMountOf(t *testing.T) {
	const mounts = `overlay / overlay rw 0 0
/dev/a / ext4 rw 0 0
tmpfs /tmp tmpfs rw 0 0
/dev/b /tmp/x xfs rw 0 0
short
`
	for path, want := range map[string]string{
		"/home/u":  "ext4 on /dev/a", // the later one is on top
		"/tmp":     "tmpfs on tmpfs",
		"/tmp/y":   "tmpfs on tmpfs",
		"/tmp/x/z": "xfs on /dev/b",
		"/tmp/xyz": "tmpfs on tmpfs", // not below /tmp/x
	} {
		if got := mountOf(mounts, path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func TestThisMachine(t *testing.T) {
	if m := ThisMachine(t.TempDir()); m.Cores < 1 || m.Arch == "" {
		t.Errorf("%+v", m)
	}
}
