// Package groups is a node's part in the groups of replicas that its shard map gives it. It puts together what runs them:
//
//	store.Config.Engine ──▶ driver.Node ──Link──▶ link ──▶ transport.Transport ──▶ other nodes
//	                             ▲                                 │
//	                             └──────────── Endpoint ◀──────────┘
//
//	New ─▶ Store (its configuration; the engine is made as it opens) ─▶ InForce (a map is there)
//	    ─▶ TakePart (the node may serve) ─▶ AwaitOthers, HandOver (it is about to end)
//	    ─▶ Stop ─▶ store.EndGroups, before the node waits for its requests ─▶ the store is closed ─▶ Close
//
// The engine is made with the store, because it works on the store's log; the transport when there is a map, because that
// names the cluster whose nodes may connect. What is sent in between is lost, as on any network.
//
// Rules:
//
//   - A node has a replica of a map's group only if its store is the one that the map names for it (R18). A directory
//     that is new under an old name has not promised what the one before it had promised: if it voted, a write that a
//     majority had could be lost.
//   - What another node says counts if its directory is that of the map, and knows of every start that this node has
//     seen of it. A directory that was set back to an earlier state has forgotten votes and entries; its node is refused,
//     and stands down when it hears so (shardmap.Lives). So that each node has seen each start of the others, a node
//     meets them before its replicas take part (meet.go).
//   - A replica takes part after TakePart alone, which is called when gossip has not said that another process is this
//     node, or was, with a newer disk.
//   - Shards of a map in force that are not a group's yet here are nobody's: handlers answer that this node does not
//     lead (store.ReignOf, package handle). AddGroup is tried again until it succeeds.
//
// Safe for concurrent use.
package groups
