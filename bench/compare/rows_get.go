package main

import "github.com/rdmakv/rdmakv/bench/compare/report"

// allRows are all questions, in the order of the page.
func allRows(o options) []row {
	list := []*row{
		getShm(o), getShmMillion(o), rateShm(o), multiGetMillion(o), growth(o), getIwarp(o), rateIwarp(o), multiGet(o), memoryPerKey(o), residentPerKey(o),
		largeGets(o), sized(o, "get-1k", 1<<10), sized(o, "get-16k", 16<<10),
		putsDurableOne(o), putsDurableMany(o), putsOffOne(o), putsOff(o),
		getReplicas(o), multiGetReplicas(o), putsReplicasOne(o), putsReplicasMany(o),
		largePuts(o), largePutsCache(o), largePutsDurable(o), floors(o), restarted(o),
	}
	if o.big {
		list = append(list, grownTo(o, 10_000_000), grownTo(o, 50_000_000))
	}
	var out []row
	for _, r := range list {
		out = append(out, *r)
	}
	return out
}

// few makes a data set smaller for a test of the program.
func (o options) few(n uint64) uint64 {
	if o.quick {
		return min(n, 20_000)
	}
	return n
}

func single(op string) workload { return workload{op: op, callers: 1} }

// A get of one client by shared memory.
func getShm(o options) *row {
	d := dataset{o.few(10_000), 64, "uniform"}
	r := newRow("get-shm", "Shared memory: one client, gets of 64 B",
		"One caller, one get after the other, 10,000 keys chosen uniformly, 16 B keys. rdmakv has read every key once before, so that it knows the places.", p50())
	r.add(
		ours(o, "rdmakv shm", way{fabric: "shm", wait: "adaptive", sync: "off", touch: true}, d, single("get")),
		ours(o, "rdmakv shm, places not known", way{fabric: "shm", wait: "adaptive", sync: "off", cache: -1}, d, single("get")),
	)
	r.add(peer{"redis", "unix", ""}.ways(d, single("get"))...)
	r.add(peer{"memcached", "unix", ""}.ways(d, single("get"))...)
	r.add(lmdb("LMDB", d, 1))
	r.add(pingPongInC("unix", 64, false), pingPongInC("unix", 64, true), copies(64))
	return r.
		versus("p50 at most that of LMDB", "rdmakv shm", "LMDB", report.AtMost, 1).
		headline("get of 64 B, shm, 10 k keys, p50, to LMDB in memory").
		target("p50 at most 1 µs", "rdmakv shm", "", report.AtMost, 1).
		headline("get of 64 B, shm, one caller, p50").
		target("p50 at most 1/10 of Redis over its UNIX socket", "rdmakv shm", "redis unix", report.AtMost, 0.1).
		headline("get of 64 B, shm, one caller, p50, to Redis over its UNIX socket").
		spun("the same against a Redis client that spins as well", "rdmakv shm", "redis unix", report.AtMost, 0.1).
		aside("places not known, against LMDB", "rdmakv shm, places not known", "lmdb", report.AtMost, 1)
}

// The same of a store that is larger than a processor's caches.
func getShmMillion(o options) *row {
	d := dataset{o.few(1_000_000), 64, "zipf"}
	r := newRow("get-shm-1m", "Shared memory: one client, gets of 64 B, 1 M keys, Zipf 0.99",
		"One caller, one get after the other, as YCSB's scrambled Zipfian choice has it. rdmakv has read every key before, and its location cache has room for all places, so that it knows them; LMDB's reader has read every key, so that its map is there.", p50())
	r.add(
		ours(o, "rdmakv shm", way{fabric: "shm", wait: "adaptive", sync: "off", touch: true}, d, single("get")),
		ours(o, "rdmakv shm, places not known", way{fabric: "shm", wait: "adaptive", sync: "off", cache: -1}, d, single("get")),
		lmdb("LMDB", d, 1),
	)
	r.add(peer{"redis", "unix", ""}.inGo(d, single("get")), peer{"redis", "unix", ""}.inC(d, single("get"), false))
	r.add(peer{"memcached", "unix", ""}.inGo(d, single("get")), peer{"memcached", "unix", ""}.inC(d, single("get"), false))
	return r.
		versus("p50 at most half of LMDB's", "rdmakv shm", "LMDB", report.AtMost, 0.5).
		headline("get of 64 B, shm, 1 M keys, Zipf, places known, p50, to LMDB in memory").
		aside("places not known, against LMDB", "rdmakv shm, places not known", "lmdb", report.AtMost, 1).
		headline("the same with no place known").
		aside("against Redis over its UNIX socket", "rdmakv shm", "redis unix", report.AtMost, 0.1)
}

