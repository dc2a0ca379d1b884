package main

import (
	"context"
	"errors"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/clients"
	"github.com/rdmakv/rdmakv/bench/compare/counters"
	"github.com/rdmakv/rdmakv/bench/compare/jobs"
	"github.com/rdmakv/rdmakv/bench/compare/report"
	"github.com/rdmakv/rdmakv/bench/compare/servers"
)

// memoryPerKey is what a key costs beyond its own bytes and its value's.
func memoryPerKey(o options) *row {
	n := o.few(1_000_000)
	r := newRow("memory", "Memory per key beyond key and value, 1 M keys of 16 B + 64 B",
		"What the server says of itself after the load, less what it said before: rdmakv memory_used (pages and segments in use, retired ones included; index segments that were outgrown within the last lease of 2 s are among these, so the figure right after the load is higher the faster it was, and the one a lease later is what the keys cost), Redis used_memory. memcached does not tell what its hash table and slabs take, so the growth of its resident memory stands there, and that of the others beside it; that of kvserver has in it what a checkpoint takes, Pebble's caches, and memory that was made ready before it is needed; row `memory-resident` has it at rest.",
		report.Figure{Name: "bytes_per_key", Unit: "B"})
	r.once = true
	add := func(records uint64, suffix string) {
		d := dataset{records, 64, "uniform"}
		kv := rdmakvServer(o, way{fabric: "iwarp", wait: "adaptive", sync: "off"}, d)
		redis, memcached := peer{"redis", "tcp", ""}.recipe(d), peer{"memcached", "tcp", ""}.recipe(d)
		r.add(
			perKey("rdmakv"+suffix, report.Ours, "rdmakv", "memory_used of kvserver, a lease after the load", kv, d, usedByRdmakv, afterLease),
			perKey("rdmakv, right after the load"+suffix, report.Ours, "rdmakv", "memory_used of kvserver while outgrown index segments wait for their lease", kv, d, usedByRdmakv, 0),
			perKey("rdmakv, resident right after the load"+suffix, report.Ours, "rdmakv", "growth of resident memory", kv, d, resident, 0),
			perKey("Redis"+suffix, report.Peer, "redis", "used_memory", redis, d, usedByRedis, 0),
			perKey("Redis, resident"+suffix, report.Peer, "redis", "growth of resident memory", redis, d, resident, 0),
			perKey("memcached, resident"+suffix, report.Peer, "memcached", "growth of resident memory", memcached, d, resident, 0),
		)
		r.target("at most 40 B"+suffix, "rdmakv"+suffix, "", report.AtMost, 40)
		if suffix == "" {
			r.headline("memory per key beyond 16 B + 64 B, a lease after the load")
		}
		r.aside("at most 40 B right after the load"+suffix, "rdmakv, right after the load"+suffix, "", report.AtMost, 40)
		r.aside("against Redis"+suffix, "rdmakv"+suffix, "redis", report.AtMost, 1)
		r.versus("resident right after the load, against Redis"+suffix, "rdmakv, resident right after the load"+suffix, "Redis, resident"+suffix, report.AtMost, 0.9).beside()
		if suffix == "" {
			r.headline("resident memory per key right after the load, to Redis")
		}
	}
	add(n, "")
	if o.big {
		add(10_000_000, ", 10 M keys")
	}
	return r
}

