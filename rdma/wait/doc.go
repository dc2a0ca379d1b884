// Package wait lets goroutines wait for completions.
//
// A completion that one goroutine has polled is gone from the queue, so goroutines
// that share a CQ need one that polls for all of them. A Dispatcher arranges that
// without a goroutine of its own. Of the goroutines that wait, one is the leader: it
// polls the CQ and hands each completion to the Op that it belongs to. When the
// leader's own Op is done, another waiter becomes the leader.
//
//	goroutine ── Op ──▶ PostSend ──▶ QP ─ ─ ─▶ CQ
//	    │                                       │ polled by the leader
//	    └──── Wait ◀── Dispatcher ◀─────────────┘
//
// A Mode says how the leader spends its time until a completion comes. It polls
// (shortest latency, but a processor is busy), or sleeps until an event (no
// processor, but some microseconds more), or decides for each wait anew by how long
// the last waits took: see SpinBudget.
//
// A program in which one goroutine alone uses a CQ needs none of this: it calls
// rdma.Await.
//
// Events are those of ibv_req_notify_cq(3) and ibv_get_cq_event(3).
package wait
