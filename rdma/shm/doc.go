// Package shm is the fabric for two processes on one host: a READ is a copy that the
// reader makes out of memory that it has mapped, and no message, system call or other
// process takes part in it. It implements package rdma, rdma.DirectReader included, on
// Linux alone; elsewhere it has no device.
//
// # How to read it
//
// fabric.go, device.go and qp.go are the objects. channel.go and ring.go are the
// memory that both ends write. receive.go consumes a ring and transmit.go produces
// one. show.go passes regions to the peer, seen.go maps those of the peer.
// connect.go, listener.go, place.go, name.go and cred.go connect two processes;
// wire.go has the datagrams of the socket, and socket.go what they do afterwards.
// spin.go polls, state.go ends a connection.
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
// Both ends have the same rights and duties after the set-up: either may show regions
// to the other, SEND, READ and WRITE.
//
// # Set-up
//
// A listener at HOST:PORT has the socket DIR/PORT.NETNS.HOST.sock (place.go). The
// dialer tries the sockets of the port. Each end asks the kernel which user the other
// process runs as (SO_PEERCRED), and goes on only with its own user, or, where the
// operator has said Trusted, with the users that Trust allows (cred.go). Then they
// exchange one datagram each:
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
// descriptors) and k (look into your ring). When it hangs up, the connection is over:
// that is how each end notices that the other process has ended, in whatever way.
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
// producer stores tail, then swaps asleep with 0, and sends a wake-up only if it was 1.
// All of these are sequentially consistent, so one of the two sees the other. A
// consumer that polls keeps asleep at 0, and neither end makes a system call.
//
// # Regions
//
// An MR in shared memory (rdma/mem, Options.Shared) that may be read remotely gets a
// slot in the half of each connection of its PD as soon as the QP grants REMOTE_READ,
// and its descriptor goes to the peer. The peer maps it and reads by itself; before a
// copy and after it looks at the slot:
//
//	owner   MR.Close, SetAccess(0):  slot = 0        then the memory is its own again
//	reader  slot = rkey? ── copy ── slot = rkey? ──▶ success; else a protection fault
//
// So a copy counts only if it was over before the region was taken back. Every other
// region, and every region whose descriptor has not come yet, is read through the
// rings: a request, answered by the owner's goroutine, with the same checks.
//
// # What holds, even with a hostile peer
//
//   - What stands in a channel is copied out before it is checked, and nothing that
//     we have written there is read back. An index moves forward only, by words,
//     and no further than the bytes that can be there.
//   - A descriptor is mapped only if the kernel says that it cannot shrink
//     (F_SEAL_SHRINK): no peer can make us meet a page that is gone. What one peer
//     can make us map is bounded, and so is what all of them can.
//   - A region that we show is sealed against every write, hole and change of size
//     but our own (F_SEAL_FUTURE_WRITE, taken after our own mapping).
//   - A peer that reads neither ring nor socket delays only itself.
//   - A wake-up never blocks: no eventfd is shared, because its O_NONBLOCK would be.
//
// # Locks
//
// They are taken in this order:
//
//	receiver.mu ▸ sender.mu ▸ QP.Mu ▸ RecvQueue ▸ CQ
//	exports.mu ▸ showing.mu
//
// sender.mu is only tried under QP.Mu; a goroutine that finds it taken leaves the work
// to the one that holds it (sender.again). seen.mu and cq.ringsMu are leaves, as are
// the locks of devices, domains, keys and numbers.
//
// # What this fabric cannot do
//
// A mapping cannot be taken back (rdma.CapMapped). A peer that ignores the slots reads
// a region for as long as it pleases, also after the end of the process that made it. So the
// peer must run as a user that could read our memory anyway, our own, or the operator
// must say that the peer is trusted. And a process that comes after a dead one finds
// out whether any peer still has the dead one's memory by a lock that each peer holds
// (Options.Proof).
//
// Sources: memfd_create(2), fcntl(2) on file seals, unix(7) on SCM_RIGHTS and
// SO_PEERCRED, flock(2).
package shm
