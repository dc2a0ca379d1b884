// Package iwarp is an iWARP RNIC in user space: RDMA over plain TCP, in pure Go, with no
// device, no privilege and no cgo. It implements package rdma to the standards, so that
// a kernel siw or an iWARP card can be the peer:
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
// Package internal/proto has the bytes: pure functions, each file with its picture.
// Package rdma/internal/soft has what the software fabrics share: regions, queues, CQs,
// and the state of a QP. qp.go is the connection, and names its parts. reader.go takes
// what comes and place.go puts it where it belongs; direct.go does so for long payloads, and
// ahead.go for several at once. transmit.go writes; request.go and respond.go frame what it
// writes, gather.go out of the region itself. look.go and
// attend.go read the socket without being woken. state.go ends a connection; connect.go
// and listener.go set it up.
//
// # Which goroutine does what
//
// A connection has one goroutine of its own, the reader, parked in the netpoller without
// a buffer. A goroutine that is awake anyway may read the socket in its place, one at a
// time (look.go): a waiter that polls, through CQ.Spin, and the reader itself, which
// looks for the next READ for a while after it has answered one (attend.go). Meanwhile
// the kernel wakes neither.
//
// A goroutine that has something to send writes to the socket itself, without waiting:
// the caller of PostSend, or the reader with its READ responses. One at a time is the
// transmitter (tx.busy). A goroutine that finds another one transmitting leaves its
// requests in the queue, and the transmitter takes them along. After a round that
// completed many READs the next requests wait for each other, so that one system call
// takes them (tx.ring). Only when the socket is full does a writer goroutine take over,
// until the queue is empty. So the reader never waits for the peer to read, and two ends
// that both send cannot block each other.
//
// Rejected: letting the goroutine in CQ.Wait sleep in the netpoller itself, to save the
// hop from reader to waiter. It was built and measured: a lone READ of 4 KiB gains a
// fifth, but batches of 32 took two to three times as long, because then the process
// sleeps at every turn, and the socket needs a keeper for the time when no goroutine
// waits. A program that can afford to poll has no hop, and for the others one system
// call a READ was saved (rawio_unsafe.go).
//
// # What a peer can do
//
// Everything from the wire is hostile until checked. Nothing is believed before its CRC,
// if there is one (Options.NoCRCWithin);
// no length from the wire allocates; the first wrong byte is answered with one Terminate
// and ends that connection alone. Responses are made when there is room in the socket,
// and at most IRD requests wait.
//
// # Addresses
//
// MR.Addr is 0: tagged offsets count from the first byte of the region, which tells a
// peer nothing about this process. An MR has one STag, which is its lkey and, if remote
// rights were given, its rkey.
//
// # Locks, in order
//
//	receiver.mu ▸ QP.Mu ▸ a receive queue's or SRQ's ▸ a CQ's
//
// keeper.mu, of either keeper, and spinners.mu come after receiver.mu; egress.mu is taken without QP.Mu.
// The locks of a device, a PD, the tables of regions and numbers are taken alone.
package iwarp
