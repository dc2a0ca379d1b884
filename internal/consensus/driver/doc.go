// Package driver runs the replicas of a node: one scheduler for all groups, over the node's
// one log. A turn takes all groups for which something happened, has each do what that asks
// for, and appends what they want stored as one frame, with one sync.
//
//	messages, proposals, ticks,          ┌──────────────────────────────┐
//	ends of syncs and of Apply  ──inbox─▶│ turn: group after group      │──▶ Link.Send
//	                                     └──────┬───────────────┬───────┘
//	                                            │ one frame     │ committed entries
//	                                            ▼               ▼
//	                                     writer: write, sync   applier, one a group:
//	                                     Machine.Durable       Machine.Apply
//	                                            │               │
//	                                            └────inbox──────┘
//
// # Who runs what
//
// There is one turn, and whoever takes it is the only one that touches core.Replicas. Those who
// bring news take it themselves, if it is there (Node.help): who has received messages, an
// applier that is done, the writer, the clock. Nobody has to be woken for it then, and while a
// turn is taken, the news of others gather for the next one. A writer takes frames to the disk,
// one after the other: what is to be stored meanwhile is the next frame. A group's applier is
// the only one that calls its machine's Apply, Snapshot and Adopt; the writer calls Durable; the
// turn calls Leads and Follows.
//
// # What is bounded
//
// Inboxes are bounded by kind: messages by MaxInbox (what has no room is lost, as on a
// network), proposals by the library's bytes of uncommitted entries (ErrBusy), ticks by one,
// the ends of syncs and of Apply by what was handed out. Bytes that are committed and not
// applied are bounded by core.Limits.Applying. A node sends MaxSending snapshots to another one at a
// time, and receives MaxReceiving, MaxOfSender of each sender; one that failed is sent again behind a pause.
//
// # When a disk hangs
//
// A tick of a replica that does not lead counts only while none of its appends has waited for
// longer than a tick. A leader whose oldest append has been under way for Config.Overdue sends
// no heartbeat any more, and asks the follower that has most to stand: a group is not held by the
// disk of its leader. A hanging read of what a follower lacks and memory has no more stops the
// turn, and with it all groups of the node; their other voters elect then.
package driver
