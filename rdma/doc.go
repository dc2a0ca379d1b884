// Package rdma is the verbs, in Go: the small interface that every fabric
// implements and that everything above a fabric is written against.
//
// It keeps the words of the field. A reader who knows libibverbs finds the
// same objects with the same names; a reader who does not can learn them here,
// in this order:
//
//	Fabric ── opens ──▶ Device ─┬─ AllocPD ──▶ PD ─┬─ RegMR     ──▶ MR   registered memory, named by lkey and rkey
//	 (iwarp, verbs, …)          │                  ├─ CreateQP  ──▶ QP   a reliable connection (RC)
//	                            │                  └─ CreateSRQ ──▶ SRQ  receives shared by many QPs
//	                            ├─ CreateCQ ─▶ CQ                        where work completions appear
//	                            └─ Listen ───▶ Listener ─▶ ConnRequest   the connection manager (CM)
//
// Work is posted to a QP in batches (SendWR, RecvWR) and reported on a CQ in
// batches (WC). A one-sided RDMA READ names remote memory by address and rkey;
// the peer's program takes no part in it.
//
// # Rules that hold on every fabric
//
//   - Who owns a buffer. From the moment a work request is posted until its
//     completion (or flush) has been polled, the memory it names belongs to
//     the fabric: it must not be reused, freed or, for a sink, read. A call
//     that gave up waiting does not change that: the buffer is quarantined.
//   - Signaling. Only a SendWR with SendSignaled produces a completion when it
//     succeeds; every work request that fails produces one. Send completions
//     of one QP appear in the order of posting. Every RecvWR produces one.
//   - The first error is the cause. The first completion of a QP whose status
//     is neither StatusSuccess nor StatusWRFlushErr says why the connection
//     died; everything behind it is flushed.
//   - On a completion with an error only ID, Status, QPN and VendorErr count.
//   - CQ space. A CQ is created with a depth; the program sees to it that the
//     work outstanding on all its QPs never exceeds that. An overrun kills the
//     CQ and its QPs, as in hardware.
//   - Access. A QP starts with the access of QPConfig.Access, normally none,
//     and a READ from the peer is refused until SetAccess has granted
//     AccessRemoteRead, whatever the memory region allows.
//   - A SEND completion proves that the memory may be reused. Only on devices
//     with CapSendDelivers does it prove more than that; a program relies on
//     replies, never on completions.
//
// Capabilities that a fabric lacks answer ErrNotSupported; no method is nil.
//
// Standards and manuals behind the words: InfiniBand Architecture Release 1.4
// chapters 9 to 12; RFC 5040 (RDMAP), RFC 5041 (DDP), RFC 5044 and 6581 (MPA);
// the rdma-core manual pages ibv_post_send(3), ibv_poll_cq(3),
// ibv_modify_qp(3), rdma_connect(3).
package rdma
