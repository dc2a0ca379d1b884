package perflab

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/perf"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/test/node"
)

var (
	binFlag     = flag.String("bin", "", "directory with kvserver and kvclient")
	outFlag     = flag.String("out", "", "file for the result as JSON")
	roundsFlag  = flag.Int("rounds", 5, "rounds; each measures everything once")
	nFlag       = flag.Int("n", 2000, "messages of one latency measurement; a rate takes ten times as many")
	addrFlag    = flag.String("addr", "10.77.0.1", "address of the device")
	deviceFlag  = flag.String("device", "rxe0", "device")
	onlyFlag    = flag.String("only", "", "measure these rows alone, by their numbers from 1: 2,3")
	redisFlag   = flag.String("redis", "", "directory with bin and lib of Redis; TestLabBench needs it")
	rowsFlag    = flag.String("rows", "", "of TestLabBench and TestLabCount these rows alone: lab-get-64,lab-batch-64; count-get-64")
	seedFlag    = flag.Int64("seed", 1, "of the orders of TestLabBench and TestLabCount")
	profileFlag = flag.String("profile", "", "directory for CPU profiles of this end, one for each of our measurements")
)

// The shape of all measurements.
const (
	size  = 64 // bytes of a value, and of perftest's messages
	depth = 16 // of the rates: in flight, and with one doorbell
	keys  = 64
)

// keyOf names the keys, and itemSize is what a one-READ get of one READs: the
// place of the item, with its header and its key.
func keyOf(i int) []byte { return fmt.Appendf(nil, "perflab/%06d", i) }

var itemSize = func() int {
	class, _ := layout.ClassFor(layout.ItemSize(len(keyOf(0)), size, false))
	return layout.ClassSize(class)
}()

// An env is what the measurements share.
type env struct {
	t       *testing.T
	ctx     context.Context
	theirs  perftester
	dev     rdma.Device
	node    *node.Node
	perf    string         // address of a server of fabric perf
	cached  *client.Client // one-READ gets
	uncache *client.Client // two-step gets
	keys    [][]byte
	buf     []byte
}

// measure is one way to get a figure.
type measure func(e *env) (float64, error)

// TestBesidePerftest measures everything in rounds and prints the comparison.
func TestBesidePerftest(t *testing.T) {
	if os.Getenv("RDMAKV_LAB") == "" {
		t.Skip("needs a guest of the lab: Soft-RoCE, perftest, and nothing else that runs")
	}
	e := newEnv(t)
	rows := comparisons()
	if *onlyFlag != "" {
		var some []comparison
		for _, n := range strings.Split(*onlyFlag, ",") {
			i, err := strconv.Atoi(n)
			if err != nil || i < 1 || i > len(rows) {
				t.Fatalf("-only %s: rows are 1 to %d", *onlyFlag, len(rows))
			}
			some = append(some, rows[i-1])
		}
		rows = some
	}
	for round := range *roundsFlag {
		line := fmt.Sprintf("round %d of %d:", round+1, *roundsFlag)
		for i := range rows {
			c := &rows[i]
			// In turns: in every other round theirs comes first.
			pair := []struct {
				measure
				to *[]float64
			}{{func(e *env) (float64, error) { return e.profiled(c.Name, c.ours) }, &c.Ours}, {c.theirs, &c.Theirs}}
			if round%2 == 1 {
				slices.Reverse(pair)
			}
			for _, m := range pair {
				v, err := m.measure(e)
				if err != nil {
					t.Fatalf("round %d, %s: %v", round+1, c.Name, err)
				}
				*m.to = append(*m.to, v)
			}
			line += fmt.Sprintf("  %s %.1f to %.1f;", c.Name, c.Ours[round], c.Theirs[round])
		}
		t.Log(line)
	}
	var out []Row
	for i := range rows {
		rows[i].judge()
		out = append(out, rows[i].Row)
	}
	t.Logf("medians of %d rounds, latencies typical (median):\n%s", *roundsFlag, text(out))
	e.write(out)
}

// A comparison is a row and how its figures are measured.
type comparison struct {
	Row
	ours, theirs measure
}

// comparisons lists all rows, with the goals. Each has a yardstick of its own,
// measured within seconds.
func comparisons() []comparison {
	readLat, itemLat, sendLat := theirLat("ib_read_lat", size), theirLat("ib_read_lat", itemSize), theirLat("ib_send_lat", size)
	twoSends := func(e *env) (float64, error) {
		v, err := sendLat(e)
		return 2 * v, err
	}
	return []comparison{
		{Row{Name: "READ of 64 B (fabric perf)", Unit: "us", Yardstick: "us ib_read_lat"}, (*env).rawLat, readLat},
		{Row{Name: "one-READ get of 64 B", Unit: "us", Yardstick: "us ib_read_lat", Goal: 1.25},
			func(e *env) (float64, error) { return e.gets(e.cached) }, readLat},
		{Row{Name: fmt.Sprintf("the same, whose READ is of %d B", itemSize), Unit: "us", Yardstick: fmt.Sprintf("us ib_read_lat -s %d", itemSize)},
			func(e *env) (float64, error) { return e.gets(e.cached) }, itemLat},
		{Row{Name: "two-step get of 64 B", Unit: "us", Yardstick: "us ib_read_lat", Goal: 2.3},
			func(e *env) (float64, error) { return e.gets(e.uncache) }, readLat},
		{Row{Name: "READs, 16 a doorbell (fabric perf)", Unit: "/s", Yardstick: "/s ib_read_bw"}, (*env).rawRate, theirRate(size)},
		{Row{Name: "gets in batches of 16", Unit: "/s", Yardstick: "/s ib_read_bw", Goal: 0.95, AtLeast: true}, (*env).getRate, theirRate(size)},
		{Row{Name: fmt.Sprintf("the same, whose READs are of %d B", itemSize), Unit: "/s", Yardstick: fmt.Sprintf("/s ib_read_bw -s %d", itemSize)}, (*env).getRate, theirRate(itemSize)},
		{Row{Name: "SEND (fabric perf), two ways", Unit: "us", Yardstick: "us two ib_send_lat"}, (*env).rawSend, twoSends},
		{Row{Name: "put of 64 B, sync off", Unit: "us", Yardstick: "us two ib_send_lat", Goal: 1.3}, (*env).puts, twoSends},
	}
}

