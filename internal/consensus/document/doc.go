// Package document is a consensus.Machine whose state is one small document: at most MaxContent bytes, which stand
// in memory and in one file. What the document says is a Content's matter; this package has it replicated.
//
//	Do ──▶ Engine.Propose ──▶ the group's log, at a majority ──▶ Apply, at each replica
//	 ▲                                                            │ Content.Apply ──▶ the next Content is published
//	 └─────────────── answer ◀────────────────────────────────────┤
//	                                                              └─ ~100 ms later: the file is replaced ──▶ Engine.Trim
//
// # What Do promises
//
// Do wraps an entry with a name that nobody else gives (entry.go), and returns the answer of Content.Apply when the entry of that
// name was applied here. It says ErrNotLeader only if the entry is not applied and never will be: it was not queued,
// or an entry of a later term was applied first, and no entry of an earlier term stands behind one of a later. Whoever has
// lost the lead waits a short while for the one or the other, and is told ErrUnknown if neither comes: another leader
// may have the entry, and may have it applied.
//
// # What is durable
//
// An entry is durable in the logs of a majority before it is applied. The file is older than what is published, by what was applied
// since it was written; those entries are in this replica's log, which is trimmed up to the file's and no further (R6), and are applied again
// by the next start. If the log were trimmed before the file is durable, a crash would lose them. A snapshot that another replica
// has sent takes the place of the file before Adopt returns.
//
// A replica that has a file and no log has forgotten what it promised, so its start is refused with consensus.ErrNoLog (R18). One that has
// a log and no file is refused with ErrNoFile. Create makes the log first and the file last, and does nothing where there is a file:
// if it made a log for a replica that had one before, that replica would vote twice in a term. Stop drops the log
// first, and the file last, for the same reason.
//
// Durable has nothing to do here, because no client READs a document: the word of R10 is told by no memory. The
// configuration (R12) is published with the state.
package document
