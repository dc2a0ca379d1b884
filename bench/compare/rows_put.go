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
