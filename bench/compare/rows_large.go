package main

import "github.com/rdmakv/rdmakv/bench/compare/report"

// inRegistered is the name of a contender whose callers put from and get into a client.Buffer, which
// the library has for large values.
func inRegistered(name string) string { return name + ", registered memory" }

// Large values.
func largeGets(o options) *row {
	d := dataset{64, 1 << 20, "uniform"}
	four := workload{op: "get", callers: 4}
	r := newRow("get-1m", "Gets of 1 MiB",
		"The figure is values, and so MiB, per second. The stream is what TCP carries when nobody asks for anything; the ping-pong has one request and 1 MiB back. rdmakv checks a checksum of every value, the peers and the floors none.", rate())
	r.add(
		ours(o, "rdmakv iwarp, 4 goroutines", way{fabric: "iwarp", wait: "adaptive", sync: "off", touch: true}, d, four),
		ours(o, inRegistered("rdmakv iwarp, 4 goroutines"), way{fabric: "iwarp", wait: "adaptive", sync: "off", touch: true, registered: true}, d, four),
		ours(o, "rdmakv iwarp, one caller", way{fabric: "iwarp", wait: "adaptive", sync: "off", touch: true}, d, single("get")),
		ours(o, "rdmakv shm, one caller", way{fabric: "shm", wait: "adaptive", sync: "off", touch: true}, d, single("get")),
		stream(1<<20), pingPongInGo(1<<20, false), copies(1<<20), lmdb("LMDB", d, 1),
	)
	r.add(peer{"redis", "tcp", ""}.inGo(d, single("get")), peer{"redis", "tcp", ""}.inC(d, single("get"), false), peer{"redis", "tcp", ""}.inC(d, single("get"), true))
	r.add(grown(peer{"redis", "tcp", ""}.inGo(d, four), "4 connections"), grown(peer{"redis", "tcp", ""}.inC(d, four, false), "4 connections"))
	r.add(peer{"redis", "unix", ""}.inGo(d, single("get")), peer{"redis", "unix", ""}.inC(d, single("get"), false))
	r.add(peer{"memcached", "tcp", ""}.inC(d, single("get"), false))
	return r.
		versus("at least 0.6 of a TCP stream with the same congestion control", inRegistered("rdmakv iwarp, 4 goroutines"), "TCP stream in Go, Reno", report.AtLeast, 0.6).
		headline("gets of 1 MiB, iwarp, to a TCP stream with the same congestion control").
		versus("shared memory: at least 0.8 of a copy", "rdmakv shm, one caller", "memory copy of 1 MiB", report.AtLeast, 0.8).
		headline("gets of 1 MiB, shm, to a copy in memory").
		versus("the same into plain slices", "rdmakv iwarp, 4 goroutines", "TCP stream in Go, Reno", report.AtLeast, 0.6).beside().
		aside("shared memory, against LMDB", "rdmakv shm, one caller", "lmdb", report.AtLeast, 1).
		aside("shared memory, against Redis over its UNIX socket", "rdmakv shm, one caller", "redis unix", report.AtLeast, 1).
		aside("against the best of Redis, with one connection or four", "rdmakv iwarp, 4 goroutines", "redis tcp", report.AtLeast, 1).
		headline("gets of 1 MiB, iwarp, 4 callers, to Redis with one connection or four").
		aside("one caller against raw TCP throughput", "rdmakv iwarp, one caller", "floor tcp", report.AtLeast, 0.8).
		aside("one caller against the best of Redis", "rdmakv iwarp, one caller", "redis tcp", report.AtLeast, 1)
}

// Large puts.
func largePuts(o options) *row {
	d := dataset{64, 1 << 20, "uniform"}
	four := workload{op: "put", callers: 4}
	r := newRow("put-1m", "Puts of 1 MiB without syncs",
		"The figure is values, and so MiB, per second. rdmakv writes them to its log and to disk, and checks a checksum; Redis without AOF and memcached keep them in memory only.", rate())
	r.add(
		ours(o, "rdmakv iwarp, 4 goroutines", way{fabric: "iwarp", wait: "adaptive", sync: "off"}, d, four),
		ours(o, "rdmakv shm, 4 goroutines", way{fabric: "shm", wait: "adaptive", sync: "off"}, d, four),
		stream(1<<20),
	)
	r.add(peer{"redis", "tcp", ""}.inGo(d, four), peer{"redis", "tcp", ""}.inC(d, four, false), peer{"redis", "unix", ""}.inC(d, four, false))
	r.add(peer{"memcached", "tcp", ""}.inC(d, four, false))
	return r.
		aside("against raw TCP throughput", "rdmakv iwarp, 4 goroutines", "floor tcp", report.AtLeast, 0.8).
		aside("against Redis without AOF", "rdmakv iwarp, 4 goroutines", "redis tcp", report.AtLeast, 1).
		headline("puts of 1 MiB, sync off, iwarp, 4 callers, to Redis without AOF").
		aside("shared memory, against Redis over its UNIX socket", "rdmakv shm, 4 goroutines", "redis unix", report.AtLeast, 1).
		aside("against memcached", "rdmakv iwarp, 4 goroutines", "memcached tcp", report.AtLeast, 1)
}