// residentPerKey is what a key takes of the machine's memory, its own bytes among it, once the
// server is at rest.
func residentPerKey(o options) *row {
	d := dataset{o.few(1_000_000), 64, "uniform"}
	r := newRow("memory-resident", "Resident memory per key, 1 M keys of 16 B + 64 B",
		"The growth of the server's resident memory (VmRSS) by the load, divided by the keys; the 80 B of key and value are in it. Each server is started for its turn alone and measured at rest: kvserver 30 s after the load, when its last checkpoint is made and it has given back what it does not need, Redis 12 s after it, when its allocator has given back its free pages. LMDB has no server: its figure is what its file takes.",
		report.Figure{Name: "resident_per_key", Unit: "B"})
	kv, redis := rdmakvServer(o, way{fabric: "iwarp", wait: "adaptive", sync: "off"}, d), peer{"redis", "tcp", ""}.recipe(d)
	r.add(
		perKey("rdmakv", report.Ours, "rdmakv", "kvserver --sync off, at rest", kv, d, resident, atRest),
		perKey("Redis", report.Peer, "redis", "no AOF, at rest", redis, d, resident, atRestRedis),
		lmdbPerKey(d),
	)
	return r.
		versus("at most 0.9 of Redis", "rdmakv", "Redis", report.AtMost, 0.9).
		headline("resident memory per key of 16 B + 64 B, 1 M keys, to Redis").
		target("of rdmakv", "rdmakv", "", report.AtMost, 200).beside().
		headline("the same in bytes, rdmakv").
		target("of Redis", "Redis", "", report.AtMost, 200).beside().
		headline("the same in bytes, Redis").
		target("of LMDB", "LMDB", "", report.AtMost, 200).beside().
		headline("the same in bytes, LMDB's file").
		versus("without the 80 B of key and value, against Redis", "rdmakv", "Redis", report.AtMost, 0.9).
		of(report.Figure{Name: "bytes_per_key", Unit: "B"}).beside()
}

const (
	// afterLease is when what was retired during the load has been given back.
	afterLease = 4 * time.Second
	// atRest is when the last write is in a checkpoint, which takes 10 s at most to begin, and
	// a server that rests has given back to the machine what it does not need.
	atRest = 30 * time.Second
	// atRestRedis is when jemalloc has given back what it keeps for 10 s.
	atRestRedis = 12 * time.Second
)

// perKey is one server, which is started for it alone; it is asked rest after the
// load.
func perKey(name, kind, system, how string, rec recipe, d dataset, used func(context.Context, *servers.Server, recipe) (uint64, error), rest time.Duration) contender {
	return contender{
		Contender: report.Contender{Name: name, Kind: kind, System: system, How: how}, group: system,
		measure: func(ctx context.Context, r *rig) (s report.Sample, err error) {
			srv, err := rec.start(ctx, r.place)
			if err != nil {
				return s, err
			}
			defer func() { err = errors.Join(err, srv.Stop()) }()
			before, err := used(ctx, srv, rec)
			if err != nil {
				return s, err
			}
			t := rec.target(srv)
			t.PIDs = srv.PIDs()
			ctx, cancel := context.WithTimeout(ctx, fillLimit)
			defer cancel()
			if s, err = employ(ctx, job{Fill: &jobs.Load{Target: t, Records: d.records, Value: d.value, Seed: r.o.seed}}); err != nil {
				return s, err
			}
			if r.o.quick {
				rest = min(rest, time.Second)
			}
			select {
			case <-time.After(rest):
			case <-ctx.Done():
				return s, context.Cause(ctx)
			}
			after, err := used(ctx, srv, rec)
			if err != nil {
				return s, err
			}
			s.Value = (float64(after) - float64(before)) / float64(d.records)
			s.BytesPerKey = s.Value - float64(jobs.Keys().Size+d.value)
			return s, nil
		},
	}
}

func resident(_ context.Context, s *servers.Server, _ recipe) (uint64, error) {
	all, _, err := servers.Resident(s.PID())
	return all, err
}

// usedByRedis is used_memory of INFO: what Redis has allocated, in bytes.
func usedByRedis(ctx context.Context, s *servers.Server, _ recipe) (uint64, error) {
	c, err := clients.DialRedis(ctx, "tcp", s.TCP)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	n, err := c.Info("memory", "used_memory")
	return uint64(max(n, 0)), err
}

func usedByRdmakv(ctx context.Context, s *servers.Server, rec recipe) (uint64, error) {
	st, err := storeStats(ctx, rec.target(s))
	return st.MemoryUsed, err
}

// storeStats asks a server of ours for its counters by a client of its own.
func storeStats(ctx context.Context, t jobs.Target) (st counters.Store, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c, err := dial(ctx, &t)
	if err != nil {
		return st, err
	}
	defer c.Close()
	all, err := counters.Of(ctx, c)
	return all.Store, err
}
