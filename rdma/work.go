package rdma

import "fmt"

// An Opcode says what a send work request does, or what kind of work a completion
// reports. The names behind are those of enum ibv_wr_opcode.
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
	// SendSignaled asks for a completion if the request succeeds.
	SendSignaled SendFlags = 1 << iota
	// SendFence delays the request until earlier READs of the QP are done.
	SendFence
	// SendSolicited sets WCSolicited in the completion of the peer's receive.
	SendSolicited
	// SendInline takes the payload from SendWR.Inline; PostSend copies it.
	SendInline
)

// An SGE, scatter/gather entry, names a piece of registered local memory: Len
// bytes from offset Off of MR. It has an offset where libibverbs has an address: a
// wrong offset is an error, a wrong address might be an access to other memory.
type SGE struct {
	MR  MR
	Off uint64
	Len uint32
}

// A RemoteAddr names memory of the peer, from the byte at Addr on; the SGL says how
// many bytes. The peer tells both values, in a message or as private data.
type RemoteAddr struct {
	Addr uint64 // MR.Addr there, plus an offset
	RKey uint32 // MR.RKey there
}

// A SendWR is one work request for the send queue.
type SendWR struct {
	ID     uint64 // the program's; WC.ID returns it
	Op     Opcode
	Flags  SendFlags
	SGL    []SGE      // source of a SEND or WRITE, sink of a READ: pieces in order
	Inline []byte     // payload if SendInline is set; SGL must be empty then
	Remote RemoteAddr // of a READ, WRITE or atomic
	// CompareAdd and Swap are the operands of the atomics (CapAtomics).
	CompareAdd, Swap uint64
	// InvalidateRKey is the key that OpSendInv or OpLocalInv invalidates.
	InvalidateRKey uint32
}

// A RecvWR is a buffer for one SEND of the peer. The SGL must have room for all of
// the message: a longer one is an error of both ends and ends the connection.
type RecvWR struct {
	ID  uint64 // the program's; WC.ID returns it
	SGL []SGE  // filled in order; regions need AccessLocalWrite
}

// WCFlags are what a completion says beside its status.
type WCFlags uint8

const (
	// WCSolicited: the peer had set SendSolicited.
	WCSolicited WCFlags = 1 << iota
	// WCWithInv: the peer's message has invalidated WC.InvalidatedRKey.
	WCWithInv
)

// A WC is a work completion (ibv_poll_cq(3)): the end of one work request. With an
// error status only ID, Status, QPN, VendorErr and Polled are valid.
type WC struct {
	ID              uint64 // of the SendWR or RecvWR
	Status          Status
	Op              Opcode // OpRecv for a receive
	Flags           WCFlags
	QPN             uint32 // number of the QP
	ByteLen         uint32 // bytes received or read
	InvalidatedRKey uint32 // with WCWithInv
	VendorErr       uint32 // the device's own code of the error; 0: none
	// Polled is the machine's CLOCK_BOOTTIME in nanoseconds, or package boottime's
	// reading of it, just after the poll that took the completion from the device;
	// 0: the fabric read no clock.
	Polled int64
}
