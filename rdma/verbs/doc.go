// Package verbs is the fabric of real RDMA devices: RoCE and InfiniBand
// adapters, iWARP adapters, and the kernel's soft devices (rdma_rxe, siw). It
// implements rdma.Fabric and rdma.Router on rdma-core through package ibv.
//
// # Two ways to connect
//
// "cm" (the default) uses librdmacm: a connection manager identifier (rdma_cm)
// resolves address and route, and its messages carry QP numbers and private
// data. "tcp" uses bare verbs: the two ends exchange what they need over a TCP
// socket (exchange.go draws the frames) and move their QPs by hand; the socket
// stays open and tells each end when the other has gone.
//
//	          cm                                        tcp
//	dialer    resolve, rdma_connect ─REQ─▶              connect ─request─▶
//	acceptor  INIT→RTR→RTS, rdma_accept ◀─REP─          INIT→RTR→RTS ◀─reply─
//	dialer    INIT→RTR→RTS, rdma_establish ─RTU─▶       INIT→RTR→RTS ─ready─▶
//
// Either way the QP is made by ibv_create_qp on a context of our own and every
// transition is ours, so that a peer has exactly the rights that the program
// gave: librdmacm by itself would grant more. On iWARP devices the kernel moves
// the QP from INIT on (iw_cm).
//
// # What a device does not tell
//
// Hardware reports an error when its completion is polled, and a refused
// request of the peer sometimes not at all. So a QP of this package learns of
// its end from four sides: the connection manager or socket (peer gone), the
// device's asynchronous events, the completions that the program polls, and the
// QP's own state, which is looked at when one of the others gives reason to.
// The first cause found stands in QP.Err.
//
// # Closing
//
// QP.Close moves the QP to ERR, posts one last work request to each queue and
// takes completions from its CQs until these two come back flushed: everything
// before them has come back too. What it takes for the program goes to a queue
// in software in front of the CQ (cq.go), and is polled from there.
package verbs
