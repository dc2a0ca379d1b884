package main

import (
	"fmt"

	"github.com/rdmakv/rdmakv/bench/compare/report"
)

// putKeys are the keys that puts write again and again.
func putKeys(o options) dataset { return dataset{o.few(100_000), 100, "uniform"} }

// Durable puts of one client.
func putsDurableOne(o options) *row {
	d, l := putKeys(o), single("put")
	r := newRow("puts-durable-1", "Durable puts: one client, 100 B",
		"Every put is acknowledged only when it is on disk: kvserver --sync always, Redis appendfsync always, Pebble with a sync for each. The same directory and disk for all. 100,000 keys chosen uniformly.", p50())
	r.add(
		ours(o, "rdmakv iwarp", way{fabric: "iwarp", wait: "adaptive", sync: "always"}, d, l),
		ours(o, "rdmakv shm", way{fabric: "shm", wait: "adaptive", sync: "always"}, d, l),
		pebble(d, 1, true), appends(100+16+14),
	)
	r.add(peer{"redis", "tcp", "always"}.ways(d, l)...)
	return r.
		versus("at most bare Pebble's, with the same random keys", "rdmakv iwarp", "bare Pebble", report.AtMost, 1).
		headline("durable put, one caller, p50, to bare Pebble's with the same random keys").
		target("at most that of Redis with appendfsync always", "rdmakv iwarp", "redis tcp", report.AtMost, 1).
		headline("durable put, one caller, p50, to Redis `appendfsync always`").
		spun("the same against a Redis client that spins", "rdmakv iwarp", "redis tcp", report.AtMost, 1).
		versus("shared memory, against bare Pebble", "rdmakv shm", "bare Pebble", report.AtMost, 1).beside().
		aside("shared memory, against Redis with appendfsync always", "rdmakv shm", "redis tcp", report.AtMost, 1)
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
	r.
		target("at least 1.7 times Redis with appendfsync always and 50 connections", "rdmakv iwarp", "redis tcp", report.AtLeast, 1.7).
		headline("durable puts/s, 50 callers, to Redis `appendfsync always` with 50 connections").
		target("at least 0.8 of Redis with appendfsync always and one connection, pipelined", "rdmakv iwarp", "redis tcp pipelined", report.AtLeast, 0.8).
		headline("durable puts/s, 50 callers, to Redis `appendfsync always` with one connection, 50 requests pipelined").
		aside("against bare Pebble", "rdmakv iwarp", "floor pebble", report.AtLeast, 0.9)
	return cpuOfPuts(r, "durable", 9)
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
	r.
		target("at least 1.3 times Redis without AOF and with 50 connections", "rdmakv iwarp", "redis tcp", report.AtLeast, 1.3).
		headline("puts/s, sync off, 50 callers, to Redis without AOF with 50 connections").
		aside("against Redis with one connection, pipelined", "rdmakv iwarp", "redis tcp pipelined", report.AtLeast, 0.8).
		headline("the same to Redis with one connection, 50 requests pipelined").
		aside("against memcached", "rdmakv iwarp", "memcached tcp", report.AtLeast, 1)
	return cpuOfPuts(r, "sync off", 5)
}

// cpuOfPuts holds the processor time of the server to a limit, and tells that of Redis beside it:
// where each caller has a connection, and where all share one.
func cpuOfPuts(r *row, mode string, limit float64) *row {
	return r.
		target(fmt.Sprintf("server CPU per put at most %g µs", limit), "rdmakv iwarp", "", report.AtMost, limit).of(cpu()).
		headline("server CPU per put, 50 callers, "+mode).
		target("Redis' own CPU per put, 50 connections", "Redis TCP, Go", "", report.AtMost, limit).of(cpu()).beside().
		headline("the same of Redis with 50 connections").
		target("Redis' own CPU per put, one connection, pipelined", "Redis TCP, C, pipelined", "", report.AtMost, limit).of(cpu()).beside().
		headline("the same of Redis with one connection, 50 requests pipelined").
		aside("server CPU per put, against Redis with 50 connections", "rdmakv iwarp", "redis tcp", report.AtMost, 1).of(cpu())
}

// Puts of one client that are not waited for.
func putsOffOne(o options) *row {
	d, l := putKeys(o), single("put")
	r := newRow("puts-off-1", "Puts without syncs: one client, 100 B",
		"What the log costs one caller: kvserver --sync off, which writes it, beside mode: cache, which has none. 100,000 keys chosen uniformly.", p50())
	r.add(
		ours(o, "rdmakv iwarp", way{fabric: "iwarp", wait: "adaptive", sync: "off"}, d, l),
		ours(o, "rdmakv iwarp, cache", way{fabric: "iwarp", wait: "adaptive", memory: true}, d, l),
	)
	r.add(peer{"redis", "tcp", ""}.ways(d, l)...)
	return r.
		versus("at most 1.3 of the same in mode: cache", "rdmakv iwarp", "rdmakv iwarp, cache", report.AtMost, 1.3).
		headline("put, one caller, sync off, p50, to the same in `mode: cache`").
		aside("against Redis without AOF", "rdmakv iwarp", "redis tcp", report.AtMost, 1)
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
		ours(o, inRegistered("rdmakv iwarp, 4 goroutines"), way{fabric: "iwarp", wait: "adaptive", memory: true, registered: true}, d, four),
		ours(o, inRegistered("rdmakv shm, 4 goroutines"), way{fabric: "shm", wait: "adaptive", memory: true, registered: true}, d, four),
		stream(1<<20), streamReno(1<<20), copies(1<<20),
	)
	return r.
		versus("at least 0.8 of a TCP stream with the same congestion control", inRegistered("rdmakv iwarp, 4 goroutines"), "TCP stream in Go, Reno", report.AtLeast, 0.8).
		headline("puts of 1 MiB, `mode: cache`, iwarp, to a TCP stream with the same congestion control").
		versus("shared memory: at least 0.3 of a copy", inRegistered("rdmakv shm, 4 goroutines"), "memory copy of 1 MiB", report.AtLeast, 0.3).
		headline("puts of 1 MiB, `mode: cache`, shm, to a copy in memory").
		versus("the same out of plain slices", "rdmakv iwarp, 4 goroutines", "TCP stream in Go, Reno", report.AtLeast, 0.8).beside().
		versus("shared memory: the same out of plain slices", "rdmakv shm, 4 goroutines", "memory copy of 1 MiB", report.AtLeast, 0.3).beside().
		versus("against a TCP stream with the system's congestion control", "rdmakv iwarp, 4 goroutines", "TCP stream in Go", report.AtLeast, 0.8).beside()
}

// Large puts that are durable.
func largePutsDurable(o options) *row {
	d := dataset{64, 1 << 20, "uniform"}
	r := newRow("put-1m-durable", "Durable puts of 1 MiB",
		"The figure is values, and so MiB, per second. Every answer waits until the value is on disk.", rate())
	r.add(
		ours(o, "rdmakv iwarp, 4 goroutines", way{fabric: "iwarp", wait: "adaptive", sync: "always"}, d, workload{op: "put", callers: 4}),
		overwrites(1<<20, false), overwrites(1<<20, true),
	)
	return r.
		versus("at least half of the disk's sequential rate", "rdmakv iwarp, 4 goroutines", "disk, written in sequence", report.AtLeast, 0.5).
		headline("puts of 1 MiB, durable, to the disk's sequential rate").
		versus("against the disk where each block is durable before the next", "rdmakv iwarp, 4 goroutines", "disk, written in sequence, each block durable", report.AtLeast, 0.5).beside()
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
