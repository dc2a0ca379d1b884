package main

import (
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/jobs"
	"github.com/rdmakv/rdmakv/bench/compare/report"
)

// Rows of replicas: each key is on three nodes, which are three processes of one machine, so
// these share its processors and its disk, and messages between them pay no network.

// replicasOfAll is on how many nodes each key is, of every contender that has replicas.
const replicasOfAll = 3

// replicaKeys are few, because etcd and WAIT take their time to load them.
func replicaKeys(o options) dataset { return dataset{o.few(10_000), 100, "uniform"} }

// replicated is how rdmakv is reached: one node with groups of 0 below, three with replicas.
func replicated(replicas, groups int) way {
	return way{fabric: "iwarp", wait: "adaptive", sync: "always", replicas: replicas, groups: groups}
}

// The contenders of rdmakv.
const (
	oneNode   = "rdmakv iwarp, one node"
	threeTold = "rdmakv iwarp, 3 replicas"
	sixGroups = "rdmakv iwarp, 3 replicas, 6 groups"
	oneGroup  = "rdmakv iwarp, 3 replicas, 1 group"
	bounded   = "rdmakv iwarp, 3 replicas, bounded"
)

// waitsForMemory is what must be known of Redis in these rows.
const waitsForMemory = "Redis' WAIT 1 0, in one write with its SET, waits until one of two replicas has the put in its memory, not on its disk: of a put that it acknowledges, the master's disk alone is sure (appendfsync always on all three). A put of rdmakv, and of etcd, is on the disks of two of three nodes."

// Replicated puts of one client.
func putsReplicasOne(o options) *row {
	d, l := replicaKeys(o), single("put")
	r := newRow("puts-replicas-1", "Puts on three nodes: one client, 100 B",
		"Three nodes in three processes, 10,000 keys chosen uniformly; kvserver --sync always, with and without replicas. "+waitsForMemory, p50())
	r.add(
		ours(o, oneNode, replicated(0, 0), d, l),
		ours(o, threeTold, replicated(replicasOfAll, 0), d, l),
		ours(o, sixGroups, replicated(replicasOfAll, 6), d, l),
	)
	r.add(peer{redisReplicas, "tcp", "always"}.ways(d, l)...)
	r.add(etcd(jobs.Etcd{}, d, l), etcd(jobs.Etcd{AtLeader: true}, d, l))
	return r.
		versus("at most 1.6 of the same on one node", threeTold, oneNode, report.AtMost, 1.6).
		headline("put on three nodes, one caller, p50, to the same on one node").
		versus("six groups, against one node", sixGroups, oneNode, report.AtMost, 1.6).beside().
		aside("against Redis with appendfsync always and WAIT 1", threeTold, "redis replicas tcp", report.AtMost, 1).
		headline("the same to Redis `appendfsync always` and `WAIT 1`, which waits for a replica's memory").
		spun("the same against a Redis client that spins", threeTold, "redis replicas tcp", report.AtMost, 1).
		aside("against etcd", threeTold, "etcd", report.AtMost, 1).
		headline("the same to etcd")
}

// Replicated puts of many clients, and what they cost the nodes.
func putsReplicasMany(o options) *row {
	d, l := replicaKeys(o), workload{op: "put", callers: 50}
	r := newRow("puts-replicas-50", "Puts on three nodes: 50 callers, 100 B",
		"As before, with 50 goroutines on one client of rdmakv, 50 connections of Redis with a WAIT behind each SET, or one on which one WAIT follows 50 SETs, and 50 goroutines on one client of etcd or on one each. Usually every node of rdmakv leads some groups; with one group one of them leads and two follow, so that its processor time can be told from theirs. "+waitsForMemory, rate())
	alone, single := replicated(0, 0), replicated(replicasOfAll, 1)
	alone.apart, single.apart = true, true
	redis := peer{redisReplicas, "tcp", "always"}
	r.add(
		ours(o, oneNode, alone, d, l),
		ours(o, threeTold, replicated(replicasOfAll, 0), d, l),
		ours(o, sixGroups, replicated(replicasOfAll, 6), d, l),
		ours(o, oneGroup, single, d, l),
	)
	r.add(redis.ways(d, l)...)
	r.add(redis.pipelined(d, l))
	r.add(etcd(jobs.Etcd{}, d, l), etcd(jobs.Etcd{AtLeader: true}, d, l), etcd(jobs.Etcd{Many: true}, d, l), etcd(jobs.Etcd{Many: true, AtLeader: true}, d, l))
	return r.
		target("at least Redis with appendfsync always, WAIT 1 and 50 connections", threeTold, "redis replicas tcp", report.AtLeast, 1).
		headline("puts/s on three nodes, 50 callers, to Redis `appendfsync always` and `WAIT 1`, 50 connections").
		aside("six groups, against the same", sixGroups, "redis replicas tcp", report.AtLeast, 1).
		headline("the same with six groups").
		aside("against Redis with one connection, one WAIT behind 50 SETs", threeTold, "redis replicas tcp pipelined", report.AtLeast, 1).
		headline("the same to Redis with one connection, one `WAIT` behind 50 `SET`s").
		target("at least 5 times etcd", threeTold, "etcd", report.AtLeast, 5).
		headline("puts/s on three nodes, 50 callers, to etcd").
		aside("six groups, against etcd", sixGroups, "etcd", report.AtLeast, 5).
		versus("the leader's CPU per put at most 1.4 of one node's without replicas", oneGroup, oneNode, report.AtMost, 1.4).of(leaderCPU()).
		headline("leader's CPU per put, 50 callers, one group, to that of one node").
		target("a follower's CPU per put at most 0.7 of its leader's", oneGroup, "", report.AtMost, 0.7).of(followerShare()).
		headline("a follower's CPU per put, 50 callers, one group").
		versus("puts/s, against one node", threeTold, oneNode, report.AtLeast, 0.5).beside().
		versus("CPU of all nodes per put, against one node", threeTold, oneNode, report.AtMost, 3).of(cpu()).beside().
		aside("CPU of all nodes per put, against etcd", threeTold, "etcd", report.AtMost, 1).of(cpu())
}

