package keeper

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestKeeps: what a node has put, replaced and dropped is what its next process finds, from the same keeper, and nobody else can open the socket.
func TestKeeps(t *testing.T) {
	noneLeft(t)
	dir := filepath.Join(t.TempDir(), "made")
	n := begin(t, dir, time.Minute)
	if len(n.left) != 0 || n.cold != nil {
		t.Errorf("the first start finds %q, %v", n.left, n.cold)
	}
	n.keep(t, "a", "one")
	n.keep(t, "b", "two")
	n.keep(t, "c", "three")
	n.keep(t, "b", "two again")
	if err := errors.Join(n.Drop("c"), n.Drop("never")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{socketName: os.ModeSocket | 0o600, lockName: 0o600} {
		if st, err := os.Lstat(filepath.Join(dir, name)); err != nil || st.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", name, st.Mode(), err, want)
		}
	}
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v, %v", st.Mode(), err)
	}
	want, pid := map[string]string{"a": "one", "b": "two again"}, n.PID()
	for range 3 {
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		n = begin(t, dir, time.Minute)
		if !maps.Equal(n.left, want) || n.cold != nil || n.PID() != pid {
			t.Fatalf("left: %q (%v), keeper %d, want %q, %d", n.left, n.cold, n.PID(), want, pid)
		}
	}
}

// TestOneNode: while one process has the memory another one gets neither the memory nor the directory, also if it comes by the socket alone.
func TestOneNode(t *testing.T) {
	dir := t.TempDir()
	n := begin(t, dir, time.Minute)
	n.keep(t, "a", "one")
	if _, err := tryBegin(t, dir, time.Minute); !errors.Is(err, ErrBusy) {
		t.Errorf("a second start: %v", err)
	}
	if _, err := Forget(t.Context(), dir, false); !errors.Is(err, ErrBusy) {
		t.Errorf("a second node that keeps nothing: %v", err)
	}
	// Somebody has tidied up.
	if err := os.Remove(filepath.Join(dir, lockName)); err != nil {
		t.Fatal(err)
	}
	if _, err := tryBegin(t, dir, time.Minute); !errors.Is(err, ErrBusy) {
		t.Errorf("a second start without the lock: %v", err)
	}
	n.keep(t, "b", "two")
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if n = begin(t, dir, time.Minute); len(n.left) != 2 {
		t.Errorf("left: %q", n.left)
	}
}

// TestKeeperEnds: a keeper that is killed, under its node or between two, costs what it kept.
func TestKeeperEnds(t *testing.T) {
	noneLeft(t)
	dir := t.TempDir()
	n := begin(t, dir, time.Minute)
	n.keep(t, "a", "one")
	kill(t, n, syscall.SIGKILL)
	<-n.Gone()
	if err := n.Put("b", 0); err == nil || n.Err() == nil {
		t.Errorf("put: %v, %v", err, n.Err())
	}
	if _, err := os.Lstat(filepath.Join(dir, socketName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its socket: %v", err)
	}
	_ = n.Close()
	n = begin(t, dir, time.Minute)
	if len(n.left) != 0 {
		t.Errorf("left: %q", n.left)
	}
	n.keep(t, "a", "two")
	_ = n.Close()
	kill(t, n, syscall.SIGTERM)
	awaitEnd(t, n.PID())
	n = begin(t, dir, time.Minute)
	if len(n.left) != 0 || n.cold == nil || !strings.Contains(n.cold.Error(), "it has ended") {
		t.Errorf("left: %q, %v", n.left, n.cold)
	}
	n.keep(t, "a", "three")
	_ = n.Close()
	if n = begin(t, dir, time.Minute); len(n.left) != 1 {
		t.Errorf("left by the third: %q", n.left)
	}
}

// TestKeeperHangs: a keeper that does not answer holds up neither a node that serves nor one that starts for long, and what it keeps is found by no later
// start, even if it goes on: values were replaced that it does not know of.
func TestKeeperHangs(t *testing.T) {
	noneLeft(t)
	for _, when := range []string{"under its node", "at a start", "at a start that keeps nothing"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			n := begin(t, dir, time.Minute)
			n.keep(t, "a", "old")
			hung := n
			if when == "under its node" {
				kill(t, n, syscall.SIGSTOP)
				fd := memoryOf(t, "new")
				defer closeFD(fd)
				begun := time.Now()
				if err := n.Put("a", fd); err == nil || time.Since(begun) > patience+10*time.Second {
					t.Errorf("put: %v, after %v", err, time.Since(begun))
				}
				_ = n.Close()
				kill(t, hung, syscall.SIGCONT)
			} else {
				_ = n.Close()
				kill(t, n, syscall.SIGSTOP)
			}
			if when == "at a start that keeps nothing" {
				lock, err := Forget(t.Context(), dir, false)
				if err != nil {
					t.Fatal(err)
				}
				kill(t, hung, syscall.SIGCONT)
				lock.Close()
			}
			n = begin(t, dir, time.Minute)
			if when == "at a start" && (n.cold == nil || !strings.Contains(n.cold.Error(), "does not hand over")) {
				t.Errorf("cold: %v", n.cold)
			}
			if len(n.left) != 0 {
				t.Errorf("left: %q", n.left)
			}
			n.keep(t, "a", "newer")
			_ = n.Close()
			kill(t, hung, syscall.SIGCONT)
			if n = begin(t, dir, time.Minute); n.left["a"] != "newer" {
				t.Errorf("left: %q", n.left)
			}
		})
	}
}

