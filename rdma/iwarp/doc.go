// Package iwarp is an iWARP RNIC in user space: RDMA over plain TCP, in pure
// Go, with no device, no privilege and no cgo. It implements package rdma to
// the standards, so that a kernel siw or an iWARP card can be the peer:
//
//	┌─────────────────────────────────────────────┬───────────┬──────────────┐
//	│ SEND, READ, WRITE, Terminate                │ RDMAP     │ RFC 5040     │
//	│ segments, STags, queues, placement          │ DDP       │ RFC 5041     │
//	│ connection set-up, frames, CRC32C           │ MPA       │ RFC 5044/6581│
//	│ bytes in order                              │ TCP       │              │
//	└─────────────────────────────────────────────┴───────────┴──────────────┘
//
// # Read it in this order
//
// mpa.go, fpdu.go, ddp.go and terminate.go are the bytes: pure functions, each
// with its picture. stag.go, mr.go, recvq.go, sendq.go and cq.go are the
// objects of the verbs. qp.go is the connection; reader.go takes what comes,
// direct.go takes what is long, transmit.go and respond.go make what goes,
// state.go ends it. connect.go and
// listener.go set it up.
//
// # Who runs
//
// A connection has one goroutine of its own, the reader, parked in the
// netpoller without a buffer. Who is awake anyway may read the socket for it, one
// at a time (look.go): a waiter that polls, through CQ.Spin, and the reader
// itself, which looks for the next READ for a while after it has answered one
// (attend.go). Meanwhile the kernel wakes nobody.
//
// Whoever has something to send writes to the socket itself, without waiting: the
// caller of PostSend, or the reader with its READ responses. One at a time is the
// transmitter (QP.txBusy); who finds it taken leaves his work in the queue, and
// the transmitter takes it along. After a round that completed many READs the
// next requests wait for each other, so that one system call takes them (QP.ring).
// Only when the socket is full does a writer goroutine take over, until the
// queue is empty. So the reader never waits for the peer to read, and two ends
// that both send cannot block each other.
//
// Rejected: letting the goroutine in CQ.Wait sleep in the netpoller itself, to
// save the hop from reader to waiter. It was built and measured: a lone READ of
// 4 KiB gains a fifth, but batches of 32 took two to three times as long, because
// then the process sleeps at every turn, and the socket needs a keeper for
// whenever nobody waits. Who can afford to look has no hop, and for the others one
// system call a read was kept (rawio_unsafe.go).
//
// # What a peer can do
//
// Everything from the wire is hostile until checked. Nothing is believed
// before its CRC; no length from the wire allocates; the first wrong byte is
// answered with one Terminate and ends that connection alone. Responses are
// made when there is room in the socket, at most IRD requests wait.
//
// # Addresses
//
// MR.Addr is 0: tagged offsets count from the first byte of the region, which
// tells a peer nothing about this process. An MR has one STag, which is its
// lkey and, if remote rights were given, its rkey.
//
// Lock order: QP.mu, then SRQ.mu or a receive queue, then CQ.mu. Device and PD
// bookkeeping is taken alone.
package iwarp
