package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/test/node"
)

// A big run: go test ./test/e2e -run TestFullAgain -v -restart-keys 10000000 -restart-memory 4GiB -timeout 20m
var (
	restartKeys   = flag.Int("restart-keys", 60_000, "keys of TestFullAgain")
	restartValue  = flag.Int("restart-value", 84, "bytes of a value of TestFullAgain; keys have 16")
	restartMemory = flag.String("restart-memory", "512MiB", "memory limit of its nodes")
	restartDir    = flag.String("restart-dir", "", "data directory that TestFullAgain leaves behind, and finds again; empty: a new one")
	restartArgs   = flag.String("restart-args", "", "one more argument of its nodes, as --expert-prefault=on")
	restartHold   = flag.Bool("restart-hold", false, "wait for an interrupt before the node of TestFullAgain ends")
)

// restartStats is what TestFullAgain compares of a node.
type restartStats struct {
	Store struct {
		Shards       int           `json:"shards"`
		ShardsFilled int           `json:"shards_filled"`
		Uptime       time.Duration `json:"uptime_ns"`
		Keys         uint64        `json:"keys"`
		Slotless     uint64        `json:"slotless"`
		FillKeys     uint64        `json:"fill_keys"`
		Resident     uint64        `json:"resident"`
		FromDisk     uint64        `json:"from_disk"`
		MemoryUsed   uint64        `json:"memory_used"`
		ItemBytes    uint64        `json:"item_bytes"`
		IndexBytes   uint64        `json:"index_bytes"`
		RetiredBytes uint64        `json:"retired_bytes"`
		Pebble       struct {
			DiskBytes uint64 `json:"disk_bytes"`
			L0Files   int64  `json:"l0_files"`
		} `json:"pebble"`
		Log struct {
			Behind      uint64 `json:"behind"`
			Checkpoints struct {
				Done   uint64 `json:"done"`
				Failed uint64 `json:"failed"`
			} `json:"checkpoints"`
		} `json:"log"`
	}
}

func askRestart(t *testing.T, c *client.Client) (st restartStats) {
	t.Helper()
	all, err := admin.Of(c).Stats(t.Context())
	if err == nil {
		err = json.Unmarshal(all.Server, &st)
	}
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// memoryOf says what a key costs over its payload.
func (st *restartStats) memoryOf() string {
	s, n := &st.Store, float64(st.Store.Keys)
	payload := float64(16 + *restartValue)
	return fmt.Sprintf("%.1f B a key over the payload of %.0f B (items %.1f, index %.1f, retired %.1f), %d without slot",
		float64(s.MemoryUsed)/n-payload, payload, float64(s.ItemBytes)/n-payload, float64(s.IndexBytes)/n, float64(s.RetiredBytes)/n, s.Slotless)
}

// restartRun is one data directory over several lives.
type restartRun struct {
	dir  string
	keys int
}

func (r *restartRun) start(t *testing.T) (*node.Node, time.Time) {
	t.Helper()
	args := []string{"--memory-limit", *restartMemory, "--sync", "off"}
	if r.keys <= 100_000 {
		args = append(args, "--lease", "1s") // the quick test waits for several
	}
	if *restartArgs != "" {
		args = append(args, *restartArgs)
	}
	begun := time.Now()
	return startNode(t, r.dir, args...), begun
}

// TestFullAgain fills a node, stops it cleanly, kills it, and starts it again each
// time: the first get is answered at once, by message as long as memory fills,
// and in the end every key is where one READ finds it. What it took is logged.
func TestFullAgain(t *testing.T) {
	if *restartKeys <= 100_000 {
		t.Parallel() // it mostly waits for leases
	}
	r := &restartRun{dir: filepath.Join(t.TempDir(), "d"), keys: *restartKeys}
	if *restartDir != "" {
		r.dir = *restartDir
	}
	if _, err := os.Stat(r.dir); err != nil {
		n, _ := r.start(t)
		r.load(t, n)
		if code, err := n.Stop(time.Minute); err != nil || code != 0 {
			t.Fatalf("stop: %d, %v", code, err)
		}
	}
	n := r.again(t, "after a clean stop")
	// What was put last is in the log alone.
	c := dial(t, n)
	behind := askRestart(t, c).Store.Log.Behind
	for i := range min(r.keys, 300_000) / manyBatch {
		r.put(t, c, i*manyBatch)
		behind = max(behind, askRestart(t, c).Store.Log.Behind)
	}
	t.Logf("killed with %.1f MiB of the log that the base did not have", float64(behind)/(1<<20))
	c.Close()
	if err := n.Kill(); err != nil {
		t.Fatal(err)
	}
	n = r.again(t, "after a crash")
	if *restartHold {
		t.Logf("node at %s, admin %s, pid %d", n.Data, n.Admin, n.PID())
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, os.Interrupt)
		<-stop
	}
	if code, err := n.Stop(time.Minute); err != nil || code != 0 {
		t.Errorf("stop: %d, %v", code, err)
	}
}

