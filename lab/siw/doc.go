// Package siw tries the two iWARPs of this project against each other: package
// iwarp, an RNIC in user space, and siw, the soft RNIC of the Linux kernel, as
// the C programs of rdma-core and package verbs see it. Debian compiles no siw,
// so Build makes the module from Debian's source for the kernel that guests of
// the lab boot. "make lab-siw" runs everything, in a guest for each variant of
// the driver; without a guest the tests are skipped.
//
// # What works
//
// Each direction means: the left end dials. Either end asked for READ, WRITE and
// SEND, from 0 bytes to 4 MiB.
//
//	                              iwarp ─▶ siw          siw ─▶ iwarp
//	rping (C), data compared      yes                   yes
//	READ, WRITE, SEND             yes                   yes
//	MPA revision 2                yes                   yes
//	MPA revision 1                yes                   yes, siw built so
//	peer-to-peer: RTR WRITE       yes                   yes, siw built so
//	              RTR READ        yes                   –
//	CRC32C on and off             yes                   yes: our end decides
//	private data, accept, reject  yes                   yes
//	refusal with Terminate        yes, both ways        yes, both ways
//	disconnect, kill of an end    yes                   yes
//
// Both must be addressed by an address of the netdev that siw sits on, in one
// network namespace. It may be an Ethernet, veth or dummy device; a siw on lo
// can be made but not used, because its GID is zero.
//
// # What gates access on siw
//
// A responder checks what a peer asks for by these, and by nothing else:
//
//	                                     siw            iwarp, rxe
//	STag (rkey) known                    yes            yes
//	region and QP of one PD              yes            yes
//	bounds of the region                 yes            yes
//	REMOTE_WRITE of the region           yes            yes
//	REMOTE_READ of the region            no             yes
//	rights of the QP (ibv_modify_qp)     no             yes
//
// siw takes IBV_QP_ACCESS_FLAGS in every state, stores them, and looks at them
// nowhere; ibv_query_qp answers 7 whatever was set. So withholding rights until
// a peer has authenticated does nothing on siw, and a receive buffer is as
// readable as a slab. Only these keep an unknown peer from memory there:
//
//   - the protection domain. A QP lives in one PD for good, so: a PD for each
//     session, in which the slabs are registered after authentication; or a
//     session on a QP of a PD without slabs, which hands out a ticket for a
//     second QP in the PD with them;
//   - not knowing address and rkey: an rkey of siw has 24 bits, drawn at random
//     for each region, and goes with a virtual address. A wrong guess ends the
//     connection.
//
// # Habits of siw to know
//
// As a peer on the wire:
//
//   - Its Terminates have layer and type, and the flags, in the wrong order of
//     bits (package iwarp understands both). It does not read those it gets: a
//     requester on siw sees a refused READ as a flushed one and a lost peer.
//   - It sends a Terminate and closes at once; a request that is on its way
//     then resets the connection.
//   - A READ's sink needs no REMOTE_WRITE (RFC 5040 section 5.2 lets a device
//     ask for it).
//   - An acceptor serves as many READs at a time as the dialer asks for, up to
//     the device's limit, whatever its own program says.
//   - With a peer of MPA revision 1 the event of the request has no depths, and
//     rdma_accept without parameters makes a QP that may not READ.
//   - Private data of rdma_connect ends at 251 bytes: the length is kept in 8
//     bits, to which 4 are added.
//
// As a device under a program:
//
//   - A QP is moved to RTS by rdma_connect and rdma_accept, with qp_num in the
//     parameters where librdmacm did not make it; there is no RTR. ibv_query_qp
//     does not tell the state.
//   - rdma_connect waits for TCP within the system call: an address without a
//     listener fails without an event, one that does not answer keeps the
//     thread for as long as TCP tries.
//   - When the peer has gone, posted work is flushed only after rdma_disconnect
//     or a move to ERR; work that is posted after the kernel has noticed is not
//     flushed at all.
//   - A SEND or WRITE behind a READ completes before the READ.
//   - A READ has one piece of sink memory. With none, the kernel takes the piece
//     that was last in that place of the queue, and writes there.
//   - An empty piece in the list of a SEND or WRITE that is not empty itself
//     makes the kernel dereference NULL.
//   - A fence on a READ is refused and ends the connection.
//   - Its library takes the 577th KiB of a context's queues for an error: the
//     creation of a QP or CQ that would begin there fails without errno, again
//     and again. A large CQ that is made first lies across that place.
package siw
