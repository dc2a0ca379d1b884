package lab

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// command builds the command and returns it with a directory to share, by whose
// name its QEMU can be found.
func command(t *testing.T) (program, dir string) {
	t.Helper()
	needLab(t)
	program, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return program, t.TempDir()
}

// built builds the command, once for all tests.
var built = sync.OnceValues(func() (string, error) {
	program := filepath.Join(buildDir, "lab")
	if out, err := exec.Command("go", "build", "-o", program, "../../lab/cmd/lab").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return program, nil
})

// emulators returns the processes that share a directory with a guest.
func emulators(t *testing.T, dir string) (pids []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		// A process may end in the meantime.
		if data, err := os.ReadFile(f); err == nil && bytes.HasPrefix(data, []byte("qemu")) || bytes.Contains(data, []byte("/qemu-system")) {
			if bytes.Contains(data, []byte("path="+dir)) {
				pids = append(pids, filepath.Base(filepath.Dir(f)))
			}
		}
	}
	return pids
}

// vanish waits until no emulator shares a directory.
func vanish(t *testing.T, dir string) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		pids := emulators(t, dir)
		if len(pids) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("left behind: processes %v", pids)
		}
	}
}

// code runs the command to its end.
func code(t *testing.T, program string, args ...string) (exit int, out string) {
	t.Helper()
	b, err := exec.CommandContext(within(t), program, args...).CombinedOutput()
	if err != nil {
		t.Logf("lab %s: %v", strings.Join(args, " "), err)
	}
	return exitCode(err), string(b)
}

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if exit, ok := err.(*exec.ExitError); ok {
		return exit.ExitCode()
	}
	return -1
}