// put stores one batch of keys.
func (r *restartRun) put(t *testing.T, c *client.Client, from int) {
	pairs := make([]client.Pair, min(manyBatch, r.keys-from))
	for i := range pairs {
		pairs[i].Key = manyKey(nil, from+i)
		pairs[i].Value = appendRecord(nil, pairs[i].Key, 1, *restartValue)
	}
	if err := c.MultiPut(t.Context(), pairs); err != nil {
		t.Error(err)
	}
}

// load stores every key.
func (r *restartRun) load(t *testing.T, n *node.Node) {
	var next atomic.Int64
	var wg sync.WaitGroup
	begun := time.Now()
	for range 4 {
		c := dial(t, n)
		wg.Go(func() {
			for !t.Failed() {
				from := int(next.Add(manyBatch)) - manyBatch
				if from >= r.keys {
					return
				}
				r.put(t, c, from)
			}
		})
	}
	c := dial(t, n)
	loaded := make(chan struct{})
	go func() {
		wg.Wait()
		close(loaded)
	}()
	var behind uint64
	for done := false; !done; {
		select {
		case <-loaded:
			done = true
		case <-time.After(50 * time.Millisecond):
		}
		behind = max(behind, askRestart(t, c).Store.Log.Behind)
	}
	st := askRestart(t, c)
	if st.Store.Keys+st.Store.Slotless < uint64(r.keys) {
		t.Fatalf("%d keys of %d are counted, %d without slot", st.Store.Keys, r.keys, st.Store.Slotless)
	}
	took := time.Since(begun)
	t.Logf("%d keys loaded in %v, %.0f a second; at most %.1f MiB of the log that the base did not have; right after: %s", r.keys, took.Round(time.Millisecond),
		float64(r.keys)/took.Seconds(), float64(behind)/(1<<20), st.memoryOf())
	for wait := time.Now(); askRestart(t, c).Store.RetiredBytes > 0 && time.Since(wait) < 10*time.Second; {
		time.Sleep(50 * time.Millisecond)
	}
	st = askRestart(t, c)
	t.Logf("a lease later: %s", st.memoryOf())
}

// again starts the node anew and waits until memory is full.
func (r *restartRun) again(t *testing.T, how string) *node.Node {
	t.Helper()
	n, begun := r.start(t)
	c := dial(t, n)
	key := manyKey(nil, r.keys/2)
	value, err := c.Get(t.Context(), key)
	if err != nil {
		t.Fatalf("%s: the first get: %v", how, err)
	}
	first := time.Since(begun)
	if _, err := parseRecord(key, value); err != nil {
		t.Fatalf("%s: the first get: %v", how, err)
	}
	sends := c.Counters().SendGets
	var st restartStats
	for {
		if st = askRestart(t, c); st.Store.FillKeys >= uint64(r.keys) {
			break
		}
		if time.Since(begun) > 5*time.Minute {
			t.Fatalf("%s: memory does not fill: %+v", how, st)
		}
		time.Sleep(20 * time.Millisecond)
	}
	filled := time.Since(begun)
	for st.Store.ShardsFilled < st.Store.Shards {
		time.Sleep(20 * time.Millisecond)
		if st = askRestart(t, c); time.Since(begun) > 5*time.Minute {
			t.Fatalf("%s: misses are not believed: %+v", how, st)
		}
	}
	believed := time.Since(begun)
	t.Logf("%s: ready after %v, first get after %v (%d by SEND), memory full after %v (%.2f M keys/s), misses believed after %v; %s",
		how, n.Startup.Round(time.Millisecond), first.Round(time.Millisecond), sends, filled.Round(time.Millisecond),
		float64(r.keys)/(filled-n.Startup).Seconds()/1e6, believed.Round(time.Millisecond), st.memoryOf())
	if st.Store.Keys != uint64(r.keys) || st.Store.Slotless != 0 {
		t.Errorf("%s: %d keys have a slot and %d have none, stored were %d", how, st.Store.Keys, st.Store.Slotless, r.keys)
	}
	// Every part of the key space is in memory now, and says what was stored.
	before := c.Counters().SendGets
	keys := make([][]byte, min(manyBatch, r.keys))
	for i := range keys {
		keys[i] = manyKey(nil, i*(r.keys/len(keys)))
	}
	results, err := c.MultiGet(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	for i, res := range results {
		if res.Err == nil {
			_, res.Err = parseRecord(keys[i], res.Value)
		}
		if res.Err != nil {
			t.Errorf("%s: get of %q: %v", how, keys[i], res.Err)
		}
	}
	if by := c.Counters().SendGets - before; by > uint64(len(keys))/10 {
		t.Errorf("%s: %d of %d gets went by SEND though memory is full", how, by, len(keys))
	}
	c.Close()
	return n
}
