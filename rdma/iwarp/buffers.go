package iwarp

import (
	"sync"

	"github.com/rdmakv/rdmakv/rdma"
)

// Buffers are lent to a connection while bytes move and go back when it is
// idle, so that a thousand idle connections own none.
const (
	// txTarget is how many bytes the transmitter frames before it writes: one
	// system call's worth. The last FPDU may begin just below it.
	txTarget = 128 << 10
	txFirst  = 32 << 10 // of the first one
	// txFrames is how many frames at most go with one system call: the peer has
	// something to do while the rest is made.
	txFrames = 32
	txCap    = txTarget + fpduMaxLen
	// txInlineBudget bounds what one goroutine writes on behalf of others
	// before it hands over to a writer goroutine: PostSend must return and the
	// reader must read.
	txInlineBudget = 1 << 20

	// rxCap holds two of the longest FPDUs, so that one always fits behind
	// what is left of another.
	rxCap = 2 * fpduMaxLen

	// copyUnlocked is the payload in bytes from which the transmitter lets go
	// of QP.mu while it copies and checksums.
	copyUnlocked = 2 << 10
)

// A txBuffer is FPDUs on their way to the socket.
type txBuffer struct {
	b   []byte
	off int // bytes of b already written
}

var txPool = sync.Pool{New: func() any { return &txBuffer{b: make([]byte, 0, txCap)} }}

// An rxBuffer is what came from the socket, and what became of it in this
// round.
type rxBuffer struct {
	b     []byte
	wcs   []rdma.WC     // receive completions to push
	reads []readRequest // READ requests to queue
}

// rxBatchWCs is how many receive completions are collected before a push.
const rxBatchWCs = 64

var rxPool = sync.Pool{New: func() any {
	return &rxBuffer{b: make([]byte, rxCap), wcs: make([]rdma.WC, 0, rxBatchWCs)}
}}
