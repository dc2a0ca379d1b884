// Package replica is a replica of a group of shards, between the store that has them and the
// engine that brings all replicas to the same entries (package consensus).
//
//	              leader                                  every replica
//	Orderer --Push--> queue --cut--> entry --Propose--> engine --Apply--> publish --> answer
//	                    number           at most 4 on their way                  (own writes)
//
// A leader gives out the numbers of its group, and keeps what it has proposed (flying) until the
// entry is applied: it is published with the memory that was reserved for it, and answered. Every
// other entry that counts is ordered and published here at once, from its bytes.
//
// # The rules, and what happens without them
//
//   - A leader orders behind its own marker alone (R2): one that this process has proposed, in the
//     term in which it leads. Behind it all that was committed before is published here. If a
//     leader ordered as soon as it is elected, it would judge conditions on a state without the
//     last writes of its predecessor; if any marker counted, one that is applied again after a
//     start would make a leader of whoever led once.
//   - A marker ends what was ordered before it: whatever of that is not applied by then is void
//     on all replicas (package entry), so it is taken out of the shards, and its callers are told
//     that it was not done (R5). If it stayed, the next writes would be judged behind writes that
//     never take effect.
//   - Until a marker says so, a write whose leader has fallen is neither done nor not done: it
//     may be committed still. Its caller waits, for Config.Patience, because the next marker is an election away. A leader
//     that is cut off hears of none, however long that takes; so then it answers what is in an entry
//     with ErrOutcomeUnknown, and what is in none with NotLeaderError. If it did not, the callers' buffers and slots would be held
//     until it is reached again; if it said of an entry that it was not done, its caller would do it twice.
//   - A write is answered when it is published here, and never before (R5), because an item that is
//     read one-sidedly must not be older than an answer.
package replica
