package perflab

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/report"
	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/rdma/wait"
)

// Names of contenders that targets speak of.
const (
	readLat   = "ib_read_lat, same bytes"
	readLatE  = "ib_read_lat -e, same bytes"
	redisOne  = "Redis GET, client sleeps"
	redisSpin = "Redis GET, client spins"
	cold      = "rdmakv cold get"
)

func get(mode wait.Mode) string { return "rdmakv get, " + mode.String() }

// questions are all rows.
func (b *bench) questions() []question {
	var rows []question
	for _, size := range sizes {
		rows = append(rows, b.getRow(size))
	}
	return append(rows, b.batchRow(), b.putRow(), b.cpuRow())
}

// label is a size as people write it.
func label(size int) string {
	if size < 1<<10 {
		return fmt.Sprintf("%d B", size)
	}
	return fmt.Sprintf("%d KiB", size>>10)
}

func (b *bench) getRow(size int) question {
	name := strings.ToLower(strings.TrimSuffix(strings.ReplaceAll(label(size), " ", ""), "iB"))
	q := question{Row: report.Row{
		Name: "lab-get-" + strings.TrimSuffix(name, "b"), Title: "Soft-RoCE: get of " + label(size) + ", one client, one at a time",
		Text: fmt.Sprintf("One-READ gets of %d keys at remembered places; each READ takes %d bytes (header, key, value and the rest of its class), "+
			"and perftest READs as many. Redis and the ping-pong go over the loopback's TCP in the same guest. "+
			"A cold get does not remember places: it reads the buckets, then the item.", keys, itemBytes(size)),
		Figure: report.Figure{Name: "p50", Unit: "µs"},
	}}
	perftest := func(flags ...string) turn {
		return func() (report.Sample, error) {
			row, err := b.theirs.table(b.ctx, "ib_read_lat", append([]string{"-s", strconv.Itoa(itemBytes(size)), "-n", strconv.Itoa(*nFlag)}, flags...)...)
			return report.Sample{Ops: uint64(*nFlag), P50: row["t_typical[usec]"], P99: row["99% percentile[usec]"], P999: row["99.9% percentile[usec]"], Max: row["t_max[usec]"]}, err
		}
	}
	q.add(report.Contender{Name: readLat, Kind: report.Floor, System: "perftest", Waiting: "spins", How: "ib_read_lat"}, perftest())
	q.add(report.Contender{Name: readLatE, Kind: report.Floor, System: "perftest", Waiting: "sleeps", How: "ib_read_lat -e"}, perftest("-e"))
	q.add(report.Contender{Name: "TCP ping-pong", Kind: report.Floor, System: "tcp", Waiting: "sleeps", How: "two Go programs"},
		func() (report.Sample, error) { return b.ping(size) })
	for _, spin := range []bool{false, true} {
		c, conn := report.Contender{Name: redisOne, Kind: report.Peer, System: "redis", Waiting: "sleeps", How: "one connection of a Go program"}, b.redis.dial(b.t, spin)
		if spin {
			c.Name, c.Waiting = redisSpin, "client spins"
		}
		q.add(c, func() (report.Sample, error) {
			list := sizedKeys(size)
			return latencies(b.ctx, *nFlag, func(i int) error {
				v, err := conn.get(list[i%keys])
				return right(v, size, err)
			})
		})
	}
	for _, mode := range []wait.Mode{wait.Poll, wait.Event, wait.Adaptive} {
		q.add(report.Contender{Name: get(mode), Kind: report.Ours, System: "rdmakv verbs", Waiting: mode.String(), How: "client.GetInto"},
			func() (report.Sample, error) { return b.sizedGets(b.modes[mode], size, 1) })
	}
	q.add(report.Contender{Name: cold, Kind: report.Ours, System: "rdmakv verbs", Waiting: "adaptive", How: "client.GetInto, CacheEntries -1"},
		func() (report.Sample, error) { return b.sizedGets(b.uncache, size, 2) })
	q.Targets = []report.Target{
		{Text: "one-READ get, of ib_read_lat", Ours: get(wait.Poll), Theirs: []string{readLat}, Want: report.AtMost, Limit: 1.2},
		{Text: "the same, adaptive", Ours: get(wait.Adaptive), Theirs: []string{readLat}, Want: report.AtMost, Limit: 1.2},
		{Text: "sleeping, of ib_read_lat -e", Ours: get(wait.Event), Theirs: []string{readLatE}, Want: report.AtMost, Limit: 1.2, Aside: true},
		{Text: "cold get, of ib_read_lat", Ours: cold, Theirs: []string{readLat}, Want: report.AtMost, Limit: 2.4, Aside: true},
		{Text: "of Redis", Ours: get(wait.Adaptive), Theirs: []string{redisOne, redisSpin}, Want: report.AtMost, Limit: 0.5, Aside: true},
	}
	if size != 64 {
		for i := range q.Targets {
			q.Targets[i].Aside = true // the target is of small values
		}
	}
	return q
}

