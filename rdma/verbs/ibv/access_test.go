//go:build linux && cgo

package ibv

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// inRxeLab skips tests that change the machine.
func inRxeLab(t *testing.T) {
	t.Helper()
	if os.Getenv("LAB_RDMA") != "rxe" || os.Geteuid() != 0 {
		t.Skip("only in the lab of rdma_rxe: it changes the machine")
	}
}

// TestDeviceFiles: what is said without the files in /dev, and without the
// right to open them.
func TestDeviceFiles(t *testing.T) {
	if os.Getenv("RDMAKV_TEST_CHILD") != "" {
		deviceFilesChild(t)
		return
	}
	inRxeLab(t)
	uverbs, cm := "/dev/infiniband/"+must(Devices())(t)[0].Kernel, "/dev/infiniband/rdma_cm"
	child := func(t *testing.T, uid uint32, device, channel string) {
		cmd := exec.Command("/proc/self/exe", "-test.run", "^TestDeviceFiles$")
		cmd.Env = append(os.Environ(), "RDMAKV_TEST_CHILD=1", "WANT_DEVICE="+device, "WANT_CHANNEL="+channel)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
	t.Run("missing", func(t *testing.T) {
		for _, f := range []string{uverbs, cm} {
			if err := os.Rename(f, f+".away"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.Rename(f+".away", f) })
		}
		child(t, 0, "modprobe ib_uverbs", "modprobe rdma_ucm")
	})
	t.Run("forbidden", func(t *testing.T) {
		for _, f := range []string{uverbs, cm} {
			if err := os.Chmod(f, 0o600); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.Chmod(f, 0o666) })
		}
		child(t, 65534, "no permission for /dev/infiniband/uverbs", "no permission for /dev/infiniband/rdma_cm")
	})
}

func deviceFilesChild(t *testing.T) {
	list, err := Devices()
	if len(list) > 0 {
		_, err = Open(list[0].Name)
	}
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), os.Getenv("WANT_DEVICE")) {
		t.Errorf("%v, %v", list, err)
	}
	_, err = NewEventChannel()
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), os.Getenv("WANT_CHANNEL")) {
		t.Error(err)
	}
}