// newEnv starts a node and a server of fabric perf, as processes of their own,
// and connects to both.
func newEnv(t *testing.T) *env {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	t.Cleanup(cancel)
	e := &env{t: t, ctx: ctx, theirs: perftester{device: *deviceFlag, addr: *addrFlag, port: 18600}}
	any := net.JoinHostPort(*addrFlag, "0")
	n, err := node.Start(ctx, node.Options{Bin: filepath.Join(*binFlag, "kvserver"), Args: []string{"--data-dir", t.TempDir(), "--listen", any,
		"--admin-listen", "", "--fabric", "verbs", "--log-level", "debug", "--memory-limit", "64MiB", "--expert-region-size", "16MiB", "--expert-index-region-size", "4MiB", "--sync", "off"}})
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
	e.node, e.perf = n, e.perfServer(any)
	fabric := verbs.New(verbs.Options{})
	if e.dev, err = fabric.Open(ctx, *deviceFlag); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.dev.Close(); err != nil {
			t.Error(err)
		}
	})
	e.cached, e.uncache = e.dial(n.Data, 0), e.dial(n.Data, -1)
	value := bytes.Repeat([]byte{0x5a}, size)
	for i := range keys {
		key := keyOf(i)
		e.keys = append(e.keys, key)
		if err := e.cached.Put(ctx, key, value); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

func (e *env) dial(addr string, cache int) *client.Client {
	c, err := client.Dial(e.ctx, client.Config{Servers: []string{addr}, Fabrics: []rdma.Fabric{verbs.New(verbs.Options{})},
		CacheEntries: cache, Timeout: time.Minute, DialTimeout: time.Minute, RequireRDMA: true})
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			e.t.Error(err)
		}
	})
	return c
}

// profiled runs one measurement, under the profiler if that was asked for.
func (e *env) profiled(name string, m measure) (float64, error) {
	if *profileFlag == "" {
		return m(e)
	}
	name, _, _ = strings.Cut(strings.ReplaceAll(name, " ", "_"), ",")
	f, err := os.Create(filepath.Join(*profileFlag, name+".pprof"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	runtime.SetCPUProfileRate(250) // pprof asks for 100 and is told that it is too late
	if err := pprof.StartCPUProfile(f); err != nil {
		return 0, err
	}
	defer pprof.StopCPUProfile()
	return m(e)
}

func (e *env) write(rows []Row) {
	if *outFlag == "" {
		return
	}
	host, _ := os.ReadFile("/proc/sys/kernel/osrelease") // it says so itself if it is not there
	data, err := json.MarshalIndent(struct {
		Kernel string    `json:"kernel"`
		Device string    `json:"device"`
		Time   time.Time `json:"time"`
		Rounds int       `json:"rounds"`
		N      int       `json:"messages"`
		Rows   []Row     `json:"rows"`
	}{string(bytes.TrimSpace(host)), *deviceFlag, time.Now().UTC(), *roundsFlag, *nFlag, rows}, "", "  ")
	if err == nil {
		err = os.WriteFile(*outFlag, append(data, '\n'), 0o644)
	}
	if err != nil {
		e.t.Error(err)
	}
}

// rawLat is a READ through the fabric alone.
func (e *env) rawLat() (float64, error) {
	r, err := perf.Run(e.ctx, e.dev, e.perf, perf.Params{Op: perf.Read, Kind: perf.Latency, Size: size, Iterations: uint64(*nFlag), Warmup: 100}, perf.Options{})
	if err != nil {
		return 0, err
	}
	return r.Latency.Typical, nil
}

func (e *env) rawRate() (float64, error) {
	r, err := perf.Run(e.ctx, e.dev, e.perf, perf.Params{Op: perf.Read, Kind: perf.Bandwidth, Size: size, Depth: depth, Batch: depth, SignalEvery: 1,
		Iterations: uint64(messages()), Warmup: 160}, perf.Options{})
	if err != nil {
		return 0, err
	}
	return r.Bandwidth.Rate, nil
}

// rawSend is a ping and its pong by SEND, the whole way.
func (e *env) rawSend() (float64, error) {
	r, err := perf.Run(e.ctx, e.dev, e.perf, perf.Params{Op: perf.Send, Kind: perf.Latency, Size: size, Iterations: uint64(*nFlag), Warmup: 100}, perf.Options{})
	if err != nil {
		return 0, err
	}
	return 2 * r.Latency.Typical, nil
}
