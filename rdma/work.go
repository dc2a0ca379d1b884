package rdma

import (
	"context"
	"fmt"
)

// Opcode names what a send work request does, and what a completion reports.
type Opcode uint8

const (
	OpSend           Opcode = iota + 1 // IBV_WR_SEND
	OpRDMARead                         // IBV_WR_RDMA_READ
	OpRDMAWrite                        // IBV_WR_RDMA_WRITE (CapWrite)
	OpSendInv                          // IBV_WR_SEND_WITH_INV (CapInvalidate)
	OpLocalInv                         // IBV_WR_LOCAL_INV (CapInvalidate)
	OpAtomicCmpSwap                    // IBV_WR_ATOMIC_CMP_AND_SWP (CapAtomics)
	OpAtomicFetchAdd                   // IBV_WR_ATOMIC_FETCH_AND_ADD (CapAtomics)
	OpBindWindow                       // IBV_WR_BIND_MW (CapWindows)
	OpRecv                             // completions only
)

func (o Opcode) String() string {
	switch o {
	case OpSend:
		return "SEND"
	case OpRDMARead:
		return "RDMA_READ"
	case OpRDMAWrite:
		return "RDMA_WRITE"
	case OpSendInv:
		return "SEND_WITH_INV"
	case OpLocalInv:
		return "LOCAL_INV"
	case OpAtomicCmpSwap:
		return "ATOMIC_CMP_AND_SWP"
	case OpAtomicFetchAdd:
		return "ATOMIC_FETCH_AND_ADD"
	case OpBindWindow:
		return "BIND_MW"
	case OpRecv:
		return "RECV"
	}
	return fmt.Sprintf("Opcode(%d)", uint8(o))
}

// SendFlags modify a send work request (ibv_post_send(3)).
type SendFlags uint8

const (
	// SendSignaled asks for a completion on success.
	SendSignaled SendFlags = 1 << iota
	// SendFence holds this request until earlier READs of the QP are done.
	SendFence
	// SendSolicited marks the peer's receive completion as solicited.
	SendSolicited
	// SendInline takes the payload from SendWR.Inline, copied at the post.
	SendInline
)

// An SGE names a piece of registered local memory: Len bytes from Off within
// MR. Offsets, not raw addresses: a wrong one is an error, not a stray access.
type SGE struct {
	MR  MR
	Off uint64
	Len uint32
}

// RemoteAddr names memory of the peer.
type RemoteAddr struct {
	Addr uint64
	RKey uint32
}

// A SendWR is one request for the send queue.
type SendWR struct {
	ID     uint64 // comes back in WC.ID
	Op     Opcode
	Flags  SendFlags
	SGL    []SGE      // source of SEND and WRITE, sink of READ
	Inline []byte     // payload when SendInline is set; SGL is then empty
	Remote RemoteAddr // READ, WRITE, atomics
	// CompareAdd and Swap are the operands of the atomics (CapAtomics).
	CompareAdd, Swap uint64
	// InvalidateRKey is the key that OpSendInv or OpLocalInv invalidates.
	InvalidateRKey uint32
}

// A RecvWR is one buffer for an incoming SEND.
type RecvWR struct {
	ID  uint64
	SGL []SGE
}

// WCFlags qualify a completion.
type WCFlags uint8

const (
	// WCSolicited: the peer had set SendSolicited.
	WCSolicited WCFlags = 1 << iota
	// WCWithInv: InvalidatedRKey is valid.
	WCWithInv
)

// A WC is a work completion (ibv_poll_cq(3)). With an error status only ID,
// Status, QPN, VendorErr and Polled are valid.
type WC struct {
	ID              uint64
	Status          Status
	Op              Opcode
	Flags           WCFlags
	QPN             uint32
	ByteLen         uint32 // bytes received or read
	InvalidatedRKey uint32
	VendorErr       uint32
	// Polled is the machine's CLOCK_BOOTTIME in nanoseconds just after the poll
	// that took the completion from the device; 0: the fabric did not look.
	Polled int64
}

// A CQ is a completion queue with its completion channel. All methods are
// safe for concurrent use.
//
// To wait without losing a completion: Poll until it returns 0, Arm, Poll once
// more, and only then Wait. Dispatcher does this for a whole program.
type CQ interface {
	// Poll takes up to len(wcs) completions, without waiting. It fails with
	// ErrCQOverrun or ErrClosed.
	Poll(wcs []WC) (n int, err error)
	// Arm asks for one event at the next completion that is added after Arm
	// (ibv_req_notify_cq). A completion already in the queue raises no event.
	Arm() error
	// Wait parks the goroutine until an armed event has come, ctx has ended
	// (ctx.Err()) or the CQ is closed (ErrClosed). One event wakes one waiter.
	Wait(ctx context.Context) error
	// Close fails with ErrBusy while QPs use the CQ.
	Close() error
}
