package main

import "github.com/rdmakv/rdmakv/bench/compare/report"

// Batches of one caller.
func multiGet(o options) *row {
	d, l := dataset{o.few(50_000), 64, "uniform"}, workload{op: "get", callers: 1, batch: 64}
	r := newRow("multiget-64", "Batches: 64 gets at a time on one connection, 64 B",
		"MultiGet of 64 keys, one call after the other, against 64 GETs in one pipeline, or one MGET. 50,000 keys chosen uniformly, every place known to rdmakv. The figure is keys per second.", rate())
	r.add(
		ours(o, "rdmakv iwarp", way{fabric: "iwarp", wait: "adaptive", sync: "off", touch: true}, d, l),
		ours(o, "rdmakv shm", way{fabric: "shm", wait: "adaptive", sync: "off", touch: true}, d, l),
	)
	for _, p := range []peer{{"redis", "tcp", ""}, {"memcached", "tcp", ""}} {
		r.add(append(p.ways(d, l), p.together(d, l))...)
	}
	return r.
		target("at least Redis with one connection, by 64 GETs in a pipeline or MGET", "rdmakv iwarp", "redis tcp", report.AtLeast, 1).
		spun("the same against a Redis client that spins", "rdmakv iwarp", "redis tcp", report.AtLeast, 1)
}

// The same over a store that is larger than a processor's caches.
func multiGetMillion(o options) *row {
	d, l := dataset{o.few(1_000_000), 64, "uniform"}, workload{op: "get", callers: 1, batch: 64}
	r := newRow("multiget-shm-1m", "Shared memory: 64 gets at a time, 64 B, 1 M keys",
		"MultiGet of 64 keys chosen uniformly, one call after the other by one thread, every place known, results used again by the next call. Redis and memcached are asked in both ways that they have: by one request with 64 keys, and by 64 requests in one write; LMDB by a loop of 64 gets in one transaction. The figure is keys per second.", rate())
	r.add(
		ours(o, "rdmakv shm", way{fabric: "shm", wait: "adaptive", sync: "off", touch: true}, d, l),
		lmdb("LMDB, loop", d, l.batch),
	)
	for _, p := range []peer{{"redis", "unix", ""}, {"memcached", "unix", ""}} {
		r.add(p.inGo(d, l), p.inC(d, l, false), p.together(d, l))
	}
	return r.
		target("at least 5 M keys/s", "rdmakv shm", "", report.AtLeast, 5e6).
		headline("MultiGet of 64 keys, 64 B, shm, one thread, 1 M keys chosen uniformly, keys/s").
		target("the same of LMDB", "LMDB, loop", "", report.AtLeast, 5e6).beside().
		headline("the same of LMDB in memory, a loop in one transaction").
		aside("against LMDB", "rdmakv shm", "lmdb", report.AtLeast, 1).
		aside("against Redis over its UNIX socket", "rdmakv shm", "redis unix", report.AtLeast, 1).
		aside("against memcached over its UNIX socket", "rdmakv shm", "memcached unix", report.AtLeast, 1)
}
