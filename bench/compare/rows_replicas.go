package main

import (
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/jobs"
	"github.com/rdmakv/rdmakv/bench/compare/report"
)

// Rows of replicas: each key is on three nodes, which are three processes of one machine, so
// these share its processors and its disk, and messages between them pay no network.

// nodesOfAll is how many nodes every cluster has; with replicas each key is on all of them.
const nodesOfAll = 3

// replicaKeys are few, because etcd and WAIT take their time to load them.
func replicaKeys(o options) dataset { return dataset{o.few(10_000), 100, "uniform"} }

// durable is how one node of rdmakv is reached.
func durable() way { return way{fabric: "iwarp", wait: "adaptive", sync: "always"} }

// replicated is how three nodes are reached, which have each key, in so many groups; 0: as many as
// cluster init takes.
func replicated(groups int) way {
	w := durable()
	w.nodes, w.replicas, w.groups = nodesOfAll, nodesOfAll, groups
	return w
}

// told has the processor time of the node that leads told apart from that of the others.
func (w way) told() way {
	w.apart = true
	return w
}

// known has every key read before, and gets that may be so old; 0: they are new.
func (w way) known(bound time.Duration) way {
	w.touch, w.bound = true, bound
	return w
}

// The contenders of rdmakv.
const (
	oneNode  = "rdmakv iwarp, one node"
	three    = "rdmakv iwarp, 3 replicas" // six groups
	sixteen  = "rdmakv iwarp, 3 replicas, 16 groups"
	oneGroup = "rdmakv iwarp, 3 replicas, 1 group"
	bounded  = "rdmakv iwarp, 3 replicas, bounded"
	spread   = "rdmakv iwarp, 3 nodes without replicas"
)

// waitsForMemory is what must be known of Redis in these rows.
const waitsForMemory = "Redis' WAIT 1 0, in one write with its SET, waits until one of two replicas has the put in its memory, not on its disk: of a put that it acknowledges, the master's disk alone is sure (appendfsync always on all three). A put of rdmakv, and of etcd, is on the disks of two of three nodes."

// Replicated puts of one client.
func putsReplicasOne(o options) *row {
	d, l := replicaKeys(o), single("put")
	r := newRow("puts-replicas-1", "Puts on three nodes: one client, 100 B",
		"Three nodes in three processes, 10,000 keys chosen uniformly; kvserver --sync always, with and without replicas. A cluster that waits for its turn sends heartbeats, which take some percent of a core. "+waitsForMemory, p50())
	r.add(
		ours(o, oneNode, durable(), d, l),
		ours(o, three, replicated(0), d, l),
		ours(o, sixteen, replicated(16), d, l),
	)
	r.add(peer{redisReplicas, "tcp", "always"}.ways(d, l)...)
	r.add(etcd(jobs.Etcd{}, d, l), etcd(jobs.Etcd{AtLeader: true}, d, l))
	return r.
		versus("at most 1.6 of the same on one node", three, oneNode, report.AtMost, 1.6).
		headline("put on three nodes, one caller, p50, to the same on one node").
		versus("sixteen groups, against one node", sixteen, oneNode, report.AtMost, 1.6).beside().
		aside("against Redis with appendfsync always and WAIT 1", three, "redis replicas tcp", report.AtMost, 1).
		headline("the same to Redis `appendfsync always` and `WAIT 1`, which waits for a replica's memory").
		spun("the same against a Redis client that spins", three, "redis replicas tcp", report.AtMost, 1).
		aside("against etcd", three, "etcd", report.AtMost, 1).
		headline("the same to etcd")
}