// TestExpiry: a keeper ends by itself when no node has come for so long, and at once if there is nothing to wait with.
func TestExpiry(t *testing.T) {
	dir := t.TempDir()
	n := begin(t, dir, 50*time.Millisecond)
	n.keep(t, "a", "one")
	_ = n.Close()
	awaitEnd(t, n.PID())
	n = begin(t, dir, time.Hour)
	if len(n.left) != 0 || n.cold == nil {
		t.Errorf("left behind memory_keep: %q, %v", n.left, n.cold)
	}
	_ = n.Close()
	awaitEnd(t, n.PID()) // it keeps nothing
	n = begin(t, dir, time.Hour)
	n.keep(t, "a", "two")
	_ = n.Close()
	if n = begin(t, dir, time.Hour); n.left["a"] != "two" {
		t.Errorf("left: %q, %v", n.left, n.cold)
	}
}

// TestForget: a life of the node that keeps nothing leaves nothing of those before to those behind it.
func TestForget(t *testing.T) {
	noneLeft(t)
	dir := t.TempDir()
	for range 2 {
		if lock, err := Forget(t.Context(), dir, false); lock != nil || err != nil {
			t.Fatal(lock, err)
		}
	}
	if lock, err := Forget(t.Context(), filepath.Join(dir, "none"), false); lock != nil || err != nil {
		t.Fatal(lock, err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 0 {
		t.Errorf("a node that never kept anything has made %v, %v", list, err)
	}
	n := begin(t, dir, time.Hour)
	n.keep(t, "a", "old")
	_ = n.Close()
	lock, err := Forget(t.Context(), dir, false)
	if err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, n.PID()) // long before an hour has passed
	if _, err := tryBegin(t, dir, time.Hour); !errors.Is(err, ErrBusy) {
		t.Errorf("a start beside it: %v", err)
	}
	lock.Close()
	if n = begin(t, dir, time.Hour); len(n.left) != 0 {
		t.Errorf("left: %q", n.left)
	}
	n.keep(t, "a", "old")
	_ = n.Close()
	// For a store that wants the directory for itself.
	if lock, err = Forget(t.Context(), dir, true); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, n.PID())
	if list, err := os.ReadDir(dir); err != nil || len(list) != 0 {
		t.Errorf("left in the directory: %v, %v", list, err)
	}
	lock.Close()
}

// TestLockIsThatOfTheDirectory: a process that has waited for a lock file that is removed meanwhile has no lock by it.
func TestLockIsThatOfTheDirectory(t *testing.T) {
	dir := t.TempDir()
	first, err := lockDir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan *os.File)
	go func() {
		lock, err := lockDir(context.Background(), dir)
		if err != nil {
			t.Error(err)
		}
		got <- lock
	}()
	// It is of no matter whether the other one has the file open by now: both ways have to end well.
	time.Sleep(50 * time.Millisecond)
	if err := os.Remove(first.Name()); err != nil {
		t.Fatal(err)
	}
	first.Close()
	second := <-got
	defer second.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if third, err := lockDir(ctx, dir); err == nil {
		third.Close()
		t.Error("two have the directory")
	}
}

