package membership

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// TestConvergence measures how long a new region's rkey takes to every node,
// and what a node costs while nothing happens, and logs both as a table. It
// asserts that the news arrives, not how fast: docs/decisions has the figures
// of one run. RDMAKV_CONVERGENCE=3,20,100 chooses the numbers of nodes.
func TestConvergence(t *testing.T) {
	sizes := []int{3, 20}
	idle := time.Second
	if list := os.Getenv("RDMAKV_CONVERGENCE"); list != "" {
		sizes, idle = nil, 10*time.Second
		for _, s := range slices.Collect(splitComma(list)) {
			n, err := strconv.Atoi(s)
			if err != nil {
				t.Fatal(err)
			}
			sizes = append(sizes, n)
		}
	}
	t.Logf("%5s %9s | %20s | %20s | %20s | %s", "nodes", "joined", "small: first p50 last", "128 regions at once", "one more of 128", "idle, per node: cpu, goroutines, packets/s, B/s")
	for _, n := range sizes {
		converge(t, n, idle)
	}
}

func splitComma(s string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for len(s) > 0 {
			i := 0
			for i < len(s) && s[i] != ',' {
				i++
			}
			if !yield(s[:i]) {
				return
			}
			s = s[min(i+1, len(s)):]
		}
	}
}

func converge(t *testing.T, n int, idle time.Duration) {
	net := newMemNet()
	before := runtime.NumGoroutine()
	var nodes []*Members
	begun := time.Now()
	defer func() {
		for _, m := range nodes {
			_ = m.Close()
		}
	}()
	for i := range n {
		id := fmt.Sprintf("node-%03d", i)
		cfg := Config{
			NodeID: id, Cluster: "demo", Keys: [][]byte{keyA}, Profile: LAN, Transport: net.end(),
			Self: cluster.Member{Incarnation: cluster.Hash(id), Endpoints: []cluster.Endpoint{
				{Fabric: "verbs", Addr: "10.0.0.1:7400"}, {Fabric: "iwarp", Addr: "10.0.0.1:7400"}}},
			Logger: slog.New(slog.DiscardHandler),
		}
		if i > 0 {
			cfg.Join = []string{"10.0.0.1:7946"}
		}
		m, err := Start(context.Background(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, m)
	}
	for _, m := range nodes {
		eventually(t, m, "all are seen", func() bool {
			return len(m.View().Members) == n // on a starved machine, some are always suspected
		})
	}
	joined := time.Since(begun)

	small := spread(t, nodes, 5, func(i int) *cluster.Table { return regions(10 + i) })
	// Neither fits into a packet of gossip: they go over the reliable channel.
	renewed := func(n, round int) *cluster.Table { // with rkeys of its own in each round
		table := regions(n)
		for r := range table.Regions {
			table.Regions[r].Keys[0].RKey += uint32(round) << 20
		}
		return table
	}
	whole := spread(t, nodes, 5, func(i int) *cluster.Table { return renewed(128, i) })
	large := spread(t, nodes, 5, func(i int) *cluster.Table { return renewed(129+i, 4) })

	time.Sleep(2 * time.Second) // the last news dies down
	cpu, packets, bytes := cpuTime(t), net.packets.Load(), net.packetBytes.Load()
	start := time.Now()
	time.Sleep(idle)
	took := time.Since(start)
	per := func(v int64) float64 { return float64(v) / took.Seconds() / float64(n) }
	var fresh, old, mended, dropped uint64
	for _, m := range nodes {
		s := m.Stats()
		fresh, old, mended, dropped = fresh+s.AdvertsNew, old+s.AdvertsOld, mended+s.Mended, dropped+s.Dropped
	}
	t.Logf("adverts that were new %d, known before %d, mended %d times, messages dropped %d", fresh, old, mended, dropped)
	t.Logf("%5d %9v | %20s | %20s | %20s | %.2f milli-cores, %.1f, %.1f, %.0f", n, joined.Round(time.Millisecond), small, whole, large,
		1000*(cpuTime(t)-cpu).Seconds()/took.Seconds()/float64(n), float64(runtime.NumGoroutine()-before)/float64(n),
		per(net.packets.Load()-packets), per(net.packetBytes.Load()-bytes))
}

// spread publishes tables at one node after the other, and measures when each
// other node has it.
func spread(t *testing.T, nodes []*Members, rounds int, table func(i int) *cluster.Table) string {
	var all []time.Duration
	for round := range rounds {
		from := nodes[0] // one publisher: its table grows
		want := table(round)
		begun := time.Now()
		if err := from.Publish(want); err != nil {
			t.Fatal(err)
		}
		version := from.Table(from.cfg.NodeID).Version
		done := make(chan time.Duration, len(nodes))
		for _, m := range nodes[1:] {
			go func() {
				deadline := time.After(patience)
				for {
					changed := m.Changed()
					m.mu.Lock()
					p := m.peers[from.cfg.NodeID]
					there := p != nil && p.table != nil && p.table.version >= version
					m.mu.Unlock()
					if there {
						done <- time.Since(begun)
						return
					}
					select {
					case <-changed:
					case <-deadline:
						done <- -1
						return
					}
				}
			}()
		}
		for range nodes[1:] {
			d := <-done
			if d < 0 {
				t.Fatalf("%d nodes: a node has not learned of the table within %v", len(nodes), patience)
			}
			all = append(all, d)
		}
	}
	slices.Sort(all)
	ms := func(d time.Duration) string { return d.Round(time.Millisecond).String() }
	return ms(all[0]) + " " + ms(all[len(all)/2]) + " " + ms(all[len(all)-1])
}

func cpuTime(t *testing.T) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		t.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
