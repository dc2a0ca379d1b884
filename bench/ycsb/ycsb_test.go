package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pingcap/go-ycsb/pkg/generator"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/load"
	"github.com/rdmakv/rdmakv/test/node"
)

var binFlag = flag.String("bin", "", "directory with kvserver; empty: build it")

// startNode starts a node as a process of its own, with all fabrics there are.
func startNode(t *testing.T) *node.Node {
	t.Helper()
	dir := t.TempDir()
	bin := *binFlag
	if bin == "" {
		bin = filepath.Join(dir, "bin")
		build := exec.Command("go", "build", "-o", bin+"/", "./cmd/kvserver")
		build.Dir = filepath.Join("..", "..")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	n, err := node.Start(t.Context(), node.Options{Bin: filepath.Join(bin, "kvserver"), Args: []string{
		"--data-dir", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--admin-listen", "", "--log-level", "warn", "--memory-limit", "512MiB"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the node's standard error:\n%s", n.Stderr())
		}
	})
	return n
}

// TestWorkloads runs the six workloads as a user would, over shared memory and
// over TCP, and looks at the store afterwards.
func TestWorkloads(t *testing.T) {
	n := startNode(t)
	for i, name := range []string{"a", "b", "c", "d", "e", "f"} {
		fabric := []string{"auto", "iwarp"}[i%2]
		env := append(node.CleanEnv(os.Environ()), "RDMAKV_FABRIC="+fabric)
		begun := time.Now()
		var stderr bytes.Buffer
		err := run(t.Context(), []string{"-workload", name, "-p", "rdmakv.servers=" + n.Data, "-p", "recordcount=300", "-p", "operationcount=600",
			"-p", "threadcount=4", "-p", "table=" + name, "both"}, env, &stderr)
		if err != nil {
			t.Fatalf("workload %s: %v %s", name, err, stderr.String())
		}
		t.Logf("workload %s by %s: %v", name, fabric, time.Since(begun))
		c := dialTest(t, n.Data)
		records := 0
		for e, err := range c.Scan(t.Context(), client.ScanOptions{Prefix: []byte(name + ":")}) {
			if err != nil {
				t.Fatal(err)
			}
			record, err := parseRecord(e.Value, nil)
			if err != nil || len(record) != 10 {
				t.Fatalf("%q has %d fields, %v", e.Key, len(record), err)
			}
			for field, content := range record {
				if len(content) != 100 {
					t.Fatalf("%q: %s has %d bytes", e.Key, field, len(content))
				}
			}
			records++
		}
		if inserts := name == "d" || name == "e"; records < 300 || (records > 301) != inserts {
			t.Errorf("workload %s left %d records", name, records)
		}
	}
}