// Large puts into memory alone.
func largePutsCache(o options) *row {
	d := dataset{64, 1 << 20, "uniform"}
	four := workload{op: "put", callers: 4}
	r := newRow("put-1m-cache", "Puts of 1 MiB into memory alone",
		"The figure is values, and so MiB, per second, with mode: cache, which writes no disk. rdmakv checks a checksum of every value; the floors move bytes and look at none.", rate())
	r.add(
		ours(o, "rdmakv iwarp, 4 goroutines", way{fabric: "iwarp", wait: "adaptive", memory: true}, d, four),
		ours(o, "rdmakv shm, 4 goroutines", way{fabric: "shm", wait: "adaptive", memory: true}, d, four),
		ours(o, inRegistered("rdmakv iwarp, 4 goroutines"), way{fabric: "iwarp", wait: "adaptive", memory: true, registered: true}, d, four),
		ours(o, inRegistered("rdmakv shm, 4 goroutines"), way{fabric: "shm", wait: "adaptive", memory: true, registered: true}, d, four),
		stream(1<<20), copies(1<<20),
	)
	r.add(peer{"redis", "tcp", ""}.inGo(d, four), peer{"redis", "tcp", ""}.inC(d, four, false), peer{"redis", "unix", ""}.inC(d, four, false))
	r.add(peer{"memcached", "tcp", ""}.inC(d, four, false))
	return r.
		versus("at least 0.8 of a TCP stream with the same congestion control", inRegistered("rdmakv iwarp, 4 goroutines"), "TCP stream in Go, Reno", report.AtLeast, 0.8).
		headline("puts of 1 MiB, `mode: cache`, iwarp, to a TCP stream with the same congestion control").
		versus("shared memory: at least 0.3 of a copy", inRegistered("rdmakv shm, 4 goroutines"), "memory copy of 1 MiB", report.AtLeast, 0.3).
		headline("puts of 1 MiB, `mode: cache`, shm, to a copy in memory").
		versus("the same out of plain slices", "rdmakv iwarp, 4 goroutines", "TCP stream in Go, Reno", report.AtLeast, 0.8).beside().
		versus("shared memory: the same out of plain slices", "rdmakv shm, 4 goroutines", "memory copy of 1 MiB", report.AtLeast, 0.3).beside().
		aside("against Redis without AOF", "rdmakv iwarp, 4 goroutines", "redis tcp", report.AtLeast, 1).
		headline("puts of 1 MiB, `mode: cache`, iwarp, 4 callers, to Redis without AOF").
		aside("shared memory, against Redis over its UNIX socket", "rdmakv shm, 4 goroutines", "redis unix", report.AtLeast, 1).
		aside("against memcached", "rdmakv iwarp, 4 goroutines", "memcached tcp", report.AtLeast, 1)
}

// Large puts that are durable.
func largePutsDurable(o options) *row {
	d := dataset{64, 1 << 20, "uniform"}
	four := workload{op: "put", callers: 4}
	r := newRow("put-1m-durable", "Durable puts of 1 MiB",
		"The figure is values, and so MiB, per second. Every answer waits until the value is on disk: kvserver --sync always, Redis appendfsync always with 4 connections.", rate())
	r.add(
		ours(o, "rdmakv iwarp, 4 goroutines", way{fabric: "iwarp", wait: "adaptive", sync: "always"}, d, four),
		ours(o, "rdmakv shm, 4 goroutines", way{fabric: "shm", wait: "adaptive", sync: "always"}, d, four),
		overwrites(1<<20, false), overwrites(1<<20, true),
	)
	r.add(peer{"redis", "tcp", "always"}.inGo(d, four), peer{"redis", "tcp", "always"}.inC(d, four, false), peer{"redis", "unix", "always"}.inC(d, four, false))
	return r.
		versus("at least half of the disk's sequential rate", "rdmakv iwarp, 4 goroutines", "disk, written in sequence", report.AtLeast, 0.5).
		headline("puts of 1 MiB, durable, to the disk's sequential rate").
		versus("against the disk where each block is durable before the next", "rdmakv iwarp, 4 goroutines", "disk, written in sequence, each block durable", report.AtLeast, 0.5).beside().
		aside("against Redis with appendfsync always", "rdmakv iwarp, 4 goroutines", "redis tcp", report.AtLeast, 1).
		headline("puts of 1 MiB, durable, iwarp, 4 callers, to Redis `appendfsync always`").
		aside("shared memory, against Redis over its UNIX socket", "rdmakv shm, 4 goroutines", "redis unix", report.AtLeast, 1)
}
