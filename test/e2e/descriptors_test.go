package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/test/node"
)

// startLimited starts a node whose limit of open files is low.
func startLimited(t *testing.T, files int, dir string, more ...string) (*node.Node, error) {
	t.Helper()
	limit := fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, files)
	n, err := node.Start(t.Context(), node.Options{
		Bin: "/bin/sh", Args: append([]string{"-c", limit, filepath.Join(bin, "kvserver")}, serverArgs(dir, more...)...),
	})
	if err == nil {
		t.Cleanup(func() {
			if err := n.Kill(); err != nil {
				t.Error(err)
			}
			if t.Failed() {
				t.Logf("the node's standard error:\n%s", n.Stderr())
			}
		})
	}
	return n, err
}

// TestFewDescriptors: a node that may open 1024 files is held by 1300 silent
// connections to its data port and 200 to its admin port, and goes on: it stores
// large values, which takes new files, and lets new clients in.
func TestFewDescriptors(t *testing.T) {
	onlyIWARP(t)
	if elsewhere != nil {
		t.Skip("about processes of this machine")
	}
	const files = 1024
	n, err := startLimited(t, files, t.TempDir(), "--memory-limit", "256MiB", "--admin-listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if said := n.Stderr(); !strings.Contains(said, "limit of open files") || !strings.Contains(said, "limit=1024") {
		t.Errorf("it says nothing of the limit:\n%s", said)
	}
	c := dial(t, n)
	for i := range 1500 {
		addr := n.Data
		if i >= 1300 {
			addr = n.Admin
		}
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%4))}, Timeout: 10 * time.Second}
		conn, err := from.Dial("tcp", addr)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		defer conn.Close()
	}
	value := bytes.Repeat([]byte("0123456789abcdef"), 8<<20/16)
	for i := range 24 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := c.Put(ctx, fmt.Appendf(nil, "large %d", i%8), value)
		cancel()
		if err != nil {
			t.Fatalf("put %d: %v", i, err)
		}
	}
	late := dial(t, n)
	if got, err := late.Get(t.Context(), []byte("large 7")); err != nil || !bytes.Equal(got, value) {
		t.Errorf("a new client: %d bytes, %v", len(got), err)
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.PID()))
	if err != nil || len(open) > files-100 {
		t.Errorf("%d of %d descriptors are open, %v", len(open), files, err)
	}
	t.Logf("%d of %d descriptors are open", len(open), files)
}

// TestFilesAreClosed: in a directory that every user may read, with the usual umask,
// no other user can read a file of the store.
func TestFilesAreClosed(t *testing.T) {
	if elsewhere != nil {
		t.Skip("about files of this machine")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	n, err := node.Start(t.Context(), node.Options{
		Bin: "/bin/sh", Args: append([]string{"-c", `umask 022; exec "$0" "$@"`, filepath.Join(bin, "kvserver")}, serverArgs(dir)...),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Kill()
	if err := dial(t, n).Put(t.Context(), []byte("k"), bytes.Repeat([]byte("v"), 1<<20)); err != nil {
		t.Error(err)
	}
	files := 0
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // it was there a moment ago
		}
		if info, err := e.Info(); err == nil && !e.IsDir() {
			files++
			if info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has mode %v", path, info.Mode())
			}
		}
		return nil
	})
	if err != nil || files < 5 {
		t.Errorf("%d files, %v", files, err)
	}
	if said := n.Stderr(); !strings.Contains(said, "look into the data directory") {
		t.Errorf("it says nothing of the directory:\n%s", said)
	}
}

// TestTooFewDescriptors: with fewer than it can work with a node does not start, and
// says how many it needs.
func TestTooFewDescriptors(t *testing.T) {
	if elsewhere != nil {
		t.Skip("about processes of this machine")
	}
	_, err := startLimited(t, 200, t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "the limit of open files is 200: this node needs ") {
		t.Error(err)
	}
}
