package lab

import (
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmakv/rdmakv/lab"
)

// TestInside runs in the guest: what a test of the product finds there.
func TestInside(t *testing.T) {
	inside(t)
	if kind := os.Getenv("LAB_RDMA"); kind != lab.RXE {
		t.Errorf("the device is %q", kind)
	}
	for _, path := range []string{"/dev/infiniband/uverbs0", "/dev/infiniband/uverbs1", "/dev/infiniband/rdma_cm", "/sys/class/infiniband/rxe0/ports/1/gids/0", "/etc/libibverbs.d/rxe.driver"} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	const memlock = 8 // RLIMIT_MEMLOCK
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(memlock, &limit); err != nil || limit.Cur != ^uint64(0) {
		t.Errorf("memlock is limited to %d (%v)", limit.Cur, err)
	}
	page, err := syscall.Mmap(-1, 0, 2<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_HUGETLB)
	if err != nil {
		t.Errorf("no huge page: %v", err)
	} else {
		page[0] = 1
		if err := syscall.Munmap(page); err != nil {
			t.Error(err)
		}
	}
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0", "10.77.0.1:0", "g1:0", "[fd00:77::1]:0"} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Error(err)
			continue
		}
		l.Close()
	}
	source, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	if err != nil || strings.TrimSpace(string(source)) != "tsc" {
		// With another clock each time.Now would be a slow system call.
		t.Errorf("the clock is %q, %v", source, err)
	}
}
