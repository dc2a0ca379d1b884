package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/clients"
	"github.com/rdmakv/rdmakv/bench/compare/jobs"
	"github.com/rdmakv/rdmakv/bench/compare/report"
	"github.com/rdmakv/rdmakv/bench/compare/servers"
)

// A workload is what a row asks for.
type workload struct {
	op      string // get or put
	callers int    // or connections, of peers
	batch   int    // keys in a call; 0: single calls
	pins    pins
}

func (w workload) keys() int { return max(1, w.batch) }

// words says how many callers ask, and in which batches, for the page.
func (w workload) words() string {
	s := "one caller"
	if w.callers > 1 {
		s = fmt.Sprintf("%d goroutines", w.callers)
	}
	if w.batch > 1 {
		s += fmt.Sprintf(", %d keys a call", w.batch)
	}
	return s
}

// A way is how rdmakv is reached.
type way struct {
	fabric, wait, sync string
	shared             bool // by a server that serves shared memory, whatever the fabric
	memory             bool // mode: cache
	cache              int
	touch              bool
	registered         bool // values stand in a client.Buffer
	// nodes is how many there are of a cluster, 0 for one server alone; replicas is on how many of
	// them each key is, in so many groups of shards; 0: as many groups as cluster init takes.
	nodes, replicas, groups int
	bound                   time.Duration // of gets that may be late
	apart                   bool          // the processor time of the leader is told apart from that of the others
}

// groupsFlag is how cluster init is told of groups, "" where it is not.
func (w way) groupsFlag() string {
	if w.groups == 0 {
		return ""
	}
	return fmt.Sprintf(" --groups %d", w.groups)
}

// serves is the best fabric that the server serves.
func (w way) serves() string {
	if w.shared {
		return "shm"
	}
	return w.fabric
}

// ours is rdmakv: kvserver in one process, package client in another.
func ours(o options, name string, w way, d dataset, l workload) contender {
	how := fmt.Sprintf("kvserver --sync %s --wait-mode %s; package client over %s, one connection, %s", w.sync, w.wait, w.fabric, l.words())
	if w.nodes > 0 {
		how = strings.Replace(how, "one connection", "one connection to each node", 1)
		how = fmt.Sprintf("%d nodes, cluster init --replicas %d%s; %s", w.nodes, w.replicas, w.groupsFlag(), how)
	}
	if w.bound > 0 {
		how += fmt.Sprintf("; gets by ReadBounded(%v)", w.bound)
	}
	if w.memory {
		how = strings.Replace(how, "--sync "+w.sync, "--mode cache", 1)
	}
	switch {
	case w.cache < 0:
		how += ", no location cache"
	case w.touch:
		how += ", every key read twice before"
	}
	if w.registered {
		how += ", into and out of registered memory (client.Buffer)"
	}
	if l.pins.on {
		how += ", pinned to " + l.pins.String()
	}
	rec := rdmakvServer(o, w, d).on(l.pins)
	return contender{
		Contender: report.Contender{Name: name, Kind: report.Ours, System: "rdmakv " + w.fabric, Waiting: w.wait, How: how},
		group:     "rdmakv " + w.fabric,
		measure: func(ctx context.Context, r *rig) (report.Sample, error) {
			return loaded(ctx, r, rec, d, l, w.touch)
		},
	}
}

// rdmakvSettings are those of the kvserver of a row.
func rdmakvSettings(o options, w way, d dataset) servers.Rdmakv {
	// The limit is twice what keys, values and their headers take, because this
	// row does not measure memory.
	limit := max(256<<20, 2*d.records*uint64(d.value+160))
	return servers.Rdmakv{
		Bin: filepath.Join(o.bin, "kvserver"), Sync: w.sync, Wait: w.wait, Shm: w.serves() == "shm", Memory: fmt.Sprintf("%dMiB", limit>>20), Cache: w.memory,
	}
}

// rdmakvServer is the recipe of a kvserver, or of a cluster of them.
func rdmakvServer(o options, w way, d dataset) recipe {
	settings := rdmakvSettings(o, w, d)
	rec := recipe{
		name:  fmt.Sprintf("kvserver %s %s %s%s", w.serves(), w.wait, w.sync, map[bool]string{true: "cache"}[w.memory]),
		start: settings.Start,
		target: func(s *servers.Server) jobs.Target {
			return jobs.Target{
				System: "rdmakv", Addr: s.TCP, Others: s.OtherTCP(), Fabric: w.fabric, ShmDir: s.ShmDir, Wait: w.wait, Cache: w.cache,
				Registered: w.registered, Bound: w.bound,
			}
		},
	}
	if w.apart {
		rec.leader = alone
	}
	if w.nodes > 0 {
		c := servers.Cluster{Rdmakv: settings, Client: filepath.Join(o.bin, "kvclient"), Nodes: w.nodes, Replicas: w.replicas, Groups: w.groups}
		rec.name += fmt.Sprintf(" %d nodes %d replicas %d groups", w.nodes, w.replicas, w.groups)
		rec.start = c.Start
		if w.apart {
			rec.leader = c.Leader
		}
	}
	return rec
}