// Replicated puts of many clients, and what they cost the nodes.
func putsReplicasMany(o options) *row {
	d, l := replicaKeys(o), workload{op: "put", callers: 50}
	r := newRow("puts-replicas-50", "Puts on three nodes: 50 callers, 100 B",
		"As before, with 50 goroutines on one client of rdmakv, 50 connections of Redis with a WAIT behind each SET, or one on which one WAIT follows 50 SETs, and 50 goroutines on one client of etcd or on one each. Usually every node of rdmakv leads some groups; with one group one of them leads and two follow, so that its processor time can be told from theirs. "+waitsForMemory, rate())
	redis := peer{redisReplicas, "tcp", "always"}
	r.add(
		ours(o, oneNode, durable().told(), d, l),
		ours(o, three, replicated(0), d, l),
		ours(o, sixteen, replicated(16), d, l),
		ours(o, oneGroup, replicated(1).told(), d, l),
	)
	r.add(redis.ways(d, l)...)
	r.add(redis.pipelined(d, l))
	r.add(etcd(jobs.Etcd{}, d, l), etcd(jobs.Etcd{AtLeader: true}, d, l), etcd(jobs.Etcd{Many: true}, d, l), etcd(jobs.Etcd{Many: true, AtLeader: true}, d, l))
	return r.
		target("at least Redis with appendfsync always, WAIT 1 and 50 connections", three, "redis replicas tcp", report.AtLeast, 1).
		headline("puts/s on three nodes, 50 callers, to Redis `appendfsync always` and `WAIT 1`, 50 connections").
		aside("sixteen groups, against the same", sixteen, "redis replicas tcp", report.AtLeast, 1).
		headline("the same with sixteen groups").
		aside("one group, against the same", oneGroup, "redis replicas tcp", report.AtLeast, 1).
		aside("against Redis with one connection, one WAIT behind 50 SETs", three, "redis replicas tcp pipelined", report.AtLeast, 1).
		headline("the same to Redis with one connection, one `WAIT` behind 50 `SET`s").
		target("at least 5 times etcd", three, "etcd", report.AtLeast, 5).
		headline("puts/s on three nodes, 50 callers, to etcd").
		aside("sixteen groups, against etcd", sixteen, "etcd", report.AtLeast, 5).
		versus("the leader's CPU per put at most 1.4 of one node's without replicas", oneGroup, oneNode, report.AtMost, 1.4).of(leaderCPU()).
		headline("leader's CPU per put, 50 callers, one group, to that of one node").
		target("a follower's CPU per put at most 0.7 of its leader's", oneGroup, "", report.AtMost, 0.7).of(followerShare()).
		headline("a follower's CPU per put, 50 callers, one group").
		versus("puts/s, against one node", three, oneNode, report.AtLeast, 0.5).beside().
		versus("CPU of all nodes per put, against one node", three, oneNode, report.AtMost, 3).of(cpu()).beside().
		aside("CPU of all nodes per put, against etcd", three, "etcd", report.AtMost, 1).of(cpu())
}

// oursOfGets are rdmakv on one node, on three that have a third of the keys each, and with replicas.
func oursOfGets(o options, d dataset, l workload) []contender {
	thirds := replicated(0)
	thirds.replicas = 1
	return []contender{
		ours(o, oneNode, durable().known(0), d, l),
		ours(o, spread, thirds.known(0), d, l),
		ours(o, three, replicated(0).known(0), d, l),
		ours(o, bounded, replicated(0).known(200*time.Millisecond), d, l),
	}
}

// Gets of one client from a cluster with replicas.
func getReplicas(o options) *row {
	d, l := replicaKeys(o), single("get")
	r := newRow("get-replicas", "Gets on three nodes: one client, 100 B",
		"One caller, one get after the other, 10,000 keys chosen uniformly, every place known to rdmakv: with replicas a get READs the item, and 24 bytes at two nodes beside it, which prove that nobody else leads; ReadBounded(200ms) allows an answer that was true 200 ms before, and is the READ of the item alone. Three processes that wait for each get in turn sleep more than one does, so three nodes without replicas stand beside. etcd answers a linearizable get when its leader has confirmed with a majority that it leads, and a serializable one by the member that is asked, however far that is behind.", p50())
	r.add(oursOfGets(o, d, l)...)
	r.add(
		etcd(jobs.Etcd{}, d, l), etcd(jobs.Etcd{AtLeader: true}, d, l),
		etcd(jobs.Etcd{Serializable: true}, d, l), etcd(jobs.Etcd{Serializable: true, AtLeader: true}, d, l),
	)
	return r.
		versus("at most 1.3 of the same on one node", three, oneNode, report.AtMost, 1.3).
		headline("get of 100 B with three replicas, iwarp, p50, to the same on one node").
		versus("against three nodes without replicas", three, spread, report.AtMost, 1.3).beside().
		headline("the same to three nodes without replicas").
		versus("bounded by 200 ms, against one node", bounded, oneNode, report.AtMost, 1.3).beside().
		headline("get of 100 B by `ReadBounded(200ms)`, p50, to one node").
		versus("bounded by 200 ms, against three nodes without replicas", bounded, spread, report.AtMost, 1.3).beside().
		aside("against etcd's linearizable get", three, "etcd", report.AtMost, 1).
		headline("get of 100 B with three replicas, iwarp, p50, to etcd's linearizable get").
		aside("bounded by 200 ms, against etcd's serializable get", bounded, "etcd serializable", report.AtMost, 1)
}

// Batches of gets from a cluster with replicas.
func multiGetReplicas(o options) *row {
	d, l := replicaKeys(o), workload{op: "get", callers: 1, batch: 64}
	r := newRow("multiget-replicas-64", "Batches on three nodes: 64 gets at a time, 100 B",
		"MultiGet of 64 keys, one call after the other, 10,000 keys chosen uniformly, every place known. A cluster is READ at three nodes instead of one, and with replicas what proves who leads is READ once at each. The figure is keys per second.", rate())
	r.add(oursOfGets(o, d, l)...)
	return r.
		versus("against the same on one node", three, oneNode, report.AtLeast, 0.75).beside().
		headline("MultiGet of 64 keys with three replicas, iwarp, keys/s, to the same on one node").
		versus("against three nodes without replicas", three, spread, report.AtLeast, 0.75).beside().
		versus("bounded by 200 ms, against one node", bounded, oneNode, report.AtLeast, 0.75).beside()
}
