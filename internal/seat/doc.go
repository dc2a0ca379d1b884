// Package seat works out how a cluster gets to what its operator wants. It is pure: states, requests and reports go in, states come out. Who leads the meta group
// calls it (package groups), and puts what comes out into that group's log.
//
//	Plan   a request ──▶ a task: which replica goes from where to where
//	Step   what nodes report ──▶ the next state: moves that have arrived end, others begin, within the limits
//	Next   a group's configuration and what the map wants ──▶ the one step that its leader does now
//
// One move, of a replica from node A to node D:
//
//	seat    the map: D has a new replica, A's leaves                       Step: begin
//	D       makes the replica, empty
//	leader  D learns                                                       Next: AddLearner
//	        … snapshot, entries; D lacks little, for a while …
//	leader  D votes, A learns (if A leads: hands the group over first)     Next: Promote, Transfer, Demote
//	leader  A is out, once a majority of the voters has published that     Next: Remove
//	seat    the map: A has no replica                                      Step: arrived
//	A       gives the replica up (R24: on this word alone)
//
// The seat's last step waits until the group's leader, and a majority of its voters, go by the map that says that A's replica leaves: a leader with an older map could
// give a vote to a replica that the map does not have any more. For the same reason a new leader asks which map is the newest before its first step (Next).
//
// A move of a task that is canceled goes back if A's replica votes still and is there, or if D's does not vote; else it goes on to its end (Step: undo). So no node that has died in
// the middle keeps a task from its end, as long as the group has a leader.
//
// Each step looks at what is there, so it may be done twice, by the next leader and by the next seat.
package seat