// alone is the leader where there is one server, or where it was chosen at the start.
func alone(_ context.Context, s *servers.Server) (*servers.Server, error) { return s, nil }

// loaded runs the load generator against a server.
func loaded(ctx context.Context, r *rig, rec recipe, d dataset, l workload, touch bool) (report.Sample, error) {
	s, err := r.server(ctx, rec, d)
	if err != nil {
		return report.Sample{}, err
	}
	program, err := rec.worker(ctx, r)
	if err != nil {
		return report.Sample{}, err
	}
	return rec.measured(ctx, s, func(t jobs.Target) (report.Sample, error) {
		return employ(ctx, job{pins: l.pins, program: program, Load: &jobs.Load{
			Target: t, Records: d.records, Value: d.value, Op: l.op, Choice: d.choice, Callers: l.callers, Batch: l.batch,
			Warm: warm(r.o), Duration: r.o.slice, Touch: touch, Seed: r.o.seed,
		}})
	})
}

// redisReplicas is the system of a Redis whose puts wait for a replica: SET, and WAIT 1 behind it.
const redisReplicas = "redis replicas"

// A peer is Redis or memcached, reached in one way.
type peer struct {
	system  string // redis, redisReplicas or memcached
	network string // tcp or unix
	fsync   string // Redis: appendfsync
}

func (p peer) String() string {
	name := map[string]string{"redis": "Redis", redisReplicas: "Redis WAIT 1", "memcached": "memcached"}[p.system]
	if p.network == "unix" {
		return name + " UNIX"
	}
	return name + " TCP"
}

func (p peer) dialect() clients.Dialect {
	switch p.system {
	case "redis":
		return clients.RedisDialect()
	case redisReplicas:
		return clients.RedisWait()
	}
	return clients.MemcacheDialect()
}

// recipe starts the peer. Redis listens on both; memcached on one of them.
func (p peer) recipe(d dataset) recipe {
	switch p.system {
	case "redis":
		return recipe{
			name:   "redis " + p.fsync,
			start:  servers.Redis{AppendFsync: p.fsync}.Start,
			target: func(s *servers.Server) jobs.Target { return p.target(s) },
		}
	case redisReplicas:
		return recipe{
			name:   "redis with replicas " + p.fsync,
			start:  servers.Redis{AppendFsync: p.fsync, Replicas: 2}.Start,
			target: func(s *servers.Server) jobs.Target { return p.target(s) },
			leader: alone,
		}
	}
	m := servers.Memcached{MemoryMB: int(256 + d.records*uint64(2*d.value+256)>>20), Unix: p.network == "unix"}
	if d.value >= 1<<20-1024 {
		m.LargestMB = "4m"
	}
	return recipe{name: "memcached " + p.network, start: m.Start, target: func(s *servers.Server) jobs.Target { return p.target(s) }}
}

func (p peer) target(s *servers.Server) jobs.Target {
	t := jobs.Target{System: p.system, Network: p.network, Addr: s.TCP, PIDs: s.PIDs()}
	if p.network == "unix" {
		t.Addr = s.Unix
	}
	if p.system == redisReplicas {
		t.System, t.Acks = "redis", 1
	}
	return t
}

// where is the address for a client that takes one of two.
func (p peer) where(s *servers.Server) (tcp, unix string) {
	if p.network == "unix" {
		return "", s.Unix
	}
	return s.TCP, ""
}

// inGo is the peer asked by the load generator.
func (p peer) inGo(d dataset, l workload) contender {
	how := fmt.Sprintf("the load generator of rdmakv, %d connections", l.callers)
	if l.callers == 1 {
		how = "the load generator of rdmakv, one connection"
	}
	if l.batch > 1 {
		how += fmt.Sprintf(", %d requests a write", l.batch)
	}
	return p.contender("Go", "sleeps", how+p.behind(), usual, func(ctx context.Context, r *rig) (report.Sample, error) {
		return loaded(ctx, r, p.recipe(d).on(l.pins), d, l, false)
	})
}

// behind tells what follows the requests of a write.
func (p peer) behind() string {
	if p.system == redisReplicas {
		return ", a WAIT 1 0 at the end of each write; a master and two replicas"
	}
	return ""
}

// inC is the peer asked by the client in C, asleep or spinning.
func (p peer) inC(d dataset, l workload, spin bool) contender {
	return p.speaking(p.dialect(), d, l, spin)
}

// together is the peer asked by the client in C with one request for all keys of a call: Redis'
// MGET, memcached's get of many keys.
func (p peer) together(d dataset, l workload) contender {
	speaks, word := clients.RedisMGet(), "MGET"
	if p.system == "memcached" {
		speaks, word = clients.MemcacheMultiGet(jobs.Keys().Size), "get of many keys"
	}
	c := p.speaking(speaks, d, l, false)
	c.Name += ", " + word
	c.How = fmt.Sprintf("pingpong.c with requests made before, one %s of %d keys a write", strings.TrimSuffix(word, " of many keys"), l.keys())
	return c
}

