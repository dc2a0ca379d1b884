package doctor

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A roce is a Soft-RoCE device of the test's own, on an interface that goes
// nowhere, so that it can be broken.
const (
	roceDevice = "rxedoc"
	roceNetdev = "doc0"
	roceIP     = "10.78.0.1"
)

// sh runs a command that must succeed.
func sh(t *testing.T, words string) {
	t.Helper()
	f := strings.Fields(words)
	if out, err := exec.Command(f[0], f[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", words, err, out)
	}
}

// until waits for a file of sysfs to say something.
func until(t *testing.T, file, want string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		data, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(data), want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s says %q, %v, and not %q", file, data, err, want)
		}
	}
}

// TestDevice breaks a real RDMA device of the kernel and what belongs to it,
// one thing at a time, and puts it right again.
func TestDevice(t *testing.T) {
	if os.Getenv("RDMAKV_LAB") == "" {
		t.Skip("needs an RDMA device: make lab")
	}
	sh(t, "/sbin/ip link add "+roceNetdev+" type dummy")
	t.Cleanup(func() { sh(t, "/sbin/ip link del "+roceNetdev) })
	sh(t, "/sbin/ip link set "+roceNetdev+" mtu 4500 up")
	sh(t, "/sbin/ip address add "+roceIP+"/24 dev "+roceNetdev)
	sh(t, "rdma link add "+roceDevice+" type rxe netdev "+roceNetdev)
	t.Cleanup(func() { sh(t, "rdma link delete "+roceDevice) })
	port := "/sys/class/infiniband/" + roceDevice + "/ports/1/"
	until(t, port+"state", "ACTIVE")

	dir := t.TempDir()
	node := func(more ...string) []string {
		return append([]string{"--fabric", "verbs", "--device", roceDevice, "--listen", roceIP + ":7400", "--admin-listen", "", "--data-dir", filepath.Join(dir, "data"),
			"--memory-limit", "64MiB", "--expert-region-size", "8MiB", "--expert-index-region-size", "8MiB"}, more...)
	}
	has := func(t *testing.T, r *report, level, code, says string) {
		t.Helper()
		for _, s := range r.Steps {
			if s.Level == level && s.Code == code && strings.Contains(s.Text+s.Do, says) {
				return
			}
		}
		t.Errorf("no %s %s with %q\n%v", level, code, says, r)
	}

	t.Run("well", func(t *testing.T) {
		r := here(t).doctor(node()...)
		here(t).want(r, "", "that of "+roceIP)
		has(t, r, "ok", "", "active MTU 4096")
	})
	t.Run("a session over it", func(t *testing.T) {
		n := here(t).start(node()...)
		defer n.Kill()
		r := here(t).doctor("--fabric", "verbs", "--timeout", "120s", roceIP+":7400")
		here(t).want(r, "", "large read")
		has(t, r, "ok", "", "verbs/"+roceDevice)
		// A step of the wall clock: the node's time follows slowly.
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_REALTIME, &now); err != nil {
			t.Fatal(err)
		}
		step := func(seconds int64) {
			if err := unix.ClockGettime(unix.CLOCK_REALTIME, &now); err != nil {
				t.Fatal(err)
			}
			now.Sec += seconds
			if err := unix.ClockSettime(unix.CLOCK_REALTIME, &now); err != nil {
				t.Fatal(err)
			}
		}
		step(3600)
		r = here(t).doctor("--fabric", "verbs", "--timeout", "120s", roceIP+":7400")
		step(-3600)
		here(t).want(r, "clock-skew", "behind this machine's wall clock")
	})
	for _, c := range []struct {
		name string
		args []string
		code string
		says string
	}{
		{"device that does not exist", []string{"--device", "mlx5_9"}, "device-name", "this kernel has"},
		{"empty entry of the GID table", node("--gid-index", "77"), "gid-index", "index 77"},
		{"huge pages that are not there", node("--huge-pages", "on", "--memory-limit", "1GiB"), "huge-pages", "vm.nr_hugepages="},
		{"address that no device has", append(node(), "--listen", "127.0.0.1:7400"), "fabric", "device's interface"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := here(t).doctor(c.args...)
			has(t, r, "fail", c.code, c.says)
			if r.First != c.code {
				t.Errorf("the first failure is %s\n%v", r.First, r)
			}
		})
	}
	t.Run("small MTU", func(t *testing.T) {
		sh(t, "/sbin/ip link set "+roceNetdev+" mtu 1500")
		defer sh(t, "/sbin/ip link set "+roceNetdev+" mtu 4500")
		r := here(t).doctor(node()...)
		here(t).want(r, "", "mtu-small")
		has(t, r, "warn", "mtu-small", "active MTU 1024 of at most 4096")
		here(t).want(here(t).doctor(node("--expert-path-mtu", "4096")...), "mtu-mismatch", "expert.path_mtu is 4096 and the port's active MTU 1024")
	})
	t.Run("no address", func(t *testing.T) {
		sh(t, "/sbin/ip address flush dev "+roceNetdev+" scope global")
		defer sh(t, "/sbin/ip address add "+roceIP+"/24 dev "+roceNetdev)
		has(t, here(t).doctor(node()...), "warn", "gid-link-local", "ip address add")
	})
	t.Run("interface down", func(t *testing.T) {
		sh(t, "/sbin/ip link set "+roceNetdev+" down")
		until(t, port+"state", "DOWN")
		r := here(t).doctor(node()...)
		sh(t, "/sbin/ip link set "+roceNetdev+" up")
		until(t, port+"state", "ACTIVE")
		has(t, r, "fail", "port-down", "ip link set "+roceNetdev+" up")
		if r.First != "port-down" {
			t.Errorf("the first failure is %s\n%v", r.First, r)
		}
	})
	t.Run("another user", func(t *testing.T) { deviceOfOthers(t, has, node("--data-dir", "/tmp/none/of/these")) })
}

// deviceOfOthers: a user that may not open the devices, and one that may and
// has a low limit of locked memory.
func deviceOfOthers(t *testing.T, has func(*testing.T, *report, string, string, string), args []string) {
	files, err := filepath.Glob("/dev/infiniband/*")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no devices: ", err)
	}
	mode := func(m os.FileMode) {
		for _, f := range files {
			if err := os.Chmod(f, m); err != nil {
				t.Fatal(err)
			}
		}
	}
	run := func() *report {
		script := "ulimit -l 64 && exec \"$0\" \"$@\""
		cmd := exec.Command("/bin/sh", append([]string{"-c", script, filepath.Join(bin, "kvclient"), "doctor", "-o", "json"}, args...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		cmd.Env = []string{"HOME=/nonexistent", "PATH=" + os.Getenv("PATH")}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, _ := cmd.Output() // exit code 1: something failed
		r := new(report)
		if err := json.Unmarshal(out, r); err != nil {
			t.Fatalf("%v: %s%s", err, out, &stderr)
		}
		return r
	}
	st, err := os.Stat(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer mode(st.Mode().Perm())
	mode(0o600)
	r := run()
	has(t, r, "fail", "device-access", "may not open it")
	mode(0o666)
	r = run()
	has(t, r, "fail", "memlock", "64.0 KiB")
	if slices.Contains(r.failed(), "device-access") {
		t.Errorf("%v", r)
	}
}