func right(v []byte, size int, err error) error {
	if err == nil && len(v) != size {
		err = fmt.Errorf("a value of %d bytes, want %d", len(v), size)
	}
	return err
}

// sizedGets are gets one at a time, all of them one-sided, each of that many
// READs at least and hardly more.
func (b *bench) sizedGets(c *client.Client, size, atLeast int) (report.Sample, error) {
	list := sizedKeys(size)
	once := func(i int) (err error) {
		b.buf, err = c.GetInto(b.ctx, list[i%keys], b.buf[:0])
		return right(b.buf, size, err)
	}
	for i := range keys { // fills the cache, outside the count
		if err := once(i); err != nil {
			return report.Sample{}, err
		}
	}
	before := c.Counters()
	s, err := latencies(b.ctx, *nFlag, once)
	after := c.Counters()
	gets, reads := after.Gets-before.Gets, after.Reads-before.Reads
	switch hits := after.OneSidedHits - before.OneSidedHits; {
	case err != nil:
	case hits != gets:
		err = fmt.Errorf("%d of %d gets were one-sided", hits, gets)
	case atLeast == 1 && reads > gets+gets/10, int(reads) < atLeast*int(gets):
		err = fmt.Errorf("%d READs for %d gets, about %d each expected", reads, gets, atLeast)
	}
	s.Paths = map[string]float64{"reads per get": float64(reads) / float64(gets)}
	return s, err
}

// batchRow: as many READs with one doorbell, then the next as many.
func (b *bench) batchRow() question {
	const size = 64
	q := question{Row: report.Row{
		Name: "lab-batch-64", Title: "Soft-RoCE: gets of 64 B a second, in batches",
		Text: fmt.Sprintf("MultiGet of 16 and of 64 keys at remembered places, one batch after the other; perftest with the same number of READs of %d bytes at a doorbell and in flight; "+
			"redis-benchmark with one connection and pipelines of the same lengths.", itemBytes(size)),
		Figure: report.Figure{Name: "rate", Unit: "/s", More: true},
	}}
	for _, n := range []int{16, 64} {
		count := 10 * *nFlag / n * n
		bw, multi, pipe := fmt.Sprintf("ib_read_bw, %d at a doorbell", n), fmt.Sprintf("rdmakv MultiGet of %d", n), fmt.Sprintf("Redis -P %d", n)
		q.add(report.Contender{Name: bw, Kind: report.Floor, System: "perftest", Waiting: "spins", How: fmt.Sprintf("ib_read_bw -t %d -l %d -Q 1", n, n)},
			func() (report.Sample, error) {
				d := strconv.Itoa(n)
				row, err := b.theirs.table(b.ctx, "ib_read_bw", "-s", strconv.Itoa(itemBytes(size)), "-n", strconv.Itoa(count), "-t", d, "-l", d, "-Q", "1")
				return report.Sample{Ops: uint64(count), Rate: row["MsgRate[Mpps]"] * 1e6}, err
			})
		q.add(report.Contender{Name: multi, Kind: report.Ours, System: "rdmakv verbs", Waiting: "adaptive", How: "client.MultiGet"},
			func() (report.Sample, error) { return b.multiGets(b.modes[wait.Adaptive], size, n, count) })
		q.add(report.Contender{Name: pipe, Kind: report.Peer, System: "redis", How: fmt.Sprintf("redis-benchmark -c 1 -P %d", n)},
			func() (report.Sample, error) {
				rate, err := b.redis.bench(b.ctx, "-t", "get", "-n", strconv.Itoa(count), "-c", "1", "-P", strconv.Itoa(n), "-d", strconv.Itoa(size))
				return report.Sample{Ops: uint64(count), Rate: rate}, err
			})
		q.Targets = append(q.Targets,
			report.Target{Text: fmt.Sprintf("batches of %d, of ib_read_bw at the same depth", n), Ours: multi, Theirs: []string{bw}, Want: report.AtLeast, Limit: 1},
			report.Target{Text: fmt.Sprintf("batches of %d, of Redis", n), Ours: multi, Theirs: []string{pipe}, Want: report.AtLeast, Limit: 1, Aside: true})
	}
	return q
}

