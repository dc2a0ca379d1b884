// Package core is one replica of a group: the library's RawNode (go.etcd.io/raft) and the
// rules that it leaves to its caller. It has no goroutine, no clock and no file: its owner
// gives it what happened (Tick, Step, Propose, Appended, Applied) and takes what is to be
// done (Take), so the same steps give the same replica, and a whole group runs in one
// goroutine of a test.
//
//	Step, Tick, Propose ──▶ ┌───────────┐ ──▶ Work.Append ─▶ the log, one sync ─▶ Appended
//	                        │  Replica  │ ──▶ Work.Apply ──▶ the machine ──────▶ Applied
//	Appended, Applied ────▶ └───────────┘ ──▶ Work.Send ───▶ other replicas
//
// # The rules, and what happens without them
//
//   - R1. No message leaves with a term above the word, but a pre-vote and the grant of one,
//     which promise nothing and carry the next term. The library hands out MsgVote,
//     MsgHeartbeatResp and, of a leader that others' votes have made, MsgApp before the
//     HardState with their term is durable; after a power cut such a leader could win the
//     same term again and write other entries under the same index and term. They are held
//     until the word is there. If they were dropped, nobody would ever be elected.
//   - R7. No commit index leaves this replica above what it has published, but for entries
//     of configuration and the library's own behind that: a replica that has an entry of
//     configuration must know that the one before it is committed.
//   - R22. A commit index that came with entries is appended with them. One that came alone
//     is appended with the next ones, at the latest with a trim (Trim).
//   - R23. MsgSnap is stepped only while no Apply is outstanding: ApplyConfChange of an older
//     entry behind it would leave the library with a configuration that the group does not
//     have.
//   - The machine has published entries, and ApplyConfChange was called for each of
//     configuration, before the library hears that they are applied: it never begins the
//     next change of configuration on what is not published.
package core
