package iwarp

import (
	"syscall"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/soft"
)

// A qp is a reliable connection: a TCP socket, its queues, and the state of both
// directions. Each direction has one owner at a time:
//
//	tx    the transmitter is the goroutine that set tx.busy. It frames what req and resp have to
//	      send, writes to the socket, and may release Mu while it copies and writes.
//	rx    the receiver is the goroutine that holds rx.mu. It reads the socket, and while it has set
//	      rx.busy it places what has come.
//
// Only these two touch buffers of the program. So everything can be flushed when the QP
// is in ERR, tx is not framing and rx is not busy (settle). Locks come in this order:
// rx.mu, Mu, a receive queue's, a CQ's; the keepers' and that of the device's spinners
// are taken under rx.mu, egress.mu with none of them.
type qp struct {
	soft.QP
	pd *pd

	wire wire
	tx   transmitter
	req  requester
	resp responder
	rx   receiver
	look looker
}

// A wire is the TCP connection of a QP. All but lingerEnd is set once, by attach.
type wire struct {
	conn       stream
	raw        syscall.RawConn // of conn; nil if that is TLS
	secure     *secure         // conn, if it is TLS
	fd         int             // of conn, open until rx.ended
	crc        bool
	maxPayload int       // of one FPDU, bytes
	lingerEnd  time.Time // of a dead QP; under QP.Mu
}

// CreateQP creates an RC QP in state INIT.
func (p *pd) CreateQP(cfg rdma.QPConfig) (rdma.QP, error) {
	q := &qp{pd: p}
	q.tx.q, q.req.q, q.resp.q, q.rx.q, q.look.q = q, q, q, q, q
	if err := q.Init(&p.PD, q, cfg); err != nil {
		return nil, err
	}
	return q, nil
}

// PostSend posts a batch: everything that the socket takes at once is sent
// before it returns, by this goroutine, unless another one is sending.
func (q *qp) PostSend(wrs []rdma.SendWR) (int, error) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	n, live, err := q.PostLocked(wrs)
	if live {
		q.tx.doorbell()
	}
	return n, err
}

var _ rdma.QP = (*qp)(nil)