func dialTest(t *testing.T, addr string) *client.Client {
	t.Helper()
	cfg, err := clientConfig([]string{"RDMAKV_SERVERS=" + addr})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestBinding: each call of the interface, what fails, and updates that must not
// be lost.
func TestBinding(t *testing.T) {
	n := startNode(t)
	d := &db{c: dialTest(t, n.Data)}
	ctx := t.Context()
	if err := d.Insert(ctx, "t", "k", map[string][]byte{"a": []byte("1"), "b": []byte("2")}); err != nil {
		t.Fatal(err)
	}
	const writers, each = 4, 25
	done := make(chan error, writers)
	for w := range writers {
		go func() {
			var err error
			for i := range each {
				err = errors.Join(err, d.Update(ctx, "t", "k", map[string][]byte{fmt.Sprintf("f%d-%d", w, i): []byte("x")}))
			}
			done <- err
		}()
	}
	for range writers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	record, err := d.Read(ctx, "t", "k", nil)
	if err != nil || len(record) != 2+writers*each {
		t.Errorf("%d fields, want %d: updates were lost; %v", len(record), 2+writers*each, err)
	}
	record, err = d.Read(ctx, "t", "k", []string{"b"})
	if err != nil || len(record) != 1 || string(record["b"]) != "2" {
		t.Errorf("field b: %v, %v", record, err)
	}
	keys, values := []string{"m1", "m2"}, []map[string][]byte{{"a": []byte("x")}, {"a": []byte("y")}}
	if err := d.BatchInsert(ctx, "t", keys, values); err != nil {
		t.Error(err)
	}
	if err := d.BatchUpdate(ctx, "t", keys, []map[string][]byte{{"b": []byte("1")}, {"b": []byte("2")}}); err != nil {
		t.Error(err)
	}
	records, err := d.BatchRead(ctx, "t", keys, nil)
	if err != nil || len(records) != 2 || string(records[1]["a"]) != "y" || string(records[1]["b"]) != "2" {
		t.Errorf("%v, %v", records, err)
	}
	records, err = d.Scan(ctx, "t", "m", 10, nil)
	if err != nil || len(records) != 2 {
		t.Errorf("scan: %v, %v", records, err)
	}
	if err := d.BatchDelete(ctx, "t", keys); err != nil {
		t.Error(err)
	}
	if err := d.outcome(); err != nil {
		t.Error(err)
	}
	if _, err := d.Read(ctx, "t", "m1", nil); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a deleted record: %v", err)
	}
	if err := d.outcome(); err == nil || !strings.Contains(err.Error(), "1 operations failed") {
		t.Errorf("outcome %v", err)
	}
	for _, bad := range []string{"\x05a", "\x01a", "\x01a\x02b", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"} {
		if _, err := parseRecord([]byte(bad), nil); !errors.Is(err, errRecord) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestUsage: impossible options are reported before anything is connected.
func TestUsage(t *testing.T) {
	for line, want := range map[string]string{
		"":                                   "want one of load",
		"fly":                                "want one of load",
		"-workload z run":                    `-workload is "z"`,
		"-p x run":                           "want NAME=VALUE",
		"-p threadcount=5000 run":            "threadcount=5000",
		"-p threadcount=0 run":               "threadcount=0",
		"-P /nonexistent run":                "no such file",
		"-p rdmakv.cache_entries=none load":  "CACHE_ENTRIES",
		"-p rdmakv.nonsense=1 load":          "NONSENSE",
		"-p rdmakv.servers=127.0.0.1:1 load": "127.0.0.1:1",
	} {
		err := run(context.Background(), strings.Fields(line), []string{"RDMAKV_TIMEOUT=1s"}, &bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", line, err, want)
		}
	}
}

// TestSameLaw compares the choices of kvclient bench (internal/load) with
// go-ycsb's generator. Which keys are popular differs, for go-ycsb hashes the
// bytes of a number in another order than YCSB does; how popular they are does
// not.
func TestSameLaw(t *testing.T) {
	const keys, draws = 1_000_000, 200_000 // so many keys that no two popular numbers have the same
	theirs := generator.NewScrambledZipfian(0, keys-1, generator.ZipfianConstant)
	rnd := rand.New(rand.NewSource(5))
	o := load.Options{Open: func(context.Context, int) (load.Store, error) { return nil, nil }, Records: keys, Mix: load.Mix{load.OpGet: 1},
		Choice: load.Zipfian, Workers: 1, Operations: 1, Seed: 9}
	ours, err := o.Draw(draws)
	if err != nil {
		t.Fatal(err)
	}
	counts := [2]map[string]int{{}, {}}
	for _, key := range ours {
		counts[0][string(key)]++
		counts[1][fmt.Sprint(theirs.Next(rnd))]++
	}
	a, b := popular(counts[0]), popular(counts[1])
	for i := range 30 { // the others differ by less than chance
		if diff := math.Abs(float64(a[i] - b[i])); diff > 0.15*float64(b[i])+5*math.Sqrt(float64(b[i])) {
			t.Errorf("the key of rank %d came %d times, go-ycsb's %d times", i, a[i], b[i])
		}
	}
	if a[0] < 10*a[20] {
		t.Errorf("the most popular keys came %v times", a[:30])
	}
}

// popular is how often each key came, most often first.
func popular(count map[string]int) []int {
	list := slices.Collect(maps.Values(count))
	slices.Sort(list)
	slices.Reverse(list)
	return list
}
