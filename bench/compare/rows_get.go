package main

import "github.com/rdmakv/rdmakv/bench/compare/report"

// allRows are all questions, in the order of the page.
func allRows(o options) []row {
	list := []*row{
		getShm(o), rateShm(o), getIwarp(o), rateIwarp(o), multiGet(o), largeGets(o),
		putsDurableOne(o), putsDurableMany(o), putsOffOne(o), putsOff(o), memoryPerKey(o), residentPerKey(o), growth(o),
		sized(o, "get-1k", 1<<10), sized(o, "get-16k", 16<<10), largePuts(o), largePutsCache(o), largePutsDurable(o), floors(o), restarted(o),
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
	r.add(pingPongInC("unix", 64, false), pingPongInC("unix", 64, true), copies(64))
	return r.
		target("p50 at most 1 µs", "rdmakv shm", "", report.AtMost, 1).
		headline("get of 64 B, shm, one caller, p50").
		target("p50 at most 1/10 of Redis over its UNIX socket", "rdmakv shm", "redis unix", report.AtMost, 0.1).
		headline("get of 64 B, shm, one caller, p50, to Redis over its UNIX socket").
		spun("the same against a Redis client that spins as well", "rdmakv shm", "redis unix", report.AtMost, 0.1)
}

// Gets per second of one thread by shared memory.
func rateShm(o options) *row {
	d := dataset{o.few(1_000_000), 64, "zipf"}
	r := newRow("rate-shm", "Shared memory: gets per second of one client thread, 64 B, 1 M keys, Zipf 0.99",
		"One caller, one get after the other. The choice of keys is YCSB's scrambled Zipfian one; the location cache of rdmakv has its default size, and nothing is in it at first: gets of keys that were not read before look the place up.", rate())
	r.add(
		ours(o, "rdmakv shm", way{fabric: "shm", wait: "adaptive", sync: "off"}, d, single("get")),
	)
	r.add(peer{"memcached", "tcp", ""}.ways(d, single("get"))...)
	r.add(peer{"memcached", "unix", ""}.ways(d, single("get"))...)
	r.add(peer{"redis", "unix", ""}.ways(d, single("get"))...)
	return r.
		target("at least 1.5 M gets/s", "rdmakv shm", "", report.AtLeast, 1.5e6).
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
		versus("spinning: at most 1.1 of a TCP ping-pong in Go", "rdmakv iwarp, poll", "TCP ping-pong in Go, both spin", report.AtMost, 1.1).
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
		"50 goroutines on one connection of rdmakv, every place known, against 50 connections of the peers. 50,000 keys chosen uniformly.", rate())
	r.add(
		ours(o, "rdmakv iwarp", way{fabric: "iwarp", wait: "adaptive", sync: "off", touch: true}, d, l),
		ours(o, "rdmakv shm", way{fabric: "shm", wait: "adaptive", sync: "off", touch: true}, d, l),
	)
	r.add(peer{"redis", "tcp", ""}.ways(d, l)...)
	r.add(peer{"redis", "unix", ""}.inBench(d, l))
	r.add(peer{"memcached", "tcp", ""}.ways(d, l)...)
	return r.
		target("at least 2 times Redis with 50 connections", "rdmakv iwarp", "redis tcp", report.AtLeast, 2).
		headline("gets/s of 64 B, iwarp, 50 callers, to Redis with 50 connections").
		aside("against Redis over its UNIX socket", "rdmakv iwarp", "redis unix", report.AtLeast, 2).
		aside("against memcached", "rdmakv iwarp", "memcached tcp", report.AtLeast, 2)
}

// Batches of one caller.
func multiGet(o options) *row {
	d, l := dataset{o.few(50_000), 64, "uniform"}, workload{op: "get", callers: 1, batch: 64}
	r := newRow("multiget-64", "Batches: 64 gets at a time on one connection, 64 B",
		"MultiGet of 64 keys, one call after the other, against 64 GETs in one pipeline. 50,000 keys chosen uniformly, every place known to rdmakv. The figure is keys per second.", rate())
	r.add(
		ours(o, "rdmakv iwarp", way{fabric: "iwarp", wait: "adaptive", sync: "off", touch: true}, d, l),
		ours(o, "rdmakv shm", way{fabric: "shm", wait: "adaptive", sync: "off", touch: true}, d, l),
	)
	r.add(peer{"redis", "tcp", ""}.ways(d, l)...)
	r.add(peer{"memcached", "tcp", ""}.ways(d, l)...)
	return r.
		target("at least Redis with one connection and -P 64", "rdmakv iwarp", "redis tcp", report.AtLeast, 1).
		spun("the same against a Redis client that spins", "rdmakv iwarp", "redis tcp", report.AtLeast, 1)
}

