package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/clients"
	"github.com/rdmakv/rdmakv/bench/compare/report"
	"github.com/rdmakv/rdmakv/bench/compare/servers"
	"github.com/rdmakv/rdmakv/client/admin"
)

// memoryPerKey is what a key costs beyond its own bytes and its value's.
func memoryPerKey(o options) *row {
	n := o.few(1_000_000)
	r := newRow("memory", "Memory per key beyond key and value, 1 M keys of 16 B + 64 B",
		"What the server says of itself after the load, less what it said before: rdmakv memory_used (pages and segments in use, retired ones included; index segments that were outgrown within the last lease of 2 s are among these, so the figure right after the load is higher the faster it was, and the one a lease later is what the keys cost), Redis used_memory. memcached does not tell what its hash table and slabs take, so the growth of its resident memory stands there, and that of the others beside it; that of kvserver has in it what a checkpoint takes, Pebble's caches, and memory that was made ready before it is needed. At rest, which is after the last checkpoint, kvserver has given back what it does not need.",
		report.Figure{Name: "bytes_per_key", Unit: "B"})
	r.once = true
	add := func(records uint64, suffix string) {
		d := dataset{records, 64, "uniform"}
		kv := rdmakvServer(o, way{fabric: "iwarp", wait: "adaptive", sync: "off"}, d)
		redis, memcached := peer{"redis", "tcp", ""}.recipe(d), peer{"memcached", "tcp", ""}.recipe(d)
		r.add(
			perKey("rdmakv"+suffix, report.Ours, "rdmakv", "memory_used of kvserver, a lease after the load", kv, d, usedByRdmakv, afterLease),
			perKey("rdmakv, right after the load"+suffix, report.Ours, "rdmakv", "memory_used of kvserver while outgrown index segments wait for their lease", kv, d, usedByRdmakv, 0),
			perKey("rdmakv, resident"+suffix, report.Ours, "rdmakv", "growth of resident memory, at rest", kv, d, resident, atRest),
			perKey("rdmakv, resident right after the load"+suffix, report.Ours, "rdmakv", "growth of resident memory", kv, d, resident, 0),
			perKey("Redis"+suffix, report.Peer, "redis", "used_memory", redis, d, usedByRedis, 0),
			perKey("Redis, resident"+suffix, report.Peer, "redis", "growth of resident memory", redis, d, resident, 0),
			perKey("memcached, resident"+suffix, report.Peer, "memcached", "growth of resident memory", memcached, d, resident, 0),
		)
		r.target("at most 40 B"+suffix, "rdmakv"+suffix, "", report.AtMost, 40)
		r.aside("at most 40 B right after the load"+suffix, "rdmakv, right after the load"+suffix, "", report.AtMost, 40)
		r.aside("against Redis"+suffix, "rdmakv"+suffix, "redis", report.AtMost, 1)
		r.versus("resident, against Redis"+suffix, "rdmakv, resident"+suffix, "Redis, resident"+suffix, report.AtMost, 0.9)
		r.versus("resident right after the load, against Redis"+suffix, "rdmakv, resident right after the load"+suffix, "Redis, resident"+suffix, report.AtMost, 0.9).beside()
	}
	add(n, "")
	if o.big {
		add(10_000_000, ", 10 M keys")
	}
	return r
}

const (
	// afterLease is when what was retired during the load has been given back.
	afterLease = 4 * time.Second
	// atRest is when the last write is in a checkpoint, which takes 10 s at most to begin, and
	// a server that rests has given back to the machine what it does not need.
	atRest = 30 * time.Second
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
			t.PID = srv.PID()
			ctx, cancel := context.WithTimeout(ctx, fillLimit)
			defer cancel()
			if s, err = employ(ctx, job{Fill: &loadJob{Target: t, Records: d.records, Value: d.value, Seed: r.o.seed}}); err != nil {
				return s, err
			}
			time.Sleep(rest)
			after, err := used(ctx, srv, rec)
			if err != nil {
				return s, err
			}
			s.BytesPerKey = (float64(after)-float64(before))/float64(d.records) - float64(keys().Size+d.value)
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

// stats are those of a kvserver's store that matter here.
type stats struct {
	MemoryUsed   uint64 `json:"memory_used"`
	Shards       int    `json:"shards"`
	ShardsFilled int    `json:"shards_filled"`
}

// storeStats asks a server of ours for its counters by a client of its own.
func storeStats(ctx context.Context, t target) (st stats, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c, err := t.dial(ctx)
	if err != nil {
		return st, err
	}
	defer c.Close()
	all, err := admin.Of(c).Stats(ctx)
	if err != nil {
		return st, err
	}
	var server struct{ Store *stats }
	if err := json.Unmarshal(all.Server, &server); err != nil {
		return st, err
	}
	if server.Store == nil || server.Store.MemoryUsed == 0 && server.Store.Shards == 0 {
		return st, fmt.Errorf("kvserver tells nothing of its store: %.200s", all.Server)
	}
	return *server.Store, nil
}