// Gets of one client from a cluster with replicas.
func getReplicas(o options) *row {
	d, l := replicaKeys(o), single("get")
	r := newRow("get-replicas", "Gets on three nodes: one client, 100 B",
		"One caller, one get after the other, 10,000 keys chosen uniformly, every place known to rdmakv: with replicas a get READs the item, and 24 bytes at two nodes beside it, which prove that nobody else leads; ReadBounded(200ms) allows an answer that was true 200 ms before, and is the READ of the item alone. etcd answers a linearizable get when its leader has confirmed with a majority that it leads, and a serializable one by the member that is asked, however far that is behind.", p50())
	known := func(replicas int, bound time.Duration) way {
		w := replicated(replicas, 0)
		w.touch, w.bound = true, bound
		return w
	}
	r.add(
		ours(o, oneNode, known(0, 0), d, l),
		ours(o, threeTold, known(replicasOfAll, 0), d, l),
		ours(o, bounded, known(replicasOfAll, 200*time.Millisecond), d, l),
		etcd(jobs.Etcd{}, d, l), etcd(jobs.Etcd{AtLeader: true}, d, l),
		etcd(jobs.Etcd{Serializable: true}, d, l), etcd(jobs.Etcd{Serializable: true, AtLeader: true}, d, l),
	)
	return r.
		versus("at most 1.3 of the same on one node", threeTold, oneNode, report.AtMost, 1.3).
		headline("get of 100 B with three replicas, iwarp, p50, to the same on one node").
		versus("bounded by 200 ms, against one node", bounded, oneNode, report.AtMost, 1.3).beside().
		headline("the same with `ReadBounded(200ms)`").
		aside("against etcd's linearizable get", threeTold, "etcd", report.AtMost, 1).
		headline("get of 100 B with three replicas, iwarp, p50, to etcd's linearizable get").
		aside("bounded by 200 ms, against etcd's serializable get", bounded, "etcd serializable", report.AtMost, 1)
}

// Batches of gets from a cluster with replicas.
func multiGetReplicas(o options) *row {
	d, l := replicaKeys(o), workload{op: "get", callers: 1, batch: 64}
	r := newRow("multiget-replicas-64", "Batches on three nodes: 64 gets at a time, 100 B",
		"MultiGet of 64 keys, one call after the other, 10,000 keys chosen uniformly, every place known. With replicas it READs at three nodes instead of one, and what proves who leads once at each. The figure is keys per second.", rate())
	w, three := replicated(0, 0), replicated(replicasOfAll, 0)
	w.touch, three.touch = true, true
	late := three
	late.bound = 200 * time.Millisecond
	r.add(ours(o, oneNode, w, d, l), ours(o, threeTold, three, d, l), ours(o, bounded, late, d, l))
	return r.
		versus("against the same on one node", threeTold, oneNode, report.AtLeast, 0.75).beside().
		headline("MultiGet of 64 keys with three replicas, iwarp, keys/s, to the same on one node").
		versus("bounded by 200 ms, against one node", bounded, oneNode, report.AtLeast, 0.75).beside()
}