// Gets per second of one thread by shared memory.
func rateShm(o options) *row {
	d := dataset{o.few(1_000_000), 64, "zipf"}
	r := newRow("rate-shm", "Shared memory: gets per second of one client thread, 64 B, 1 M keys, Zipf 0.99",
		"One caller, one get after the other. The choice of keys is YCSB's scrambled Zipfian one; the location cache of rdmakv has its default size, and nothing is in it at first: gets of keys that were not read before look the place up.", rate())
	r.add(
		ours(o, "rdmakv shm", way{fabric: "shm", wait: "adaptive", sync: "off"}, d, single("get")),
		ours(o, "rdmakv shm, places known", way{fabric: "shm", wait: "adaptive", sync: "off", touch: true}, d, single("get")),
		lmdb("LMDB", d, 1),
	)
	r.add(peer{"memcached", "tcp", ""}.ways(d, single("get"))...)
	r.add(peer{"memcached", "unix", ""}.ways(d, single("get"))...)
	r.add(peer{"redis", "unix", ""}.ways(d, single("get"))...)
	return r.
		target("at least 2 M gets/s", "rdmakv shm", "", report.AtLeast, 2e6).
		headline("gets/s of 64 B, shm, one thread, 1 M keys, Zipf, no place known at first").
		aside("the same with places known", "rdmakv shm, places known", "", report.AtLeast, 2e6).
		headline("the same with places known").
		aside("LMDB's", "LMDB", "", report.AtLeast, 2e6).
		headline("the same of LMDB in memory").
		target("at least 10 times memcached with one connection", "rdmakv shm", "memcached tcp,memcached unix", report.AtLeast, 10).
		spun("the same against a memcached client that spins", "rdmakv shm", "memcached tcp,memcached unix", report.AtLeast, 10)
}

// A get of one client by iWARP, in three ways of waiting.
func getIwarp(o options) *row {
	d := dataset{o.few(10_000), 64, "uniform"}
	r := newRow("get-iwarp", "iWARP over loopback: one client, one-READ gets of 64 B",
		"One caller, one get after the other, 10,000 keys chosen uniformly, every place known: each get is one READ. The ping-pong has the bytes of that READ in both directions. Server and client of rdmakv both have the way of waiting that the line names.", p50())
	for _, wait := range []string{"poll", "event", "adaptive"} {
		r.add(ours(o, "rdmakv iwarp, "+wait, way{fabric: "iwarp", wait: wait, sync: "off", touch: true}, d, single("get")))
	}
	// When both ends sleep, the result depends on where the kernel puts them; so
	// they are also put on one core, and on one each.
	for _, on := range placements() {
		l := single("get")
		l.pins = on
		r.add(ours(o, "rdmakv iwarp, event, "+on.String(), way{fabric: "iwarp", wait: "event", sync: "off", touch: true}, d, l),
			pinnedPingPong(64, false, on), peer{"redis", "tcp", ""}.inC(d, l, false))
	}
	r.add(pingPongInGo(64, true), pingPongInGo(64, false), pingPongInC("tcp", 64, true), pingPongInC("tcp", 64, false))
	r.add(peer{"redis", "tcp", ""}.ways(d, single("get"))...)
	r.add(peer{"memcached", "tcp", ""}.ways(d, single("get"))...)
	return r.
		versus("spinning: at most 1.08 of a TCP ping-pong in Go", "rdmakv iwarp, poll", "TCP ping-pong in Go, both spin", report.AtMost, 1.08).
		headline("one-READ get of 64 B, iwarp, p50, to a TCP ping-pong in Go, both spin").
		versus("sleeping, a core for each end: at most 1.1 of a TCP ping-pong in Go", "rdmakv iwarp, event, two cores", "TCP ping-pong in Go, both sleep, two cores", report.AtMost, 1.1).
		headline("the same, both sleep, on two cores").
		versus("sleeping, both on one core: at most 1.1 of a TCP ping-pong in Go", "rdmakv iwarp, event, one core", "TCP ping-pong in Go, both sleep, one core", report.AtMost, 1.1).
		headline("the same, both sleep, on one core").
		target("adaptive: at most half of Redis' GET", "rdmakv iwarp, adaptive", "redis tcp", report.AtMost, 0.5).
		spun("the same against a Redis client that spins", "rdmakv iwarp, adaptive", "redis tcp", report.AtMost, 0.5).
		versus("asleep at both ends, as Redis is, a core for each", "rdmakv iwarp, event, two cores", "Redis TCP, C, two cores", report.AtMost, 1).beside().
		versus("asleep at both ends, as Redis is, on one core", "rdmakv iwarp, event, one core", "Redis TCP, C, one core", report.AtMost, 1).beside()
}

