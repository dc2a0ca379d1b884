//go:build linux

package shm

import (
	"net"
	"sync"
	"syscall"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/soft"
)

// A qp is a reliable connection: a socket, a channel of two rings, the regions
// that each end shows the other, and the queues.
//
// QP.Mu guards everything in its block. The goroutine that holds tx.mu is the
// producer of our ring, the one that holds rx.mu the consumer of the peer's. Only
// these two touch buffers of the program, so a goroutine that holds both can
// flush. The order is rx.mu, then Mu; tx.mu is only ever tried under Mu, and only
// finish takes it before Mu.
type qp struct {
	soft.QP
	pd *pd

	// Under Mu.
	bye   bye // what to tell the peer of a dead QP
	conn  *net.UnixConn
	raw   syscall.RawConn // of conn
	ch    *channel
	proof proofFile // held for as long as we map the peer's memory; nil: none

	tx   sender
	rx   receiver
	show showing // our regions, as the peer sees them
	seen seen    // the peer's

	// sockets are the goroutines that use conn, raw and ch: finish waits for them.
	sockets sync.WaitGroup
}

// CreateQP creates an RC QP in state INIT.
func (p *pd) CreateQP(cfg rdma.QPConfig) (rdma.QP, error) {
	q := &qp{pd: p}
	q.tx.q, q.rx.q, q.show.q = q, q, q
	if err := q.Init(&p.PD, q, cfg); err != nil {
		return nil, err
	}
	return q, nil
}

// SetAccess replaces the remote rights of the peer. READs through the rings look
// at them when they begin to be served; for READs that the peer does itself, the
// words in our half have changed before SetAccess returns.
func (q *qp) SetAccess(a rdma.Access) error {
	if err := q.QP.SetAccess(a); err != nil {
		return err
	}
	q.show.grant()
	return nil
}

// PostSend posts a batch. Requests for which there is room in the ring, and READs
// of regions that the peer has shown, are carried out before it returns.
func (q *qp) PostSend(wrs []rdma.SendWR) (int, error) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	n, live, err := q.PostLocked(wrs)
	if live {
		q.tx.pump()
	}
	return n, err
}

var _ rdma.QP = (*qp)(nil)