func (b *bench) multiGets(c *client.Client, size, n, count int) (report.Sample, error) {
	list := sizedKeys(size)
	var results []client.Result
	run := func(count int) error {
		for i := 0; i < count; i += n {
			var err error
			if results, err = c.MultiGet(b.ctx, list[i%keys:i%keys+n], client.ReadInto(results)); err != nil {
				return err
			}
			for _, r := range results {
				if err := right(r.Value, size, r.Err); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := run(4 * keys); err != nil {
		return report.Sample{}, err
	}
	before := c.Counters()
	begun := time.Now()
	if err := run(count); err != nil {
		return report.Sample{}, err
	}
	s := report.Sample{Ops: uint64(count), Seconds: time.Since(begun).Seconds()}
	s.Rate = float64(count) / s.Seconds
	after := c.Counters()
	if hits := after.OneReadHits - before.OneReadHits; hits < uint64(count)*9/10 {
		return s, fmt.Errorf("%d of %d gets were of one READ", hits, count)
	}
	return s, nil
}

func (b *bench) putRow() question {
	const size = 64
	sends, ours, theirs := "two ib_send_lat", "rdmakv put", "Redis SET"
	q := question{Row: report.Row{
		Name: "lab-put-64", Title: "Soft-RoCE: put of 64 B, one client, one at a time, nothing synced",
		Text:   "Overwrites of 64 keys. sync is off here and Redis keeps no file; a put is a SEND, a commit into Pebble without a sync, and a SEND. perftest's figure is of one way, hence two.",
		Figure: report.Figure{Name: "p50", Unit: "µs"},
	}}
	q.add(report.Contender{Name: sends, Kind: report.Floor, System: "perftest", Waiting: "spins", How: "ib_send_lat, times two"},
		func() (report.Sample, error) {
			v, err := b.theirs.run(b.ctx, "t_typical[usec]", "ib_send_lat", "-s", strconv.Itoa(size), "-n", strconv.Itoa(*nFlag))
			return report.Sample{Ops: uint64(*nFlag), P50: 2 * v}, err
		})
	conn := b.redis.dial(b.t, false)
	list, value := sizedKeys(size), bytes.Repeat([]byte{1}, size)
	q.add(report.Contender{Name: theirs, Kind: report.Peer, System: "redis", Waiting: "sleeps", How: "one connection of a Go program"},
		func() (report.Sample, error) {
			return latencies(b.ctx, *nFlag, func(i int) error { return conn.set(list[i%keys], value) })
		})
	q.add(report.Contender{Name: ours, Kind: report.Ours, System: "rdmakv verbs", Waiting: "adaptive", How: "client.Put"},
		func() (report.Sample, error) {
			return latencies(b.ctx, *nFlag, func(i int) error {
				value[0]++
				return b.modes[wait.Adaptive].Put(b.ctx, list[i%keys], value)
			})
		})
	q.Targets = []report.Target{
		{Text: "put, of two ib_send_lat", Ours: ours, Theirs: []string{sends}, Want: report.AtMost, Limit: 1.3, Aside: true},
		{Text: "put, of Redis SET", Ours: ours, Theirs: []string{theirs}, Want: report.AtMost, Limit: 1, Aside: true},
	}
	return q
}

// cpuRow: what a get costs the server's processor. The kernel's work for
// Soft-RoCE, which an adapter would do, is charged to the client or to no
// process, as for perftest.
func (b *bench) cpuRow() question {
	const size = 64
	busy, idle, theirs := "rdmakv, while gets are made", "rdmakv, idle for the same time", "Redis, while gets are made"
	q := question{Row: report.Row{
		Name: "lab-server-cpu", Title: "Soft-RoCE: processor time of the server for one get",
		Text:   "Run time of all threads of the server process (schedstat) over the time of the gets, divided by their number; beside it that of the same server over the same time without any, which is what its beat costs.",
		Figure: report.Figure{Name: "server_cpu_us", Unit: "µs"},
	}}
	measure := func(cpu func() (time.Duration, error), f func() (report.Sample, error)) (report.Sample, error) {
		from, err := cpu()
		if err != nil {
			return report.Sample{}, err
		}
		s, err := f()
		if err != nil {
			return s, err
		}
		to, err := cpu()
		s.ServerCPU = float64((to - from).Nanoseconds()) / 1e3 / float64(s.Ops)
		s.Value = s.ServerCPU
		return s, err
	}
	node := func() (time.Duration, error) { return runTime(b.node.ReadProc("task/*/schedstat")) }
	server := func() (time.Duration, error) {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", b.redis.proc.Pid))
		var all []byte
		for _, f := range files {
			data, _ := os.ReadFile(f)
			all = append(all, data...)
		}
		return runTime(all, err)
	}
	gets := func() (report.Sample, error) { return b.sizedGets(b.modes[wait.Adaptive], size, 1) }
	var last report.Sample
	q.add(report.Contender{Name: busy, Kind: report.Ours, System: "rdmakv verbs", How: "client.GetInto"},
		func() (report.Sample, error) { return measure(node, gets) })
	q.add(report.Contender{Name: idle, Kind: report.Floor, System: "rdmakv verbs", How: "as long as so many gets take, asleep"},
		func() (s report.Sample, err error) {
			if last, err = gets(); err != nil {
				return last, err
			}
			return measure(node, func() (report.Sample, error) {
				time.Sleep(time.Duration(last.Seconds * float64(time.Second)))
				return report.Sample{Ops: last.Ops, Seconds: last.Seconds}, nil
			})
		})
	conn := b.redis.dial(b.t, false)
	q.add(report.Contender{Name: theirs, Kind: report.Peer, System: "redis", How: "one connection"},
		func() (report.Sample, error) {
			return measure(server, func() (report.Sample, error) {
				list := sizedKeys(size)
				return latencies(b.ctx, *nFlag, func(i int) error {
					v, err := conn.get(list[i%keys])
					return right(v, size, err)
				})
			})
		})
	q.Targets = []report.Target{
		{Text: "server CPU of a get beyond that of the idle server (1 is none)", Ours: busy, Theirs: []string{idle}, Want: report.AtMost, Limit: 1.5},
		{Text: "of Redis", Ours: busy, Theirs: []string{theirs}, Want: report.AtMost, Limit: 0.05, Aside: true},
	}
	return q
}

// runTime sums up the first fields of lines of schedstat: nanoseconds on a
// processor.
func runTime(stat []byte, err error) (time.Duration, error) {
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for line := range strings.Lines(string(stat)) {
		first, _, _ := strings.Cut(line, " ")
		n, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("schedstat: %w", err)
		}
		sum += time.Duration(n)
	}
	return sum, nil
}

// versions are what the programs call themselves.
func (b *bench) versions() []report.Version {
	return append(b.programs(), report.Version{Name: "redis", Text: b.redis.version(b.ctx)})
}

// programs are the kernel and perftest.
func (b *bench) programs() []report.Version {
	out, _ := exec.CommandContext(b.ctx, "ib_read_lat", "--version").Output() // what it is good for
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return []report.Version{
		{Name: "kernel of the guest", Text: strings.TrimSpace(string(kernel)) + ", rdma_rxe, QEMU TCG"},
		{Name: "perftest", Text: strings.TrimSpace(string(out))},
	}
}
