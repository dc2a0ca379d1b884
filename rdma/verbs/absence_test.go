package verbs_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/verbs"
)

// removalEnv makes a re-executed test binary the user of a device that goes.
const removalEnv = "VERBS_TEST_REMOVAL"

// TestDeviceRemoval takes the soft device away while a process uses it; see
// TestRemovalUser. The kernel's removal waits for that process and is done when
// it has ended. librdmacm keeps every device open once it has been used, so
// this test needs a process that has not: it stands in the first file.
func TestDeviceRemoval(t *testing.T) {
	needDevice(t)
	if os.Getenv("RDMAKV_LAB") != "1" || os.Getenv("LAB_RDMA") != "rxe" {
		t.Skip("only in the lab, on Soft-RoCE: it removes the device")
	}
	if open := openDevices(t); open != "" {
		t.Skipf("this process holds %s, so the removal would wait for it", open)
	}
	out, err := exec.Command("rdma", "link", "show").Output()
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`link (rxe0)/1 .* netdev (\S+)`).FindStringSubmatch(string(out))
	if found == nil {
		t.Fatalf("no rxe0 in %q", out)
	}
	link, netdev := found[1], found[2]
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	user := exec.Command(exe, "-test.run=^TestRemovalUser$", "-test.timeout=2m", "-test.v")
	user.Env = append(os.Environ(), removalEnv+"="+link)
	user.Stderr = os.Stderr
	says, err := user.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := user.Start(); err != nil {
		t.Fatal(err)
	}
	removed := make(chan error, 1)
	for lines := bufio.NewScanner(says); lines.Scan(); {
		if lines.Text() == "in use" {
			go func() { removed <- exec.Command("rdma", "link", "del", link).Run() }()
			continue
		}
		t.Log(lines.Text())
	}
	if err := user.Wait(); err != nil {
		t.Fatalf("the user: %v", err)
	}
	select {
	case err := <-removed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("the kernel still waits for somebody to let go of the device")
	}
	if err := verbs.New(verbs.Options{}).Unavailable(); !errors.Is(err, rdma.ErrNoDevice) {
		t.Errorf("without the device: %v", err)
	}
	if out, err := exec.Command("rdma", "link", "add", link, "type", "rxe", "netdev", netdev).CombinedOutput(); err != nil {
		t.Fatalf("the device cannot be made again: %v: %s", err, out)
	}
	needDevice(t)
}

// openDevices names the device files that this process has open.
func openDevices(t *testing.T) string {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if at, err := os.Readlink(filepath.Join("/proc/self/fd", fd.Name())); err == nil && strings.HasPrefix(at, "/dev/infiniband/") {
			return at
		}
	}
	return ""
}

// TestRemovalUser is that process; run by itself it has nothing to do.
// Connections and listener of librdmacm end with typed errors.
func TestRemovalUser(t *testing.T) {
	if os.Getenv(removalEnv) == "" {
		return
	}
	r := newRig(t, verbs.Options{})
	l, err := r.dev.Listen(t.Context(), listenAddr(t))
	r.check(err)
	r.later(l.Close)
	qa, qb := r.connect(rdma.QPConfig{}, rdma.QPConfig{Access: rdma.AccessRemoteRead}, rdma.ConnParams{})
	m := r.region(64, mem.Mmap, rdma.AccessLocalWrite|rdma.AccessRemoteRead)
	if st := r.post(qa, read(m, 64, at(m))); st != rdma.StatusSuccess {
		t.Fatal(st)
	}
	_, err = qa.PostRecv([]rdma.RecvWR{{ID: 5}})
	r.check(err)
	fmt.Println("\nin use")
	for _, q := range []rdma.QP{qa, qb} {
		select {
		case <-q.Done():
			if err := isAny(q.Err(), rdma.ErrPeerGone); err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Error("a connection outlives its device")
		}
	}
	if wc, err := r.next(); err != nil || wc.ID != 5 || !errors.Is(wc.Status.Err(), rdma.ErrFlushed) {
		t.Errorf("the receive: %+v, %v", wc, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := l.Accept(ctx); !errors.Is(err, rdma.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
}