// speaking is the peer asked by the client in C with the requests of a dialect.
func (p peer) speaking(speaks clients.Dialect, d dataset, l workload, spin bool) contender {
	waits, how := "sleeps", "pingpong.c with requests made before"
	name, counted := "C", usual
	if spin {
		waits, name, counted = "client spins", "C spinning", spinning
	}
	if l.batch > 1 {
		how += fmt.Sprintf(", %d of them a write", l.batch)
	}
	if l.callers > 1 {
		how += fmt.Sprintf(", %d connections, epoll", l.callers)
	}
	if l.pins.on {
		name += ", " + l.pins.String()
		how += ", pinned to " + l.pins.String()
		counted = pinned
	}
	return p.contender(name, waits, how+p.behind(), counted, func(ctx context.Context, r *rig) (report.Sample, error) {
		rec := p.recipe(d).on(l.pins)
		s, err := r.server(ctx, rec, d)
		if err != nil {
			return report.Sample{}, err
		}
		native, err := r.compiled(ctx, l.pins)
		if err != nil {
			return report.Sample{}, err
		}
		q, err := r.asked(speaks, l.op, d, l.keys())
		if err != nil {
			return report.Sample{}, err
		}
		tcp, unix := p.where(s)
		return rec.measured(ctx, s, func(t jobs.Target) (report.Sample, error) {
			return withServerCPU(t, r.o.slice, func() (report.Sample, error) {
				return native.Ask(ctx, clients.Ask{TCP: tcp, Unix: unix, Spin: spin, Requests: q, Connections: l.callers, Duration: r.o.slice})
			})
		})
	})
}

// pipelined is the peer asked over one connection, on which as many requests are under way as
// the workload has callers: all are sent, then all answers are taken. Clients that share a
// connection among their callers, as ours does, come near to it, so it is the peer's best client.
func (p peer) pipelined(d dataset, l workload) contender {
	l.callers, l.batch = 1, l.callers
	c := p.inC(d, l, false)
	c.Name += ", pipelined"
	c.group += " pipelined"
	return c
}

// withServerCPU adds what the servers used while a client of another program ran, its
// warming up taken off by its share of the time.
func withServerCPU(t jobs.Target, slice time.Duration, f func() (report.Sample, error)) (report.Sample, error) {
	before, err := t.CPU()
	if err != nil {
		return report.Sample{}, err
	}
	begin := time.Now()
	got, err := f()
	if err != nil {
		return got, err
	}
	took := time.Since(begin)
	after, err := t.CPU()
	if err == nil {
		t.Spent(&got, before, after, min(1, slice.Seconds()/took.Seconds()))
	}
	return got, err
}

// inBench is Redis asked by redis-benchmark. It takes a number of requests and not
// a time: the first turn finds the number, and each later turn uses the rate of
// the last one.
func (p peer) inBench(d dataset, l workload) contender {
	test := map[string]string{"get": "get", "put": "set"}[l.op]
	how := fmt.Sprintf("redis-benchmark -t %s -c %d -P %d -d %d -r %d", test, l.callers, l.keys(), d.value, d.records)
	known := 0.0 // operations per second
	return p.contender("redis-benchmark", "sleeps", how, usual, func(ctx context.Context, r *rig) (report.Sample, error) {
		s, err := r.server(ctx, p.recipe(d), d)
		if err != nil {
			return report.Sample{}, err
		}
		b := clients.RedisBench{Test: test, Clients: l.callers, Pipeline: l.keys(), Value: d.value, Keys: d.records}
		b.TCP, b.Unix = p.where(s)
		if known == 0 {
			b.Requests = uint64(500 * l.keys() * min(l.callers, 10))
			got, err := b.Run(ctx)
			if err != nil {
				return got, err
			}
			known = got.Rate
		}
		b.Requests = uint64(max(known*r.o.slice.Seconds(), 100))
		got, err := withServerCPU(p.target(s), r.o.slice, func() (report.Sample, error) { return b.Run(ctx) })
		if err == nil {
			known = got.Rate
		}
		return got, err
	})
}

func (p peer) contender(client, waits, how string, counted kind, f func(context.Context, *rig) (report.Sample, error)) contender {
	group := p.system + " " + p.network
	return contender{
		Contender: report.Contender{Name: p.String() + ", " + client, Kind: report.Peer, System: p.system, Waiting: waits, How: how},
		group:     group, client: counted, measure: f,
	}
}

// asked are all the ways in which a peer is asked with this load.
func (p peer) ways(d dataset, l workload) (all []contender) {
	all = append(all, p.inGo(d, l), p.inC(d, l, false))
	if l.callers == 1 {
		all = append(all, p.inC(d, l, true))
	}
	if p.system == "redis" && d.choice == "uniform" {
		all = append(all, p.inBench(d, l))
	}
	return all
}
