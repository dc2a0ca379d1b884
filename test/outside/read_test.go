package outside

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

const (
	// maxLines bounds the program: with less of it than this a newcomer has seen a
	// READ between two processes.
	maxLines = 45
	// patience bounds each step. None of them takes a second on an idle machine.
	patience = 2 * time.Minute
)

// TestRead builds the example outside, and lets one process read from another.
func TestRead(t *testing.T) {
	program := build(t)
	for range 5 {
		if readOnce(t, program) {
			return
		}
	}
	t.Fatal("the server never stayed: each time somebody else had taken its port?")
}

// build makes a module of the example and returns the program.
func build(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	check(t, err)
	source, err := os.ReadFile(filepath.Join(root, "examples", "read", "main.go"))
	check(t, err)
	if n := bytes.Count(source, []byte("\n")); n > maxLines {
		t.Errorf("examples/read has %d lines, at most %d", n, maxLines)
	}
	gomod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	check(t, err)
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	check(t, err)
	version := regexp.MustCompile(`(?m)^go .*$`).Find(gomod)
	dir := t.TempDir()
	write := func(name string, data []byte) { check(t, os.WriteFile(filepath.Join(dir, name), data, 0o644)) }
	write("main.go", source)
	write("go.sum", sums)
	write("go.mod", []byte("module example.com/read\n\n"+string(version)+`

require github.com/rdmakv/rdmakv v0.0.0

replace github.com/rdmakv/rdmakv => `+root+"\n"))
	program := filepath.Join(dir, "read")
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience) // with an empty build cache it compiles the library
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off", "GOTOOLCHAIN=local")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building outside: %v\n%s", err, out)
	}
	return program
}

// readOnce starts the server, and readers until one has read. It reports false if
// the server ended before.
func readOnce(t *testing.T, program string) bool {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	addr := free(t)
	server := exec.CommandContext(ctx, program, "serve", addr)
	var said bytes.Buffer
	server.Stdout, server.Stderr = &said, &said
	check(t, server.Start())
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	for {
		out, err := exec.CommandContext(ctx, program, addr).CombinedOutput()
		if err == nil {
			if want := "SUCCESS: hello, one-sided world!\n"; !strings.HasSuffix(string(out), want) {
				t.Errorf("the reader says %q, want %q at the end", out, want)
			}
			break
		}
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || ctx.Err() != nil {
			cancel()
			<-ended
			t.Fatalf("reader: %v\n%s", err, out)
		}
		select {
		case err := <-ended:
			t.Logf("server at %s: %v\n%s", addr, err, &said)
			return false
		case <-time.After(50 * time.Millisecond): // it does not listen yet
		}
	}
	if err := <-ended; err != nil {
		t.Errorf("server: %v\n%s", err, &said)
	}
	return true
}

// free returns an address without a listener at the moment.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	return l.Addr().String()
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
