// Package member is a node's part in a cluster. Two kinds of knowledge meet here and are
// never mixed:
//
//	the shard map    law: which shards are this node's. Durable (package
//	                 shardmap), agreed over sessions (Change), asked for every
//	                 request with a key (base.Ownership)
//	membership       hints: which nodes are there, where, with which regions. Told to
//	                 clients (View) and gossiped (Run)
//
// Until there is a map the node serves no key: StatusNoMap. The shards of other nodes are
// withheld in the store, in every space: their index says "ask", so that a client that
// came to the wrong node by READ asks, and is told that the key has moved.
//
// A Member knows of its node what the interface Node says. It locks nothing of the node
// while it holds its own locks, which are leaves but for two: Member.keys is held while
// the keys of gossip change, Tables.mu while the store is asked for its regions.
package member
