// Package clienttest is what the tests of the client and of its rooms run against: fakes of a
// server and of a cluster (Server, Node), of fabrics (Rig, Mapped) and of a network (Proxy).
// It knows no room of the client, so that each of them can be tested with it.
// Package node, below, is a real server in the test's process.
package clienttest

import (
	"context"
	"flag"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"
)

var verbose = flag.Bool("logs", false, "write the logs of client and server to standard error")

// Logger is where the logs of a part of a test go: nowhere without -logs.
func Logger(part string) *slog.Logger {
	if !*verbose {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("part", part)
}

// DeadPort is an address where nothing listens.
func DeadPort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Eventually waits until cond holds; what says what was waited for.
func Eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	begin := time.Now()
	for !cond() {
		if time.Since(begin) > 2*time.Minute { // costs nothing where it happens
			t.Fatalf("did not happen within 2 min: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// Within is the test's context, with a limit.
func Within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func all[T any](seq func(func(T) bool), ok func(T) bool) bool {
	for v := range seq {
		if !ok(v) {
			return false
		}
	}
	return true
}
