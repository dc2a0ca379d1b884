package lab

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/lab/image"
)

func TestDefaults(t *testing.T) {
	c, err := Config{Number: 3}.filled()
	if err != nil {
		t.Fatal(err)
	}
	if c.Name != "g3" || c.CPUs != 2 || c.Memory != 1024 || c.RDMA != RXE || c.Ports != 1 || c.MTU != 4500 || c.Peers != 3 || c.Timeout != 2*time.Minute || c.Progress == nil {
		t.Errorf("%+v", c)
	}
	if filepath.Base(c.Cache) != "lab" || !filepath.IsAbs(c.Cache) {
		t.Errorf("cache %s", c.Cache)
	}
}

// TestWrong: every fault is reported, all at once.
func TestWrong(t *testing.T) {
	_, err := Config{
		Name: "a name; reboot", Number: 100, CPUs: 17, Memory: 1, RDMA: "mlx5", Ports: 9, MTU: 10, Huge: 1 << 20, Peers: 1000, Dir: "/no/such/dir", Disk: "/no/such/disk", Kernel: []string{"two words"}, Silence: -1,
	}.filled()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"reboot", "Number is 100", "CPUs is 17", "Memory is 1 ", "mlx5", "Ports is 9", "MTU is 10", "Huge", "Peers is 1000", "/no/such/dir", "/no/such/disk", "two words", "Silence -1ns"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}

// TestArguments: what goes into QEMU's options cannot become another option.
func TestArguments(t *testing.T) {
	c, err := Config{Disk: "", Huge: 8}.filled()
	if err != nil {
		t.Fatal(err)
	}
	c.Dir, c.Disk = "/a,b=c", "/d,readonly=on"
	all := strings.Join(c.arguments(image.Image{Kernel: "K", Initrd: "I"}, 3, 4, 5, 6), "\n")
	for _, want := range []string{
		"path=/a,,b=c\n", "file=/d,,readonly=on\n", "-accel\ntcg,", "LAB_DISK=1", "LAB_HUGE=8", "tsc=reliable",
		"id=agent,fd=3", "id=monitor,fd=4", "id=console,fd=5", "local.str=6", "mac=52:54:00:77:00:01",
	} {
		if !strings.Contains(all+"\n", want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
	if strings.Contains(all, "kvm") {
		t.Error("KVM hangs on some machines")
	}
}

// TestCount: a guest that counts has one processor and nobody to talk to, a cycle
// counter of 1 GHz, and time to boot.
func TestCount(t *testing.T) {
	c, err := Config{Count: true}.filled()
	if err != nil {
		t.Fatal(err)
	}
	if c.CPUs != 1 || c.Timeout <= 2*time.Minute {
		t.Errorf("%+v", c)
	}
	all := strings.Join(c.arguments(image.Image{}, 3, 4, 5, 6), "\n")
	for _, want := range []string{"-icount\nshift=0,sleep=off\n", "thread=single", "-smp\n1\n", "tsc_early_khz=1000000"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
	if strings.Contains(all, "thread=multi") || strings.Count(all, "tsc_early_khz") != 1 {
		t.Errorf("it is timed and counted:\n%s", all)
	}
	for want, c := range map[string]Config{"one processor": {CPUs: 2}, "with Count Link must be nil": {CPUs: 1, Link: &net.UDPConn{}}} {
		c.Count = true
		if _, err := c.filled(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	timed, err := Config{CPUs: 1}.filled()
	if err != nil {
		t.Fatal(err)
	}
	if all := strings.Join(timed.arguments(image.Image{}, 3, 4, 5, 6), "\n"); strings.Contains(all, "icount") {
		t.Errorf("it counts without being asked:\n%s", all)
	}
}

func TestTail(t *testing.T) {
	var tl tail
	for range 3000 {
		if _, err := tl.Write([]byte("a line\r\n")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tl.Write([]byte("the end")); err != nil {
		t.Fatal(err)
	}
	if len(tl.buf) > 2*tailLen {
		t.Errorf("%d bytes are kept", len(tl.buf))
	}
	if got := tl.lines(2); got != "a line\nthe end" {
		t.Errorf("tail %q", got)
	}
}

func TestCluster(t *testing.T) {
	for _, n := range []int{0, -1, MaxGuests + 1} {
		if _, err := NewCluster(t.Context(), n, Config{}); err == nil {
			t.Errorf("%d guests", n)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "disk"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewCluster(t.Context(), 2, Config{Disk: filepath.Join(dir, "disk")}); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "g2-disk") {
		t.Errorf("two guests share a disk: %v", err)
	}
}