// TestDirectories: each directory that no keeper can be had in is told, and what cannot be put out of reach keeps the node from starting.
func TestDirectories(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name    string
		prepare func(t *testing.T, dir string) string
		program string
		want    string // "" where it starts
		stale   bool
	}{
		{"a long path", func(t *testing.T, dir string) string { return filepath.Join(dir, strings.Repeat("x", 100)) }, self, "a shorter path", false},
		{"anybody writes it", func(t *testing.T, dir string) string { must(t, os.Chmod(dir, 0o777)); return dir }, self, "chmod o-w", false},
		{"anybody writes it, as /tmp", func(t *testing.T, dir string) string { must(t, os.Chmod(dir, 0o777|os.ModeSticky)); return dir }, self, "", false},
		{"it is a file", func(t *testing.T, dir string) string {
			must(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o600))
			return filepath.Join(dir, "f")
		}, self, "not a directory", false},
		{"a file in the place of the socket", func(t *testing.T, dir string) string {
			must(t, os.WriteFile(filepath.Join(dir, socketName), []byte("x"), 0o600))
			return dir
		}, self, "", false},
		{"a directory in the place of the socket", func(t *testing.T, dir string) string {
			must(t, os.MkdirAll(filepath.Join(dir, socketName, "x"), 0o700))
			return dir
		}, self, "out of reach", true},
		{"a directory in the place of the lock", func(t *testing.T, dir string) string {
			must(t, os.Mkdir(filepath.Join(dir, lockName), 0o700))
			return dir
		}, self, "is a directory", false},
		{"a link in the place of the lock", func(t *testing.T, dir string) string {
			must(t, os.Symlink("elsewhere", filepath.Join(dir, lockName)))
			must(t, os.WriteFile(filepath.Join(dir, socketName), nil, 0o600))
			return dir
		}, self, "out of reach", true},
		{"no program", func(t *testing.T, dir string) string { return dir }, filepath.Join(t.TempDir(), "none"), "no such file", false},
		{"a program that ends", func(t *testing.T, dir string) string { return dir }, "/bin/true", "does not come up", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			noneLeft(t)
			dir := c.prepare(t, t.TempDir())
			found, err := Start(t.Context(), dir, time.Minute, c.program, asKeeper)
			if err == nil {
				pid := found.Client.PID()
				if err := found.Client.Close(); err != nil {
					t.Error(err)
				}
				awaitEnd(t, pid)
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) || errors.Is(err, ErrStale) != c.stale {
				t.Errorf("%v", err)
			}
			if _, there := os.Lstat(filepath.Join(dir, socketName)); err != nil && !c.stale && there == nil {
				t.Error("a socket is left that a later start would find")
			}
		})
	}
}

// TestLinkIsNotFollowed: the memory of another directory is not this node's.
func TestLinkIsNotFollowed(t *testing.T) {
	other, dir := t.TempDir(), t.TempDir()
	n := begin(t, other, time.Minute)
	n.keep(t, "a", "of the other")
	_ = n.Close()
	if err := os.Symlink(filepath.Join(other, socketName), filepath.Join(dir, socketName)); err != nil {
		t.Fatal(err)
	}
	if got := begin(t, dir, time.Minute); len(got.left) != 0 || got.PID() == n.PID() {
		t.Errorf("left: %q of keeper %d", got.left, got.PID())
	}
	if n = begin(t, other, time.Minute); n.left["a"] != "of the other" {
		t.Errorf("left: %q", n.left)
	}
}

// TestStartIsEnded: a node that waits for another one to end can be told to end.
func TestStartIsEnded(t *testing.T) {
	dir := t.TempDir()
	n := begin(t, dir, time.Minute)
	n.keep(t, "a", "one")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, dir, time.Minute, "/bin/true"); !errors.Is(err, context.Canceled) || errors.Is(err, ErrStale) {
		t.Errorf("%v", err)
	}
}

// TestServeByHand: who runs the command of a keeper is told that it is not for people.
func TestServeByHand(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, with := range [][]*os.File{nil, {file}} {
		cmd := exec.Command(self, asKeeper)
		cmd.ExtraFiles = with
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "for kvserver to run") {
			t.Errorf("%s, %v", out, err)
		}
	}
}

// kill sends a signal to a keeper.
func kill(t *testing.T, n aNode, s syscall.Signal) {
	t.Helper()
	// One that goes on may have found by then that nobody wants it.
	if err := syscall.Kill(n.PID(), s); err != nil && !(s == syscall.SIGCONT && errors.Is(err, syscall.ESRCH)) {
		t.Fatal(err)
	}
	if s != syscall.SIGSTOP {
		return
	}
	await(t, "the keeper does not stop", func() bool {
		stat, err := os.ReadFile("/proc/" + itoa(n.PID()) + "/stat")
		return err == nil && strings.Contains(string(stat), ") T ")
	})
}
