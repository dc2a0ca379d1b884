// Package consensus is what a group of replicas agrees by: the words of it, and what an
// engine and the machine that it drives ask of each other. No type of the library that
// does the agreeing (go.etcd.io/raft) is in here; package core has it.
//
// A group has one log of entries, which an elected leader proposes and a majority of the
// voters makes durable. Each replica hands what is committed to its Machine, in the order
// of the log:
//
//	Machine (store)        engine (driver, core)                       other nodes
//	Propose ─────────────▶ entry ─▶ log, one sync of all groups ─────▶ log, sync
//	                                     └──────── majority ◀────────────┘
//	Durable(term) ◀─────── the term of the log is durable; only then
//	                       votes and messages of that term leave
//	Apply(entries) ◀────── committed                     (commit index) ─▶ Apply
//	   publishes, returns
//	Leads(term) ◀───────── elected; the machine proposes its marker
//
// The rules that hang on this package have the numbers of docs/replication.md: R1 (no
// message with a term above the word), R6 (the log is trimmed behind checkpoints), R7 (no
// commit index leaves a leader above what it has published), R8 (snapshots), R10 (the word
// before the vote), R12 (the configuration's number before its effect), R22 (the commit
// index is durable with its entries), R23 (no snapshot while entries are applied).
package consensus
