// Package membership keeps the nodes of a cluster in touch: who is alive,
// where each one takes connections, and which regions of memory it publishes
// under which rkeys. It runs hashicorp/memberlist and hands out immutable
// values of internal/cluster.
//
// # Hints only
//
// What is here may be stale or wrong, and costs at most a retry. Nothing here
// grants a right, and nothing decides who owns a shard: a node that gossip
// calls dead may be serving, and its shards stay its own. Whoever holds the
// gossip key can forge anything that is here, but for lives and proofs, which are
// all that ends a node (Failed). Clients hold no such key and
// are no members; they get the View, and the only table of rkeys that they
// use, inside their sessions.
//
// # What travels how
//
//	metadata    at most 200 bytes per node (cluster.AppendMeta), in memberlist's
//	            own messages: role, incarnation, endpoints, version and digest
//	            of the region table and of the shard map
//	adverts     at most 1000 bytes, gossiped by us: what changed in a table, as
//	            a cluster.Delta that reaches back as far as fits. A receiver to
//	            whom one is new passes it on; to whom it is not, drops it. In
//	            the queue a newer advert of a node replaces the older
//	digests     32 bytes per table, with every push/pull of memberlist
//	tables      whole, when a digest or the metadata says that ours is old and
//	            no advert has mended it: asked for, and sent over the reliable
//	            channel in parts of at most 1 MiB. Who joins gets what fits into
//	            4 MiB with his first push/pull
//
//	lives       with every push/pull: the newest start of each node that was let
//	            in, under a MAC that a gossip key alone cannot make (life.go). A
//	            node that finds itself further on there than on its disk ends
//	proofs      when two nodes have one id (referee.go)
//
// All of it is idempotent and order does not matter. Incarnations are random
// and have no order; which one is the newer, memberlist's own counter decides,
// which comes with the metadata. So a table counts only if its incarnation is
// the one that the node's metadata names, and of those the higher version.
// A node that hears an advert about itself that it never made raises its
// version above it.
//
// # Goroutines and locks
//
// memberlist calls us from its own goroutines, often under its own lock. Such
// a callback copies what it is given, takes mu for a few instructions, and
// never calls memberlist. All else happens in our goroutines: run (messages,
// tables, views), advertise (metadata), joiner, the senders, the logger. They
// never call memberlist under mu. The order is: memberlist's locks, then mu.
// Every queue between them is bounded, and drops and counts when it is full;
// the next push/pull mends what was dropped.
package membership
