// Package keeper has the memory of a node outlive its process: a keeper is a process of its own that holds descriptors of memfds for a node, and does
// nothing else. The next process of the node gets them back.
//
//	node   ── here is region 7 (descriptor) ──▶ keeper     while it serves, each time a region comes or goes
//	node     ends, however that comes: its connection is closed
//	next   ── hello ──▶ keeper ── the descriptors ──▶ next
//
// There is one connection at a time, and it is the right to the memory: a second node is told that the memory is in use. When a connection ends, the keeper waits for
// the next one as long as the node has said (memory_keep), and then ends itself, and with it the memory that nobody else has.
//
// The keeper is the program itself, started by the node in a session of its own (Run), so that what ends the node does not end the keeper. It listens at a
// UNIX socket in the node's data directory, which only the node's user can open; both ends ask the kernel who the other is. If a keeper ends, the node
// goes on: it has lost nothing but what the next start would have found.
//
// A message is one datagram of SOCK_SEQPACKET: a letter, then what stands beside it, and at most one descriptor. The first from each end has the
// version of the protocol, since the keeper may be an older program than the node: that is what an upgrade is.
//
//	hello    H version keep      node    the descriptors follow, then K
//	region   F name + descriptor keeper  one that is kept
//	busy     B pid               keeper  another process has the connection
//	put      P name + descriptor node    keep this, in place of another of that name; answered by K
//	drop     D name              node    let go of it; answered by K
//	done     K                   keeper
package keeper
