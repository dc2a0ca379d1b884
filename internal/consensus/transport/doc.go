// Package transport takes what replicas tell each other from node to node, over the fabrics of
// package rdma. It implements consensus.Link.
//
//	node A                                                node B
//	Send ─▶ queue ─▶ slots ───── SEND ──────────────────▶ receives ─▶ Endpoint.Deliver
//	                   ▲ ◀────── SEND: credits ──────────────┘
//	Snapshot ─▶ pieces, registered ◀═══════ READ ═══════ sinks ─▶ Endpoint.Receive
//	Ask ───────────▶ slots ───── SEND ──────────────────▶ receives ─▶ Config.Answer
//	    ◀──────── receives ◀──── SEND ────────────────────── slots ◀────────┘
//
// A node dials its ways out, so each pair of nodes has two ways for each lane (wire.Lane): one in
// each direction. Heartbeats and votes have a lane of their own, so that they wait for no entries.
// A way is a queue pair with a completion queue and registered memory of its own. It is opened
// when there is something to send, and again when it has ended; what was on it is lost, which the
// replicas make good. The way of questions (Ask) is closed when nobody asks for a while, and of a question
// that was on a way which has ended, who asks hears that its outcome is not known (*LostError).
//
// # The bytes
//
// The way is opened as internal/wire/node.go draws it: private data with MACs under the cluster's
// secret, then NodeHello. Every SEND has this head:
//
//	  0      1      2       4         8
//	+------+------+-------+---------+------
//	| kind | last |   0   | value   | body
//	|  8   |  8   |  16   |  32     |
//	+------+------+-------+---------+------
//
//	 1 hello     to the accepting node, once: body is a NodeHello
//	 2 welcome   the answer: value is the first credits
//	 3 data      a part of a frame (core.AppendMessage, one or many); last: its end
//	 4 credit    value receives are posted again
//	 5 offer     of a snapshot: body is its head; value the bytes of a piece
//	 6 piece     value bytes of it stand in the memory that the head names; last: there are no more
//	 7 taken     they were read
//	 8 end       of a snapshot: value is what came of it, body says why
//	 9 refusal   in place of a welcome: body is a NodeRefusal
//	10 question  a part of one: value is its id; last: its end (talk.go)
//	11 answer    a part of one: value is the id of its question; last: its end
//	12 failure   in place of an answer: value is the id of its question; body says why (answer.go)
//
// A SEND is sent only against a credit, because the receiver of a SEND without a receive ends the
// connection on iWARP. A frame is at most MaxFrame bytes, a question and an answer at most MaxAsk.
//
// # Who may speak
//
// A hello names the data directory and its openings. The accepting node asks Config.Admit before anything of the way
// is delivered: if the directory does not know of an opening that this node has seen, it was set back, and has forgotten
// what it promised since (R18). Such a way is refused, and the other node hears which opening was seen (Config.SetBack).
//
// # What is bounded
//
// What waits for a way: a queue of each lane (QueueUrgent, QueueBulk); what has no room is lost.
// What a peer may have us keep: the receives of its ways, of which there is one for each lane and
// node, or a few of snapshots (maxWays), and a frame that is not whole, or MaxAsking questions and their answers, which are as much as two frames.
// Questions that are answered at once: MaxAsking of a node, MaxAnswering of all; who asks more hears consensus.ErrBusy. Ways that are being set up:
// MaxSetups, each for SetupTimeout. A snapshot is taken at most at Rate, two pieces of it are here at a time (pieces.go), and it is given up
// when it comes too slowly (pace.go).
package transport
