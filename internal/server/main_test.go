package server

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

var verbose = flag.Bool("serverlog", false, "write the server's log to standard error")

// TestMain fails if goroutines are left. Ours end with Shutdown; memberlist's
// probes end by themselves, after a probe's time, and on a starved machine that is
// some seconds: the wait ends when they have.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		var err error
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if err = goleak.Find(); err == nil {
				break
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// testConfig is a small node on loopback, all in memory. Its memory is the Go
// heap's, which the race detector sees.
func testConfig() Config {
	c := Config{
		Fabric: iwarp.New(iwarp.Options{}), DataDir: "data", FS: crashfs.New(),
		Shards: 4, MemoryLimit: 256 << 20, RegionSize: 80 << 20, IndexRegionSize: 8 << 20,
		MemoryKind: mem.Heap, CacheBytes: 4 << 20, MinFreeBytes: -1, LogBytes: 64 << 20,
		// The peers of the tests send no keepalives, and a test that works with large
		// values beside others under the race detector may be silent for 20 s. Tests of
		// these bounds set their own.
		Idle: 5 * time.Minute, SendTimeout: 5 * time.Minute,
	}
	if testing.Short() {
		// The race detector looks at each byte of the first files of the log; and the
		// scrubber takes a third of the time there, if it has the default rate.
		c.LogBytes, c.ScrubRate = 2*store.MinLogBytes, 256<<10
	}
	if *verbose {
		c.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return c
}

// startServer starts a node and shuts it down at the end of the test.
func startServer(t testing.TB, change func(*Config)) *Server {
	t.Helper()
	cfg := testConfig()
	if change != nil {
		change(&cfg)
	}
	srv, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	return srv
}
