// Package change is a node's part in the change of its cluster: nodes that come and go, replicas that move. What is to be done is worked out by the pure packages
// meta and seat; here is what carries it out.
//
//	metagroup.go   the replica of the meta group, if the map gives the node one
//	lead.go        of the node that leads that group, the seat: polls all nodes, and has the meta group agree on the next step
//	poll.go        the question that the seat asks every node, and its answer: here is the map; how are your replicas?
//	learn.go       the question that a node asks the others before its replicas take part: have you a later map?
//	mover.go       of the leader of any group: brings the group to what the map wants
//	operator.go    what operators ask for
//	recovermeta.go the meta group is made anew by one of its nodes, if its majority is lost for good
//	anew.go        what the others promise it, and what nodes do that meet two meta groups
//
//	seat ──poll: map version, map──▶ every node ──Follow──▶ its durable map, its replicas (package groups)
//	     ◀──────────report──────────
//
// Rules:
//
//   - A leader moves nothing unless the map which it has is known to have been the newest one within freshFor, and since this replica leads: the seat has read the meta group's
//     state when it had a report that this node made since then (echo). So a poll that comes late, however late, tells nothing that is not true. A leader with an
//     older map could take out of its group what a later one brings in, or give a vote to a replica whose node is about to give it up: the seat has gone by what the
//     leader before it, and a majority, said of the later map (seat: settled).
//   - The seat begins with a state that a majority has confirmed (document.Read), and proposes each next one under its version (meta.State.Apply), so one that
//     was deposed changes nothing.
//   - A node follows maps of higher versions alone, whoever sends them; the meta group gives each version once.
package change
