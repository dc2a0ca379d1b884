package report

import "fmt"

// method says how it was measured, so that a reader can judge whether it is fair.
func (p *page) method() {
	m, res := p.res.Machine, p.res
	p.say("## How it is measured\n")
	p.say("| | |")
	p.say("|---|---|")
	virtual := ""
	if m.Virtual {
		virtual = ", a virtual machine"
	}
	p.say("| machine | %d cores of %s%s, %.0f GiB of memory |", m.Cores, cell(m.CPU), virtual, float64(m.MemoryBytes)/(1<<30))
	p.say("| system | %s, Linux %s, %s |", cell(m.OS), cell(m.Kernel), m.Arch)
	p.say("| disk | %s |", cell(m.Disk))
	for _, v := range res.Versions {
		p.say("| %s | %s |", v.Name, cell(v.Text))
	}
	p.say("| rounds | %d of every contender, %s each, seed %d |\n", res.Rounds, secondsWord(res.Slice), res.Seed)
	p.say(`**Interleaved.** In each round of a row every contender has one turn, in an order drawn anew. A ratio is made of two
turns of one round. So other load on the machine disturbs all of them, and a lucky round of one side decides nothing.

**Processes.** Each server is a process of its own, started for its row, filled, and idle while it is not its turn. The
load is one other process, new for each turn. No process is pinned to a core, except in the lines that say "one core" or "two
cores", and none has another priority: server and client have a core each if the kernel sees fit. Everything goes over
the loopback interface, UNIX sockets or shared memory; no network is measured.

**The same work.** All have 16 B keys (%s), the same values, and the same keys in the same distribution,
from one seed: bare Pebble is asked by the same load generator in its own process, and the reader of LMDB has the choices of
the generator's first caller in a file. Except by redis-benchmark and by the clients in C, every value that comes back is
compared with what was stored; the client of sockets in C looks at lengths and at the first byte of an answer, that of LMDB at the
length and at the first 8 bytes, which are the key's number. Each turn warms up before it counts, for a quarter of its
time and at least 250 ms under the load generator and for LMDB, for a tenth under the other client in C, not at all under redis-benchmark.
Keys that were not found, or any call that failed, make the turn a failure.

**The peers get their best.** Redis is asked by its own redis-benchmark, by rdmakv's load generator with a bare RESP
loop (no client library between), and by a client in C that sends ready-made requests; memcached by the latter two, with
its meta commands. The best of them counts in every ratio. Redis runs with one thread for commands, as it does by
default (its I/O threads need more cores than two), memcached with its four. Neither writes snapshots; Redis has no
append-only file unless the row says so, and where it has one, it does not rewrite it (auto-aof-rewrite-percentage 0). Rows of
50 callers also ask it by one connection on which 50 requests are under way, which is how its best clients share one. Batches are asked for in
both ways that there are: many requests in one write, and one request for many keys (MGET, get).

**LMDB** is the peer of shared memory: like rdmakv's client, its reader is a process that copies values out of a map and calls no server.
Its data are in memory (tmpfs, else the page cache) and were loaded in the order of keys, which fills its pages; the map is in huge pages
where the kernel can do that, as rdmakv's memory is; every record was read once. A reader's transaction is renewed for every get, or for every
batch, because a get of rdmakv sees the newest value too; what that costs is some ten nanoseconds. Its locks stay on, without which
nobody could write beside the reader. The clock is read once for each call, as by the load generator. What is compared is reading alone: LMDB has one
writer at a time and no network, and rdmakv's gets verify a checksum, the key and a lease.

**Replicas.** Rows of replicas have three nodes as three processes of this one machine: they share its cores and its disk, and no network
lies between them. rdmakv and etcd (three members with default settings, asked by their own client library, of which a connection to the
leader alone and one for each caller are tried too) acknowledge a put when two of three nodes have it on their disks. Redis has
appendfsync always on its master and on both replicas, and a WAIT 1 behind each SET, in the same write: that waits for the memory of a replica,
not for its disk. What the leader and what a follower use of the processor is told apart where one node leads all: that of Redis, and of rdmakv with one group.

**These things are not the same, and speak for rdmakv or against it.**

- *Congestion control.* %s
- *Polling.* Most of the gap between a polled READ and Redis is polling. Two processes that sleep in recv take many times
  as long to hand a message over as two that spin (see the floors), because an idle core has to be woken, which on a
  virtual machine the hypervisor does. rdmakv's adaptive mode spins for as long as its last waits took, and sleeps
  when that is in vain. The clients of Redis sleep, as they all do. So each such row also has a client of the peer that
  spins ("client spins"), which exists only in this benchmark, and the row on iWARP has rdmakv with both ends asleep.
  What spinning costs stands in the CPU column. By shared memory the client copies the item itself, so it waits for no other process.
- *Luck of the scheduler.* When the kernel puts both ends of a sleeping pair on one core, no core has to be woken, and a
  round trip takes a fraction of the time. It happens in some rounds to some contenders, on either side: the spreads
  show it, and the lines with pinned ends show both cases.
- *Connections.* 50 callers of rdmakv share one connection of one process, as its clients do; the peers have 50
  connections, as most of theirs do, and the rows also have Redis with one connection, pipelined, told apart from it.
- *Places known.* rdmakv's gets are one READ when the client remembers where the item is. Rows say whether it does;
  the ones on growth and on Zipf have the cache at its default size, and gets without any.
- *Checksums.* rdmakv verifies a checksum of every value at the client; the peers have none.
- *The load generator's own part* of a get, some tens of nanoseconds for the choice, the comparison and the histogram, is in rdmakv's figures by
  shared memory; the client of LMDB does less. It speaks against rdmakv.
- *Durability.* rdmakv writes a log, and from it Pebble, an LSM tree, in every mode but cache; Redis without AOF and memcached write nothing.
- *redis-benchmark* reports latencies in steps of 8 µs; its rates are exact.
- *Clusters that wait for their turn* send heartbeats: a node of rdmakv with 16 groups takes some 4 %% of a core for them.
- *Processor time of a server* is what /proc tells of its process, or of those of all nodes together, in steps of 10 ms, over the turn.
- *The client in C* counts the whole processor time of its run, a tenth of which was not measured, and divides it so.

**Larger or other machines** will show other ratios: with more cores memcached and Redis' I/O threads get faster, on
bare metal sleeping costs less, and a real RNIC takes the responder's side of a READ off the server's processor
altogether, which no row here can show. The rows over Soft-RoCE are those of `+"`make lab-bench`"+`.

    make bench-compare                        # all of it, and this page
    make bench-compare ROUNDS=9 ROWS=get-shm,get-iwarp   # some rows, to .cache/compare/last
    make bench-compare ARGS=-big              # stores of 10 and 50 million keys, too, where there is the memory
`, "`key:000000000000` on", congestion(m.Congestion))
}

// congestion says which congestion control the TCP sockets of a run had.
func congestion(name string) string {
	const always = `rdmakv's iwarp takes Reno for connections within the machine, which does not pace. `
	if name == "reno" {
		return always + `So the whole run was made in a network
  namespace of its own, whose default is Reno: every TCP socket had it, those of Redis, memcached and redis-benchmark, which cannot be
  told, and those of the floors. The machine's own setting was not touched.`
	}
	if name == "" {
		name = "not known"
	}
	return always + `This run had no network
  namespace of its own, in which Reno would be everybody's default. So the sockets of our own clients of the peers and of the floors had Reno,
  and those of Redis, memcached and redis-benchmark, which cannot be told, the machine's default (` + name + `). Where that is BBR, which
  paces, a TCP stream is about half as fast as with Reno: the ratios to these peers then speak for rdmakv, most of all those of large values.`
}

func secondsWord(s float64) string {
	if s == 1 {
		return "one second"
	}
	return fmt.Sprintf("%g seconds", s)
}
