// Package shm is the fabric for two processes on one host: a READ is a copy that
// the reader makes out of memory that it has mapped, and no message, system call or
// other process takes part in it. It implements package rdma, rdma.DirectReader
// included, on Linux alone; elsewhere it has no device.
//
// # What connects two processes
//
//	      dialer                                                   acceptor
//	┌────────────────┐      UNIX socket, SOCK_SEQPACKET        ┌────────────────┐
//	│ QP             │◀── set-up, descriptors, wake-ups, ─────▶│ QP             │
//	│                │    hang-up when a process ends          │                │
//	│                │                                         │                │
//	│                │      channel: a memfd of the acceptor,  │                │
//	│                │      both map it to read and write      │                │
//	│   producer ────┼──▶ [ words │ slots │ ring 128 KiB ] ────┼──▶ consumer    │
//	│   consumer ◀───┼─── [ words │ slots │ ring 128 KiB ] ◀───┼──── producer   │
//	│                │                                         │                │
//	│   READ  ◀──────┼─── [ region: a sealed memfd ] ◀─────────┼──── MR         │
//	└────────────────┘      mapped PROT_READ, for ever so      └────────────────┘
//
// Both ends have the same rights and duties after the set-up: either may show
// regions to the other, SEND, READ and WRITE.
//
// # Set-up
//
// A listener at HOST:PORT has the socket DIR/PORT.NETNS.HOST.sock (place.go). The
// dialer tries the sockets of the port; each end asks the kernel who the other one
// is (SO_PEERCRED) and goes on only with its own user, or, where the operator has
// said Trusted, with whom Trust allows (cred.go). Then, one datagram each:
//
//	dialer                                  acceptor
//	  H  magic, version, namespace,    ──▶   is the address mine? else J (foreign):
//	     dialled address, IRD, ORD,          the dialer tries the next socket
//	     private data
//	            ◀──  W  version, flags, size, IRD, ORD, private data
//	                 + channel's descriptor (+ one to hold: Options.Proof)
//	            ◀──  J  refused, private data
//
// After that the socket carries R (regions shown and taken back, with their
// descriptors) and k (look into your ring). When it hangs up, the connection is
// over: that is how the end of a process is noticed, however it ended.
//
// # Half a channel
//
//	   0  tail    u64  producer: bytes ever written         ┐
//	 128  head    u64  consumer: bytes ever taken out       │ one cache line
//	 256  asleep  u64  consumer: 1 = wake me                │ each, two apart
//	 384  full    u64  producer: 1 = wake me when there     │
//	                   is room                              │
//	 512  bye     u64  producer: why it hangs up            ┘
//	4096  slots   4096 x u64: rkey | 1<<32 of a region of the producer that may be
//	              read now, else 0
//	36864 ring    records of 8-byte words, none across the end (ring.go)
//
// Sleeping: a consumer sets asleep, looks once more, and sleeps on the socket; a
// producer stores tail, then swaps asleep with 0 and wakes only whom it finds
// asleep. All of these are sequentially consistent, so one of the two sees the
// other. A consumer that polls keeps asleep at 0, and nobody makes a system call.
//
// # Regions
//
// An MR in shared memory (internal/memory, Options.Shared) that may be read
// remotely gets a slot in the half of each connection of its PD as soon as the QP
// grants REMOTE_READ, and its descriptor goes to the peer. The peer maps it and
// reads by itself; before a copy and after it looks at the slot:
//
//	owner   MR.Close, SetAccess(0):  slot = 0        then the memory is its own again
//	reader  slot = rkey? ── copy ── slot = rkey? ──▶ success; else a protection fault
//
// so that no copy counts that was not over before the region was taken back. Every
// other region, and every region whose descriptor has not come yet, is read through
// the rings: a request, answered by the owner's goroutine, with the same checks.
//
// # What holds, whoever the peer is
//
//   - What stands in a channel is copied out before it is checked, and nothing that
//     we have written there is read back. An index moves forward only, by words,
//     and no further than the bytes that can be there.
//   - A descriptor is mapped only if the kernel says that it cannot shrink
//     (F_SEAL_SHRINK): no peer can make us meet a page that is gone. What one peer
//     can make us map is bounded, and so is what all of them can.
//   - A region that we show is sealed against every write, hole and change of size
//     but our own (F_SEAL_FUTURE_WRITE, taken after our own mapping).
//   - A peer that reads neither ring nor socket keeps nobody but itself waiting.
//   - A wake-up never blocks: no eventfd is shared, because its O_NONBLOCK would be.
//
// # What cannot be had
//
// A mapping cannot be taken back (rdma.CapMapped). A peer that ignores the slots
// reads a region as long as it likes, also after the end of the process that made
// it. So the peer must be one that could read our memory anyway, our own user, or
// the operator says that he trusts it; and whoever comes after a dead process finds
// out whether anybody still has its memory by a lock that each peer holds
// (Options.Proof).
//
// Sources: memfd_create(2), fcntl(2) on file seals, unix(7) on SCM_RIGHTS and
// SO_PEERCRED, flock(2).
package shm