// inRegistered is the name of a contender whose callers put from and get into a client.Buffer, which
// the library has for large values.
func inRegistered(name string) string { return name + ", registered memory" }

// Large values.
func largeGets(o options) *row {
	d := dataset{64, 1 << 20, "uniform"}
	four := workload{op: "get", callers: 4}
	r := newRow("get-1m", "iWARP over loopback: gets of 1 MiB",
		"The figure is values, and so MiB, per second. The stream is what TCP carries when nobody asks for anything; the ping-pong has one request and 1 MiB back. rdmakv checks a checksum of every value, the peers and the floors none.", rate())
	r.add(
		ours(o, "rdmakv iwarp, 4 goroutines", way{fabric: "iwarp", wait: "adaptive", sync: "off", touch: true}, d, four),
		ours(o, inRegistered("rdmakv iwarp, 4 goroutines"), way{fabric: "iwarp", wait: "adaptive", sync: "off", touch: true, registered: true}, d, four),
		ours(o, "rdmakv iwarp, one caller", way{fabric: "iwarp", wait: "adaptive", sync: "off", touch: true}, d, single("get")),
		ours(o, "rdmakv shm, one caller", way{fabric: "shm", wait: "adaptive", sync: "off", touch: true}, d, single("get")),
		stream(1<<20), streamReno(1<<20), pingPongInGo(1<<20, false), copies(1<<20),
	)
	r.add(peer{"redis", "tcp", ""}.inGo(d, single("get")), peer{"redis", "tcp", ""}.inC(d, single("get"), false), peer{"redis", "tcp", ""}.inC(d, single("get"), true))
	r.add(peer{"memcached", "tcp", ""}.inC(d, single("get"), false))
	return r.
		versus("at least 0.6 of a TCP stream with the same congestion control", inRegistered("rdmakv iwarp, 4 goroutines"), "TCP stream in Go, Reno", report.AtLeast, 0.6).
		headline("gets of 1 MiB, iwarp, to a TCP stream with the same congestion control").
		versus("shared memory: at least 0.8 of a copy", "rdmakv shm, one caller", "memory copy of 1 MiB", report.AtLeast, 0.8).
		headline("gets of 1 MiB, shm, to a copy in memory").
		versus("the same into plain slices", "rdmakv iwarp, 4 goroutines", "TCP stream in Go, Reno", report.AtLeast, 0.6).beside().
		versus("against raw TCP throughput with the system's congestion control", "rdmakv iwarp, 4 goroutines", "TCP stream in Go", report.AtLeast, 0.8).beside().
		aside("one caller against raw TCP throughput", "rdmakv iwarp, one caller", "floor tcp", report.AtLeast, 0.8).
		aside("one caller against Redis with one connection", "rdmakv iwarp, one caller", "redis tcp", report.AtLeast, 1)
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

// growth is what a get costs as the store grows.
func growth(o options) *row {
	r := newRow("growth", "Cost as it grows: gets of 64 B, one client, Zipf 0.99",
		"The same load on stores of more and more keys. With the location cache at its default size, and without one, where every get looks the place up.", p50())
	sizes := []struct {
		name    string
		records uint64
	}{{"100 k", 100_000}, {"1 M", 1_000_000}, {"10 M", 10_000_000}}
	if !o.big {
		sizes = sizes[:2]
	}
	for _, s := range sizes {
		d := dataset{o.few(s.records), 64, "zipf"}
		if o.quick {
			d.records = s.records / 100
		}
		r.add(
			ours(o, "rdmakv shm, "+s.name, way{fabric: "shm", wait: "adaptive", sync: "off"}, d, single("get")),
			ours(o, "rdmakv shm, no cache, "+s.name, way{fabric: "shm", wait: "adaptive", sync: "off", cache: -1}, d, single("get")),
			ours(o, "rdmakv iwarp, "+s.name, way{fabric: "iwarp", wait: "adaptive", sync: "off"}, d, single("get")),
			grown(peer{"redis", "unix", ""}.inC(d, single("get"), true), s.name),
		)
	}
	for _, s := range sizes[1:] {
		for _, name := range []string{"rdmakv shm, ", "rdmakv iwarp, "} {
			r.versus(name+s.name+" keys: at most 1.3 of 100 k keys", name+s.name, name+"100 k", report.AtMost, 1.3)
		}
		r.versus("rdmakv shm, no cache, "+s.name+" keys against 100 k keys", "rdmakv shm, no cache, "+s.name, "rdmakv shm, no cache, 100 k", report.AtMost, 1.3).beside()
	}
	return r
}

// grown gives a peer's contender the name of its size.
func grown(c contender, size string) contender {
	c.Name += ", " + size
	return c
}
