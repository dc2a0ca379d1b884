// Package rdma is the verbs, in Go: the small interface that every fabric
// implements and that everything above a fabric is written against. RDMA, remote
// direct memory access, lets a network card read and write the memory of
// another machine without a program running there.
//
// The package keeps the words of the field. A reader who knows libibverbs finds
// the same objects with the same names; a reader who does not can learn them
// here, in this order:
//
//	Fabric ── opens ──▶ Device ─┬─ AllocPD ──▶ PD ─┬─ RegMR     ──▶ MR   registered memory, named by lkey and rkey
//	 (iwarp, verbs, …)          │                  ├─ CreateQP  ──▶ QP   a reliable connection (RC)
//	                            │                  └─ CreateSRQ ──▶ SRQ  receives shared by many QPs
//	                            ├─ CreateCQ ─▶ CQ                        where work completions appear
//	                            └─ Listen ───▶ Listener ─▶ ConnRequest   the connection manager (CM)
//
// A program posts work requests to a QP in batches (SendWR, RecvWR), and the
// device reports their ends on a CQ as completions (WC). There are two kinds of
// work. A SEND needs a buffer that the peer has posted for it, a receive, and the
// peer's program gets a completion too. A READ is one-sided: it names memory of
// the peer by address and rkey, and the peer's program takes no part in it.
//
// The shortest program that READs from another process is examples/read.
//
// # Rules that hold on every fabric
//
//   - Ownership of buffers. From the moment a work request is posted until its
//     completion has been polled, the memory that it names belongs to the
//     fabric. Until then the program must not reuse or free it, nor change it if
//     it is the source of a SEND or WRITE, nor read it if it is the sink of a
//     READ or of a receive. A call that gives up waiting does not change that:
//     the buffer stays in quarantine until the completion comes.
//   - Signaling. A SendWR that succeeds produces a completion only if it has
//     SendSignaled; one that fails always produces one. Send completions of one
//     QP appear in the order of posting. Every RecvWR produces a completion.
//   - The first error is the cause. A QP does not survive an error. The first
//     completion whose status is neither StatusSuccess nor StatusWRFlushErr says
//     why the connection ended; all work behind it is flushed, that is, completes
//     with StatusWRFlushErr. Whether flushed work reached the peer is not known.
//   - Fields after an error. On a completion with an error only ID, Status, QPN,
//     VendorErr and Polled are valid.
//   - CQ space. A CQ has room for as many completions as its depth says, and the
//     program must have no more work outstanding on all QPs that use it. If it
//     has, the CQ overruns: the CQ is unusable from then on and its QPs enter
//     ERR, as in hardware.
//   - Access. A READ of the peer needs AccessRemoteRead twice: on the memory
//     region and on the QP. The QP starts with the rights of QPConfig.Access,
//     normally none, and SetAccess grants them.
//   - What a completion of a SEND proves. It proves that the memory may be
//     reused. That the peer has the message it proves only on devices with
//     CapSendDelivers; a program that must know relies on a reply.
//
// A capability that a device lacks answers ErrNotSupported; no method is nil.
// Errors wrap one of the classes of this package (ErrAccess, ErrPeerGone, …), to
// be told apart by errors.Is.
//
// # Packages beside this one
//
// Fabrics are rdma/verbs (RDMA devices, by rdma-core), rdma/iwarp (an RNIC in
// software, over TCP), rdma/shm (processes of one host) and rdma/sim (a network
// with faults, for tests). Package rdma/mem allocates memory that is fit to be
// registered; rdma/wait lets many goroutines share a CQ.
//
// Sources of the words: InfiniBand Architecture Release 1.4
// chapters 9 to 12; RFC 5040 (RDMAP), RFC 5041 (DDP), RFC 5044 and 6581 (MPA);
// the rdma-core manual pages ibv_post_send(3), ibv_poll_cq(3),
// ibv_modify_qp(3), rdma_connect(3).
package rdma
