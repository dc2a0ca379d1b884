package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/shm"
	"github.com/rdmakv/rdmakv/test/node"
)

const (
	// warmKeys are keys of TestWarm that nothing writes once they are there, and warmKeysShort so in a guest.
	warmKeys      = 200_000
	warmKeysShort = 10_000

	warmValue   = 64
	warmClients = 4

	// warmLost is how many of them a kill may cost: those of a part of the index that was being moved.
	warmLost = 1000
)

// A warmRun is one data directory of a cache over several lives.
type warmRun struct {
	dir     string
	args    []string
	keys    int
	keepers map[int]bool // that were seen
	n       *node.Node
	c       *client.Client
}

// TestWarm has a cache killed under load, killed while it starts, and stopped, again and again: the next process of the node, with memory_keep, begins with the keys that there
// were, none of them older than was acknowledged or seen, and gives out higher versions. A keeper that is killed costs the keys and nothing else, and when
// memory_keep has passed there is no keeper any more, and the next start is empty.
func TestWarm(t *testing.T) {
	if elsewhere != nil {
		t.Skip("the keeper of a node on another machine cannot be killed from here")
	}
	t.Logf("seed %d", *seedFlag)
	rnd := rand.New(rand.NewPCG(*seedFlag, 23))
	r := &warmRun{dir: t.TempDir(), args: []string{"--memory-keep", "5m"}, keys: warmKeys, keepers: make(map[int]bool)}
	if testing.Short() {
		r.keys = warmKeysShort
	}
	t.Cleanup(func() {
		for pid := range r.keepers {
			if isKeeper(pid) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	units := killUnits()
	r.start(t)
	r.fill(t)
	want := r.hits(t)
	if want != r.keys {
		t.Fatalf("%d keys are there of %d", want, r.keys)
	}
	writes, absent := uint64(0), 0
	for round, end := range []string{"kill", "stop", "kill", "kill"} {
		load := startLoad(t, r.c, units, rnd.Uint64(), false)
		load.underWay(t)
		time.Sleep(time.Duration(20+rnd.IntN(400)) * time.Millisecond)
		lost := 0
		if end == "stop" {
			load.end(t)
			r.stop(t)
		} else {
			if err := r.n.Kill(); err != nil {
				t.Fatal(err)
			}
			load.end(t)
			lost = warmLost
		}
		writes += load.writes.Load()
		if round%2 == 1 {
			killedAtStart(t, r.dir, time.Duration(rnd.IntN(150))*time.Millisecond, r.all()...)
			lost = warmLost
		}
		r.start(t)
		if !strings.Contains(r.n.Stderr(), "taken over") {
			t.Errorf("the log does not say that memory was taken over")
		}
		gone, err := verifyWarmUnits(t.Context(), r.c, units)
		if err != nil {
			t.Fatalf("round %d, seed %d: %v", round, *seedFlag, err)
		}
		absent += gone
		got := r.hits(t)
		if kept := r.kept(t); !kept.Keeper || kept.Bytes == 0 || kept.Believed < uint64(got) {
			t.Errorf("the node says of what was kept: %+v", kept)
		}
		t.Logf("%s: ready after %v, %d of %d keys are there, %d of those that were written", end, r.n.Startup, got, want, gone)
		if got > want || want-got > lost {
			t.Errorf("round %d (%s), seed %d: %d keys are there, and were %d", round, end, *seedFlag, got, want)
		}
		want = got
	}
	if len(r.keepers) != 1 {
		t.Errorf("keepers %v, want one all the time", r.keepers)
	}
	if writes == 0 {
		t.Error("there was no load")
	}
	t.Logf("%d writes acknowledged, %d keys of theirs were lost", writes, absent)

	// A keeper that is killed.
	for pid := range r.keepers {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "the log does not tell of the keeper that is gone", func() bool { return strings.Contains(r.n.Stderr(), "the next start begins empty") })
	load := startLoad(t, r.c, units, rnd.Uint64(), false)
	load.underWay(t)
	load.end(t)
	if kept := r.kept(t); kept.Keeper {
		t.Errorf("the node says of a keeper that is gone: %+v", kept)
	}
	if got := r.hits(t); got != want {
		t.Errorf("%d keys are there without the keeper, and were %d", got, want)
	}
	r.stop(t)
	r.start(t)
	if got := r.hits(t); got != 0 {
		t.Errorf("%d keys are there behind a keeper that was killed", got)
	}
	if _, err := verifyWarmUnits(t.Context(), r.c, units); err != nil {
		t.Fatal(err)
	}
	r.stop(t)

	// A time that passes.
	r.args = []string{"--memory-keep", "1s"}
	r.start(t)
	keeper := r.keeper(t)
	if err := r.c.Put(t.Context(), []byte("one"), []byte("1")); err != nil {
		t.Fatal(err)
	}
	r.stop(t)
	await(t, "the keeper does not end", func() bool { return !isKeeper(keeper) })
	r.start(t)
	if v, err := r.c.Get(t.Context(), []byte("one")); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("behind memory_keep there is %q, %v", v, err)
	}
	if !strings.Contains(r.n.Stderr(), "this start begins empty") {
		t.Error("the log does not say why nothing was kept")
	}
	r.stop(t)
}

// all are the arguments of a node of the run.
func (r *warmRun) all() []string {
	return append([]string{"--mode", "cache", "--lease", "1s", "--log-level", "info", "--log-format", "text"}, r.args...)
}

func (r *warmRun) start(t *testing.T) {
	t.Helper()
	r.n = startNode(t, r.dir, r.all()...)
	r.keepers[r.keeper(t)] = true
	r.c = dial(t, r.n)
}

// stop stops the node as an upgrade does.
func (r *warmRun) stop(t *testing.T) {
	t.Helper()
	if code, err := r.n.Stop(time.Minute); err != nil || code != 0 {
		t.Fatalf("stop: %d, %v", code, err)
	}
}

// kept is what the node says of the memory that was kept, once it has looked at all of it.
func (r *warmRun) kept(t *testing.T) (kept keptStats) {
	t.Helper()
	await(t, "the node is not done with what was kept", func() bool {
		all, err := admin.Of(r.c).Stats(t.Context())
		st := struct{ Kept *keptStats }{&kept}
		if err == nil {
			err = json.Unmarshal(all.Server, &st)
		}
		if err != nil {
			t.Fatal(err)
		}
		return kept.Done
	})
	return kept
}

type keptStats struct {
	Keeper, Done    bool
	Bytes, Believed uint64
}

// TestWarmShm: over shm, where clients map the memory of a node and nobody else may write it, the next process copies it, once the leases of the one before are over.
func TestWarmShm(t *testing.T) {
	if elsewhere != nil || *fabricFlag == "verbs" {
		t.Skip("about fabric shm, whose peers are on this machine")
	}
	t.Parallel() // it mostly waits for leases
	const keys = 2000
	dir := t.TempDir()
	args := []string{"--fabric", "shm", "--mode", "cache", "--memory-keep", "30s", "--lease", "1s", "--memory-limit", "64MiB"}
	start := func() (*node.Node, *client.Client) {
		n := startNode(t, dir, args...)
		return n, dial(t, n, func(cfg *client.Config) { cfg.Fabrics = []rdma.Fabric{shm.New(shm.Options{})} })
	}
	n, c := start()
	for i := range keys {
		key := manyKey(nil, i)
		if err := c.Put(t.Context(), key, appendRecord(nil, key, uint64(i), warmValue)); err != nil {
			t.Fatal(err)
		}
	}
	for _, end := range []string{"kill", "stop"} {
		if end == "kill" {
			if err := n.Kill(); err != nil {
				t.Fatal(err)
			}
		} else if code, err := n.Stop(time.Minute); err != nil || code != 0 {
			t.Fatalf("stop: %d, %v", code, err)
		}
		n, c = start()
		for i := range keys {
			key := manyKey(nil, i)
			value, err := c.Get(t.Context(), key)
			if err != nil {
				t.Fatalf("%s: get of %q: %v", end, key, err)
			}
			if seq, err := parseRecord(key, value); err != nil || seq != uint64(i) {
				t.Fatalf("%s: get of %q: sequence %d, %v", end, key, seq, err)
			}
		}
	}
	if code, err := n.Stop(time.Minute); err != nil || code != 0 {
		t.Fatalf("stop: %d, %v", code, err)
	}
}

var keeperLine = regexp.MustCompile(`memory is kept for the next start.* keeper=(\d+)`)

// keeper is the process that keeps the memory of the node, as its log says.
func (r *warmRun) keeper(t *testing.T) int {
	t.Helper()
	m := keeperLine.FindStringSubmatch(r.n.Stderr())
	if m == nil {
		t.Fatalf("the log names no keeper: %s", r.n.Stderr())
	}
	pid, err := strconv.Atoi(m[1])
	if err != nil || !isKeeper(pid) {
		t.Fatalf("process %d is no keeper (%v)", pid, err)
	}
	return pid
}

// isKeeper says whether a process is there and a keeper.
func isKeeper(pid int) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && strings.Contains(string(line), "keep-memory")
}

// await waits for a condition.
func await(t *testing.T, why string, is func() bool) {
	t.Helper()
	for until := time.Now().Add(30 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal(why)
		}
	}
}

