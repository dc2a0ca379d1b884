// Package membership keeps the nodes of a cluster in touch: it says which nodes
// are alive, where each one takes connections, and which regions of memory it
// publishes under which rkeys. It runs hashicorp/memberlist and hands out
// immutable values of internal/cluster.
//
// # Hints only
//
// What the package says may be stale or wrong, and then costs at most a retry. It
// grants no right and decides no ownership: a node that gossip calls dead may be
// serving, and its shards stay its own. A holder of the gossip key can forge
// everything here except lives and proofs, and only these can end a node
// (Failed). Clients hold no such key and are no members; they get the View, and
// the only table of rkeys that they use, inside their sessions.
//
// # What travels how
//
//	metadata    at most 200 bytes per node (cluster.AppendMeta), in memberlist's
//	            own messages: role, incarnation, endpoints, version and digest
//	            of the region table and of the shard map
//	adverts     the whole table of a node, at each change of it, of at most
//	            cluster.MaxGossip regions; a node with more gossips none. An
//	            advert of at most 1000 bytes is gossiped, and in the queue a newer
//	            advert of a node replaces the older; a larger one goes over the
//	            reliable channel to five nodes. A receiver to which an advert is
//	            new passes it on in the same way; else the receiver drops it
//	tables      whole, with every push/pull of memberlist: at most 1 MiB of them,
//	            and 4 MiB to a node that joins; its own first, then those that
//	            changed last, then any. A node that still lacks what another
//	            node's metadata names does a push/pull with that node (mend)
//	lives       with every push/pull: the newest start of each node that was let
//	            in, under a MAC that a gossip key alone cannot make (life.go). A
//	            node that finds itself further on there than on its disk ends
//	proofs      when two nodes have one id (referee.go)
//
// All of it is idempotent, and order does not matter. Incarnations are random and
// have no order; memberlist's own counter, which comes with the metadata, decides
// which one is newer. So a table counts only if its incarnation is the one that
// the node's metadata names, and among those tables the one with the higher
// version counts. A node that receives a table of its own that it never made
// raises its version above it.
//
// Earlier builds gossip changes of tables and ask each other for tables: nodes of
// such a build and of this one learn each other's tables by push/pull alone.
//
// # How to read it
//
// members.go starts and ends a node's part, run.go has its goroutine and queues,
// view.go the View. tables.go is about region tables, join.go about finding other
// nodes. life.go, claims.go, conflict.go and referee.go are about two nodes of
// one id. transport.go and refusal.go stand between memberlist and the network,
// callbacks.go between memberlist and the rest.
//
// # Goroutines and locks
//
// memberlist calls us from its own goroutines, often under its own lock. Such a
// callback copies what it is given, takes mu for a few instructions, and never
// calls memberlist. All other work is done in our goroutines: run (messages,
// tables, views), advertise (metadata), joiner, the senders, the logger. They
// never call memberlist under mu. The order is: memberlist's locks, then mu.
// Every queue between them is bounded; a message for which there is no room is
// dropped and counted, and the next push/pull mends what was dropped.
package membership