// TestRun: the command ends as the program in the guest does, or says why not.
func TestRun(t *testing.T) {
	t.Parallel()
	lab, dir := command(t)
	if err := os.WriteFile(filepath.Join(dir, "x.test"), []byte("#!/bin/sh\necho in the lab: $RDMAKV_LAB\nexit 42\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if exit, out := code(t, lab, "run", "-dir", dir, "--", "/mnt/x.test"); exit != 42 || !strings.Contains(out, "in the lab: 1\n") {
		t.Errorf("exit code %d, %s", exit, out)
	}
	if exit, out := code(t, lab, "run", "-dir", dir, "-timeout", "25s", "--", "sleep", "1000"); exit != 1 || !strings.Contains(out, "25s") {
		t.Errorf("time is up: exit code %d, %s", exit, out)
	}
	vanish(t, dir)
	for _, args := range [][]string{{}, {"nonsense"}, {"run"}, {"run", "-nonsense"}, {"exec", "-name", "nobody", "--", "true"}, {"run", "-smp", "99", "--", "true"}, {"ctl", "-name", "nobody", "heal"}} {
		if exit, out := code(t, lab, args...); exit == 0 || out == "" {
			t.Errorf("lab %v: exit code %d, %q", args, exit, out)
		}
	}
}

// TestRunCounting: the clock of a guest that counts instructions does not wait for the host's. A
// program in the guest's memory sleeps for longer there than this test may take, and its deadlines
// hold. Two processors are refused, and so is a count in a guest that stays.
func TestRunCounting(t *testing.T) {
	t.Parallel()
	lab, dir := command(t)
	const script = "#!/bin/sh\ncut -d. -f1 /proc/uptime\nsleep 7200\ncut -d. -f1 /proc/uptime\necho counted: $RDMAKV_LAB$RDMAKV_LAB_COUNT\n"
	if err := os.WriteFile(filepath.Join(dir, "x.test"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	exit, out := code(t, lab, "run", "-count", "-dir", dir, "-stage", "x.test", "--", "/run/lab/x.test")
	var from, to int
	_, tail, _ := strings.Cut(out, "up after")
	_, tail, _ = strings.Cut(tail, "\n")
	if _, err := fmt.Sscanf(tail, "%d\n%d\ncounted: 11\n", &from, &to); exit != 0 || err != nil || to-from < 7200 || to-from > 7260 {
		t.Errorf("exit code %d, %v, from %d to %d: %s", exit, err, from, to, out)
	}
	vanish(t, dir)
	for want, args := range map[string][]string{
		"must be 1 with Count": {"run", "-count", "-smp", "2", "--", "true"},
		"-count":               {"up", "-count"},
		"nobody":               {"run", "-count", "-dir", dir, "-stage", "nobody", "--", "true"},
	} {
		if exit, out := code(t, lab, args...); exit == 0 || !strings.Contains(out, want) {
			t.Errorf("lab %v: exit code %d, %q", args, exit, out)
		}
	}
}

// TestSignals: whatever ends the command ends its guest too.
func TestSignals(t *testing.T) {
	t.Parallel()
	lab, dir := command(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		cmd := exec.Command(lab, "run", "-dir", dir, "--", "sh", "-c", "echo it runs; sleep 1000")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil || line != "it runs\n" || len(emulators(t, dir)) != 1 {
			t.Fatalf("%q, %v, emulators %v", line, err, emulators(t, dir))
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, out)
		if err := cmd.Wait(); err == nil {
			t.Errorf("%v: it ends well", sig)
		}
		timer.Stop()
		vanish(t, dir)
	}
}

// TestUp: guests that stay, for the inner loop.
func TestUp(t *testing.T) {
	t.Parallel()
	lab, dir := command(t)
	called := fmt.Sprintf("test-up-%d", os.Getpid())
	name := []string{"-name", called}
	with := func(word string, args ...string) []string { return append(append([]string{word}, name...), args...) }
	if exit, out := code(t, lab, with("up", "-dir", dir, "-for", "10m")...); exit != 0 || !strings.Contains(out, "ready: ") {
		t.Fatalf("up: exit code %d, %s", exit, out)
	}
	defer func() { _ = exec.Command(lab, with("down")...).Run() }()
	if exit, out := code(t, lab, with("up")...); exit != 1 || !strings.Contains(out, "up already") {
		t.Errorf("up again: exit code %d, %s", exit, out)
	}
	if exit, out := code(t, lab, "list"); exit != 0 || !strings.Contains(out, called+": 1 guest") {
		t.Errorf("list: exit code %d, %s", exit, out)
	}
	if exit, out := code(t, lab, with("exec", "-C", "/mnt", "-e", "A=b c", "--", "sh", "-c", "pwd; echo $A; exit 7")...); exit != 7 || out != "/mnt\nb c\n" {
		t.Errorf("exec: exit code %d, %q", exit, out)
	}
	cat := exec.CommandContext(within(t), lab, with("exec", "-i", "--", "cat")...)
	cat.Stdin = strings.NewReader("typed\n")
	if out, err := cat.Output(); err != nil || string(out) != "typed\n" {
		t.Errorf("input: %q, %v", out, err)
	}
	// Ctrl-C is the program's in the guest.
	cmd := exec.Command(lab, with("exec", "--", "sh", "-c", "trap 'exit 9' INT; echo ready; while :; do sleep 0.05; done")...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); exitCode(err) != 9 {
		t.Errorf("interrupted: %v", err)
	}
	if exit, out := code(t, lab, with("ctl", "cut", "1", "2")...); exit != 1 || !strings.Contains(out, "no guest 2") {
		t.Errorf("ctl: exit code %d, %s", exit, out)
	}
	if exit, out := code(t, lab, with("ctl", "nonsense")...); exit != 1 || !strings.Contains(out, "not understood") {
		t.Errorf("ctl: exit code %d, %s", exit, out)
	}
	if exit, out := code(t, lab, with("ctl", "link", "1", "down")...); exit != 0 {
		t.Errorf("ctl: exit code %d, %s", exit, out)
	}
	if exit, out := code(t, lab, with("exec", "--", "sh", "-c", "until rdma link show rxe0/1 | grep -q 'state DOWN'; do sleep 0.05; done")...); exit != 0 {
		t.Errorf("link down: exit code %d, %s", exit, out)
	}
	if exit, out := code(t, lab, with("down")...); exit != 0 {
		t.Errorf("down: exit code %d, %s", exit, out)
	}
	vanish(t, dir)
	if exit, _ := code(t, lab, with("down")...); exit == 0 {
		t.Error("down again")
	}
}
