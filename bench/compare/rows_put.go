package main

import "github.com/rdmakv/rdmakv/bench/compare/report"

// putKeys are the keys that puts write again and again.
func putKeys(o options) dataset { return dataset{o.few(100_000), 100, "uniform"} }

// Durable puts of one client.
func putsDurableOne(o options) *row {
	d, l := putKeys(o), single("put")
	r := newRow("puts-durable-1", "Durable puts: one client, 100 B",
		"Every put is acknowledged only when it is on disk: kvserver --sync always, Redis appendfsync always, Pebble with a sync for each. The same directory and disk for all. 100,000 keys chosen uniformly.", rate())
	r.add(
		ours(o, "rdmakv iwarp", way{fabric: "iwarp", wait: "adaptive", sync: "always"}, d, l),
		ours(o, "rdmakv shm", way{fabric: "shm", wait: "adaptive", sync: "always"}, d, l),
		pebble(d, 1, true), appends(100+16+14),
	)
	r.add(peer{"redis", "tcp", "always"}.ways(d, l)...)
	return r.
		versus("iWARP: at least 0.9 of bare Pebble", "rdmakv iwarp", "bare Pebble", report.AtLeast, 0.9).
		versus("shared memory: at least 0.9 of bare Pebble", "rdmakv shm", "bare Pebble", report.AtLeast, 0.9).
		aside("against Redis with appendfsync always", "rdmakv iwarp", "redis tcp", report.AtLeast, 1)
}

// Durable puts of many callers.
func putsDurableMany(o options) *row {
	d, l := putKeys(o), workload{op: "put", callers: 50}
	r := newRow("puts-durable-50", "Durable puts: 50 callers, 100 B",
		"As before, with 50 goroutines on one connection of rdmakv, 50 connections of Redis or one with 50 requests at a time, and 50 goroutines on bare Pebble.", rate())
	r.add(
		ours(o, "rdmakv iwarp", way{fabric: "iwarp", wait: "adaptive", sync: "always"}, d, l),
		ours(o, "rdmakv shm", way{fabric: "shm", wait: "adaptive", sync: "always"}, d, l),
		pebble(d, 50, true),
	)
	r.add(peer{"redis", "tcp", "always"}.ways(d, l)...)
	r.add(peer{"redis", "tcp", "always"}.pipelined(d, l))
	return r.
		target("at least 1.5 times Redis with appendfsync always", "rdmakv iwarp", "redis tcp", report.AtLeast, 1.5).
		aside("against Redis with one connection, pipelined", "rdmakv iwarp", "redis tcp pipelined", report.AtLeast, 0.8).
		aside("against bare Pebble", "rdmakv iwarp", "floor pebble", report.AtLeast, 0.9)
}

// Puts that are not waited for.
func putsOff(o options) *row {
	d, l := putKeys(o), workload{op: "put", callers: 50}
	r := newRow("puts-off-50", "Puts without syncs: 50 callers, 100 B",
		"kvserver --sync off writes its log and leaves the sync to the system; Redis without an append-only file writes no log at all, and memcached has none.", rate())
	r.add(
		ours(o, "rdmakv iwarp", way{fabric: "iwarp", wait: "adaptive", sync: "off"}, d, l),
		ours(o, "rdmakv shm", way{fabric: "shm", wait: "adaptive", sync: "off"}, d, l),
		pebble(d, 50, false),
	)
	r.add(peer{"redis", "tcp", ""}.ways(d, l)...)
	r.add(peer{"redis", "tcp", ""}.pipelined(d, l))
	r.add(peer{"memcached", "tcp", ""}.ways(d, l)...)
	return r.
		target("at least 1.3 times Redis without AOF", "rdmakv iwarp", "redis tcp", report.AtLeast, 1.3).
		aside("against Redis with one connection, pipelined", "rdmakv iwarp", "redis tcp pipelined", report.AtLeast, 0.8).
		aside("against memcached", "rdmakv iwarp", "memcached tcp", report.AtLeast, 1)
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
	r.add(peer{"redis", "tcp", ""}.inGo(d, four), peer{"redis", "tcp", ""}.inC(d, four, false))
	r.add(peer{"memcached", "tcp", ""}.inC(d, four, false))
	return r.
		aside("against raw TCP throughput", "rdmakv iwarp, 4 goroutines", "floor tcp", report.AtLeast, 0.8).
		aside("against Redis without AOF", "rdmakv iwarp, 4 goroutines", "redis tcp", report.AtLeast, 1)
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
		stream(1<<20), streamReno(1<<20), copies(1<<20),
	)
	return r.
		versus("at least 0.8 of raw TCP throughput", "rdmakv iwarp, 4 goroutines", "TCP stream in Go", report.AtLeast, 0.8).
		versus("shared memory: at least 0.3 of a copy", "rdmakv shm, 4 goroutines", "memory copy of 1 MiB", report.AtLeast, 0.3).
		versus("against a stream with the same congestion control", "rdmakv iwarp, 4 goroutines", "TCP stream in Go, Reno", report.AtLeast, 0.8).beside()
}

// Large puts that are durable.
func largePutsDurable(o options) *row {
	d := dataset{64, 1 << 20, "uniform"}
	r := newRow("put-1m-durable", "Durable puts of 1 MiB",
		"The figure is values, and so MiB, per second. Every answer waits until the value is on disk.", rate())
	r.add(
		ours(o, "rdmakv iwarp, 4 goroutines", way{fabric: "iwarp", wait: "adaptive", sync: "always"}, d, workload{op: "put", callers: 4}),
		overwrites(1<<20),
	)
	return r.target("at least half of the disk's sequential rate", "rdmakv iwarp, 4 goroutines", "floor disk", report.AtLeast, 0.5)
}

// floors are what everything stands on.
func floors(o options) *row {
	r := newRow("floors", "The floors",
		"What this machine takes for things that no store can do without: a message there and one back between two processes, a copy, a record on disk.", p50())
	r.add(
		pingPongInC("tcp", 64, false), pingPongInC("tcp", 64, true),
		pingPongInC("unix", 64, false), pingPongInC("unix", 64, true),
		pingPongInGo(64, false), pingPongInGo(64, true),
		copies(64), copies(1<<10), copies(64<<10), copies(1<<20),
		appends(130), pebble(putKeys(o), 1, true),
	)
	return r
}