// each calls f for all batches of keys that nothing writes, several at a time.
func (r *warmRun) each(t *testing.T, f func(from int) error) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(warmClients)
	for from := 0; from < r.keys; from += manyBatch {
		group.Go(func() error { return f(from) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// fill puts the keys that nothing writes afterwards.
func (r *warmRun) fill(t *testing.T) {
	t.Helper()
	r.each(t, func(from int) error {
		pairs := make([]client.Pair, manyBatch)
		for i := range pairs {
			pairs[i].Key = manyKey(nil, from+i)
			pairs[i].Value = appendRecord(nil, pairs[i].Key, 1, warmValue)
		}
		return r.c.MultiPut(t.Context(), pairs)
	})
}

// hits is how many of them are there. What is there is checked.
func (r *warmRun) hits(t *testing.T) int {
	t.Helper()
	var hits atomic.Int64
	r.each(t, func(from int) error {
		keys := make([][]byte, manyBatch)
		for i := range keys {
			keys[i] = manyKey(nil, from+i)
		}
		results, err := r.c.MultiGet(t.Context(), keys)
		if err != nil {
			return err
		}
		for i, res := range results {
			if errors.Is(res.Err, client.ErrNotFound) {
				continue
			}
			if res.Err != nil {
				return fmt.Errorf("get of %q: %w", keys[i], res.Err)
			}
			if seq, err := parseRecord(keys[i], res.Value); err != nil || seq != 1 {
				return fmt.Errorf("get of %q: sequence %d, %w", keys[i], seq, err)
			}
			hits.Add(1)
		}
		return nil
	})
	return int(hits.Load())
}

// verifyWarmUnits reads every key of the load behind a restart and settles what became of the writes that were under way.
func verifyWarmUnits(ctx context.Context, c *client.Client, units [][]*unit) (absent int, err error) {
	for _, mine := range units {
		for _, u := range mine {
			gone, err := u.verifyWarm(ctx, c)
			if err != nil {
				return 0, err
			}
			absent += gone
		}
	}
	return absent, nil
}

// verifyWarm is verify for a cache: a key may be absent. If it is there, it shows the newest write that was acknowledged, or the one that was under way, and
// nothing that is older than somebody had read.
func (u *unit) verifyWarm(ctx context.Context, c *client.Client) (absent int, err error) {
	next := u.next
	u.next = nil
	for i, key := range u.keys {
		item, err := c.GetItem(ctx, key)
		w := u.acked[i]
		switch {
		case errors.Is(err, client.ErrNotFound):
			if w.there() && !w.passing() {
				absent++
			}
			u.acked[i].gone = true
			if next != nil {
				u.acked[i].seq = max(w.seq, next[i].seq)
			}
			if u.counter { // it begins anew
				u.acked[i] = state{}
				u.seen[i].Store(0)
			}
			continue
		case err != nil:
			return 0, fmt.Errorf("key %q: %w", key, err)
		}
		seq, err := u.parse(i, item.Value)
		if err != nil {
			return 0, err
		}
		if next != nil && next[i].there() && seq == next[i].seq && item.Version > u.version {
			w = next[i]
			u.acked[i] = w
		}
		switch seen := u.seen[i].Load(); {
		case !w.there() || seq != w.seq || seq < seen:
			return 0, fmt.Errorf("key %q: found sequence %d of version %#x; %d was acknowledged (deleted: %v, version %#x), under way was %+v, and somebody had read %d",
				key, seq, item.Version, w.seq, w.gone, w.version, next, seen)
		case w.version != 0 && item.Version != w.version:
			return 0, fmt.Errorf("key %q: found version %#x, was told %#x", key, item.Version, w.version)
		case !w.from.IsZero() && time.Since(w.to) > clockMost:
			return 0, fmt.Errorf("key %q: it is there, and was to expire at %v", key, w.to)
		}
		u.acked[i].version = item.Version
	}
	for i := range u.acked {
		u.version = max(u.version, u.acked[i].version)
	}
	return absent, nil
}

// TestWarmChanged: memory that was kept is not used by a node of another configuration, which says why, nor by any start behind that one; and a second
// process on the directory of a node does not start.
func TestWarmChanged(t *testing.T) {
	t.Parallel() // it mostly waits
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("0123456789abcdef0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	cache := []string{"--mode", "cache", "--memory-keep", "30s", "--lease", "1s", "--log-level", "info"}
	for _, c := range []struct {
		name string
		args []string // beside those of a cache, or in the place of them
		says string   // "" where the change says nothing of it
	}{
		{"shards", append(slices.Clone(cache), "--shards", "4"), "shards, this node 4"},
		{"a secret", append(slices.Clone(cache), "--secret-file", secret), "another configuration (mode, shards, secret)"},
		{"less memory", append(slices.Clone(cache), "--memory-limit", "24MiB", "--expert-region-size", "2MiB", "--expert-index-region-size", "2MiB"), "the memory limit allows"},
		{"nothing is kept", []string{"--mode", "cache"}, ""},
		{"durable", []string{"--mode", "durable"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			stop := func(n *node.Node) {
				t.Helper()
				if code, err := n.Stop(time.Minute); err != nil || code != 0 {
					t.Fatalf("stop: %d, %v", code, err)
				}
			}
			n := startNode(t, dir, cache...)
			key := []byte("key")
			if err := dial(t, n).Put(t.Context(), key, []byte("old")); err != nil {
				t.Fatal(err)
			}
			var ended *node.ExitError
			if second, err := node.Start(t.Context(), node.Options{Bin: filepath.Join(bin, "kvserver"), Args: serverArgs(dir, c.args...), On: elsewhere}); !errors.As(err, &ended) {
				_ = second.Kill()
				t.Errorf("a second process on the directory: %v", err)
			} else if !strings.Contains(ended.Stderr, "a data_dir of its own") || ended.Code != 1 {
				t.Errorf("a second process on the directory ends with %d: %s", ended.Code, ended.Stderr)
			}
			stop(n)
			n = startNode(t, dir, c.args...)
			if !strings.Contains(n.Stderr(), c.says) {
				t.Errorf("the log does not say %q: %s", c.says, n.Stderr())
			}
			stop(n)
			n = startNode(t, dir, cache...)
			if v, err := dial(t, n).Get(t.Context(), key); !errors.Is(err, client.ErrNotFound) {
				t.Errorf("behind the change there is %q, %v", v, err)
			}
			stop(n)
		})
	}
}
