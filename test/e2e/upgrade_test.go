package e2e

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
)

var (
	upgradesFlag = flag.Int("upgrades", 4, "upgrades of TestUpgradeKilled")
	// A program that writes format 2 makes the stored stores; see testdata/stored/README.md.
	makeStored = flag.String("make-stored", "", "`directory` that TestMakeStored writes the stored data directories to")
)

// storedKinds are the stored data directories: of a server that was stopped, and of one that
// was killed, whose last writes stand in Pebble's log alone.
var storedKinds = []string{"stopped", "killed"}

// A storedKey is a key of the stored data directories, and what it has there.
type storedKey struct {
	key   []byte
	value []byte // nil: it was deleted, or has expired
	lasts bool   // it has an expiry, in twenty years
}

// storedKeys are all of them: small values, values that stand apart, large ones, numbers, keys
// that were deleted, that expire, and that have expired.
func storedKeys() (all []storedKey) {
	for i := range 400 {
		key := fmt.Appendf(nil, "stored %d", i)
		size := 20 + i%300
		switch {
		case i%40 == 1:
			size = 1500 + 100*i
		case i == 302 || i == 303:
			size = 300_000 + i
		}
		k := storedKey{key: key, value: appendRecord(nil, key, uint64(i+1), size), lasts: i%10 == 5}
		if i%10 >= 8 {
			k.value = nil
		}
		all = append(all, k)
	}
	return append(all, storedKey{key: []byte("stored number"), value: []byte("4711")})
}

// TestMakeStored makes the stored data directories, with the programs that -bin names.
func TestMakeStored(t *testing.T) {
	if *makeStored == "" {
		t.Skip("makes what other tests read: -make-stored DIRECTORY")
	}
	for _, kind := range storedKinds {
		dir := filepath.Join(t.TempDir(), "d")
		n := startNode(t, dir, "--shards", "4")
		c := dial(t, n)
		for i, k := range storedKeys() {
			value, opts := k.value, client.PutOptions{}
			switch {
			case k.lasts:
				opts.TTL = 20 * 365 * 24 * time.Hour
			case value == nil && i%10 == 9:
				opts.TTL = time.Millisecond
			}
			if value == nil {
				value = []byte("to be gone")
			}
			if _, err := c.PutWith(t.Context(), k.key, value, opts); err != nil {
				t.Fatal(err)
			}
			if k.value == nil && opts.TTL == 0 {
				if _, err := c.Delete(t.Context(), k.key); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := c.Increment(t.Context(), []byte("stored number"), 0); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if kind == "killed" {
			if err := n.Kill(); err != nil {
				t.Fatal(err)
			}
		} else if code, err := n.Stop(time.Minute); code != 0 || err != nil {
			t.Fatal(code, err)
		}
		if err := os.WriteFile(filepath.Join(*makeStored, kind+".tar.gz"), packDir(t, dir), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUpgradeKilled starts a server on a stored data directory of format 2 and kills it again
// and again at random moments, also while it upgrades, until it serves: everything is there
// then, and still is when it is killed once more.
func TestUpgradeKilled(t *testing.T) {
	if elsewhere != nil {
		t.Skip("about files, which are here")
	}
	upgrades := *upgradesFlag
	if testing.Short() {
		upgrades = min(upgrades, len(storedKinds))
	}
	t.Logf("%d upgrades, seed %d", upgrades, *seedFlag)
	rnd := rand.New(rand.NewPCG(*seedFlag, 3))
	cut, within := 0, 400*time.Millisecond
	for i := range upgrades {
		kind := storedKinds[i%len(storedKinds)]
		dir := filepath.Join(t.TempDir(), "d")
		unpackDir(t, filepath.Join("testdata", "stored", kind+".tar.gz"), dir)
		if i < len(storedKinds) && !strings.Contains(storeText(t, dir), "format 2\n") {
			t.Fatalf("the stored directory is not of format 2: %q", storeText(t, dir))
		}
		for range 1 + rnd.IntN(4) {
			// The first start of all shows how long one takes here.
			if i > 0 && killedAtStart(t, dir, time.Duration(rnd.Int64N(int64(within))), "--shards", "4") {
				cut++
			}
		}
		n := startNode(t, dir, "--shards", "4")
		within = max(n.Startup, 20*time.Millisecond)
		verifyStored(t, n, fmt.Sprintf("upgrade %d of %q, seed %d", i, kind, *seedFlag))
		if !strings.Contains(storeText(t, dir), "format 4\n") {
			t.Errorf("the directory is not of format 4: %q", storeText(t, dir))
		}
		c := dial(t, n)
		if sum, err := c.Increment(t.Context(), []byte("stored number"), 1); err != nil || sum != 4712 {
			t.Fatalf("the number is %d, %v, want 4712", sum, err)
		}
		if _, err := c.Increment(t.Context(), []byte("stored number"), -1); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.Close(), n.Kill()); err != nil {
			t.Fatal(err)
		}
		n = startNode(t, dir, "--shards", "4")
		verifyStored(t, n, fmt.Sprintf("upgrade %d of %q, killed behind it, seed %d", i, kind, *seedFlag))
		if err := n.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d starts killed before they served", cut)
}
