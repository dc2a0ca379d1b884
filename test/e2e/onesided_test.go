package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/test/node"
)

// adminPort calls the admin port.
func adminPort(t testing.TB, n *node.Node, method, path string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+n.Admin+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(data)
}

// TestOneSidedForReal stops every handler of the server, while its fabric and
// beat go on. Gets of present and of absent keys are answered all the same,
// for more than two leases; what needs the server's code is not. (The lease is
// long enough that a busy machine does not starve the client for all of it: it
// would then ask by SEND, as it must.)
func TestOneSidedForReal(t *testing.T) {
	n := startNode(t, t.TempDir(), "--pprof", "--lease", "3s")
	writer := dial(t, n)
	const keys = 200
	key := func(i int) []byte { return fmt.Appendf(nil, "key %03d", i) }
	size := func(i int) int {
		if i%20 == 0 {
			return 100_000 // in chunks
		}
		return i * 37 % 3000
	}
	for i := range keys {
		if err := writer.Put(t.Context(), key(i), appendRecord(nil, key(i), uint64(i), size(i))); err != nil {
			t.Fatal(err)
		}
	}
	// A new client: it knows no place of any key. The table of regions it got
	// with its session; that is the server's last word to it.
	c := dial(t, n)
	waitOneSided(t, c)

	rounds := 0
	round := func() error {
		for i := range keys {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			value, err := c.Get(ctx, key(i))
			if err != nil {
				return err
			}
			if seq, err := parseRecord(key(i), value); err != nil || seq != uint64(i) {
				t.Fatalf("sequence %d, %v, want %d", seq, err, i)
			}
			if _, err := c.Get(ctx, fmt.Appendf(nil, "absent %d", i)); !errors.Is(err, client.ErrNotFound) {
				return fmt.Errorf("get of an absent key: %v, want %v", err, client.ErrNotFound)
			}
		}
		rounds++
		return nil
	}
	var before, after client.Counters
	for try := 1; ; try++ {
		if code, body := adminPort(t, n, http.MethodPost, "/debug/handlers/block"); code != http.StatusOK {
			t.Fatalf("block: %d %s", code, body)
		}
		var err error
		before, rounds = c.Counters(), 0
		for start := time.Now(); err == nil && time.Since(start) < 7*time.Second; {
			err = round()
		}
		after = c.Counters()
		if after.Fallbacks.NoLease == before.Fallbacks.NoLease || try == 3 {
			if err != nil {
				t.Fatalf("round %d: %v\n%+v", rounds, err, after)
			}
			break
		}
		// A busy machine has starved the client for a whole lease, and it asked, as it must.
		t.Logf("no lease in round %d: %v", rounds, err)
		if code, _ := adminPort(t, n, http.MethodPost, "/debug/handlers/unblock"); code != http.StatusOK {
			t.Fatal("unblock failed")
		}
		waitOneSided(t, c)
	}
	t.Logf("%d gets in %d rounds, %.2f READs per get", after.Gets-before.Gets, rounds,
		float64(after.Reads-before.Reads)/float64(after.Gets-before.Gets))
	if after.SendGets != before.SendGets {
		t.Errorf("%d gets went by SEND", after.SendGets-before.SendGets)
	}
	if got := after.OneSidedHits + after.OneSidedMisses - before.OneSidedHits - before.OneSidedMisses; got != after.Gets-before.Gets {
		t.Errorf("%d of %d gets are counted as one-sided", got, after.Gets-before.Gets)
	}
	// The handlers are stopped indeed.
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := writer.Put(ctx, key(0), nil); err == nil {
		t.Error("a put was answered although every handler is stopped")
	}
	if code, _ := adminPort(t, n, http.MethodPost, "/debug/handlers/unblock"); code != http.StatusOK {
		t.Fatal("unblock failed")
	}
	if err := c.Put(t.Context(), key(1), []byte("new")); err != nil {
		t.Fatal(err)
	}
	if v, err := c.Get(t.Context(), key(1)); err != nil || string(v) != "new" {
		t.Fatalf("after unblock: %q, %v", v, err)
	}
}

// waitOneSided waits until a miss is answered by READs: the server has read
// its keys back, so that the index tells of all of them.
func waitOneSided(t testing.TB, c *client.Client) {
	t.Helper()
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		before := c.Counters().OneSidedMisses
		if _, err := c.Get(t.Context(), []byte("surely absent")); !errors.Is(err, client.ErrNotFound) {
			t.Fatal(err)
		}
		if c.Counters().OneSidedMisses > before {
			return
		}
		if time.Since(start) > 30*time.Second {
			t.Fatal("the server has not filled its memory")
		}
	}
}

// TestRestart restarts the server, cleanly and not, under a client that stays:
// it finds back by itself, and what it remembered of the old memory is not
// believed.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, dir)
	addr := n.Data
	c := dial(t, n)
	key, want := []byte("key"), ""
	for round := range 6 {
		want = fmt.Sprintf("value of round %d", round)
		if err := c.Put(t.Context(), key, []byte(want)); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if v, err := c.Get(t.Context(), key); err != nil || string(v) != want {
			t.Fatalf("round %d: %q, %v", round, v, err)
		}
		if round%2 == 0 {
			if code, err := n.Stop(20 * time.Second); err != nil || code != 0 {
				t.Fatalf("round %d: SIGTERM: exit code %d, %v\n%s", round, code, err, n.Stderr())
			}
		} else if err := n.Kill(); err != nil {
			t.Fatal(err)
		}
		n = startNode(t, dir, "--listen", addr)
		if v, err := c.Get(t.Context(), key); err != nil || string(v) != want {
			t.Fatalf("round %d after the restart: %q, %v, want %q", round, v, err, want)
		}
	}
	if got := c.Counters().Connects; got < 7 {
		t.Errorf("%d connects were counted, want at least 7", got)
	}
}

// TestAdmin: what the admin port answers.
func TestAdmin(t *testing.T) {
	n := startNode(t, t.TempDir())
	c := dial(t, n)
	if err := c.Put(t.Context(), []byte("k"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{
		"/healthz": 200, "/readyz": 200, "/metrics": 200, "/nothing": 404, "/debug/pprof/": 404,
	} {
		if code, body := adminPort(t, n, http.MethodGet, path); code != want {
			t.Errorf("%s: %d, want %d\n%s", path, code, want, body)
		}
	}
	if code, _ := adminPort(t, n, http.MethodPost, "/debug/handlers/block"); code != 404 {
		t.Errorf("the debug switch is there without --pprof: %d", code)
	}
}