// Gets of many callers by iWARP.
func rateIwarp(o options) *row {
	d, l := dataset{o.few(50_000), 64, "uniform"}, workload{op: "get", callers: 50}
	r := newRow("rate-iwarp-50", "iWARP over loopback: gets per second of 50 callers in one client process, 64 B",
		"50 goroutines on one connection of rdmakv, every place known, against 50 connections of the peers, and one of Redis on which 50 requests are under way. 50,000 keys chosen uniformly.", rate())
	r.add(
		ours(o, "rdmakv iwarp", way{fabric: "iwarp", wait: "adaptive", sync: "off", touch: true}, d, l),
		ours(o, "rdmakv shm", way{fabric: "shm", wait: "adaptive", sync: "off", touch: true}, d, l),
	)
	r.add(peer{"redis", "tcp", ""}.ways(d, l)...)
	r.add(peer{"redis", "tcp", ""}.pipelined(d, l))
	r.add(peer{"redis", "unix", ""}.inBench(d, l))
	r.add(peer{"memcached", "tcp", ""}.ways(d, l)...)
	return r.
		target("at least 2.5 times Redis with 50 connections", "rdmakv iwarp", "redis tcp", report.AtLeast, 2.5).
		headline("gets/s of 64 B, iwarp, 50 callers, to Redis with 50 connections").
		target("at least Redis with one connection, pipelined", "rdmakv iwarp", "redis tcp pipelined", report.AtLeast, 1).
		headline("gets/s of 64 B, iwarp, 50 callers, to Redis with one connection, 50 requests pipelined").
		aside("against Redis over its UNIX socket", "rdmakv iwarp", "redis unix", report.AtLeast, 2).
		aside("against memcached", "rdmakv iwarp", "memcached tcp", report.AtLeast, 2)
}

// sized are gets of middling values.
func sized(o options, name string, value int) *row {
	d := dataset{o.few(10_000), value, "uniform"}
	r := newRow(name, "One client, gets of "+bytesWord(value),
		"One caller, one get after the other, 10,000 keys chosen uniformly, every place known to rdmakv.", p50())
	r.add(
		ours(o, "rdmakv shm", way{fabric: "shm", wait: "adaptive", sync: "off", touch: true}, d, single("get")),
		ours(o, "rdmakv iwarp", way{fabric: "iwarp", wait: "adaptive", sync: "off", touch: true}, d, single("get")),
		pingPongInGo(value, true), pingPongInGo(value, false), copies(value),
	)
	for _, p := range []peer{{"redis", "tcp", ""}, {"redis", "unix", ""}, {"memcached", "tcp", ""}} {
		r.add(p.inC(d, single("get"), false), p.inC(d, single("get"), true))
	}
	return r.
		aside("shared memory against Redis over its UNIX socket", "rdmakv shm", "redis unix", report.AtMost, 1).
		aside("iWARP, adaptive, against Redis over TCP", "rdmakv iwarp", "redis tcp", report.AtMost, 1)
}
