// Package verbs is the fabric of real RDMA devices: RoCE and InfiniBand
// adapters, iWARP adapters, and the kernel's soft devices (rdma_rxe, siw). It
// implements rdma.Fabric and rdma.Router on rdma-core through package ibv.
//
// # How to read it
//
// fabric.go, device.go, pd.go, qp.go, cq.go and srq.go are the objects; choose.go
// and route.go decide which device, port and GID an address means. post.go,
// spinpost.go and recv.go are the data path. Connecting (connect.go) is done in
// two ways, cmdial.go, cmlisten.go and cmloop.go or tcp.go, and bring.go moves a
// queue pair to RTS for both. async.go, state.go and drain.go are about errors and
// the end; rights.go probes what a device does with the rights of queue pairs.
//
// # Two ways to connect
//
// "cm" (the default) uses librdmacm: a connection manager identifier (rdma_cm)
// resolves address and route, and its messages carry QP numbers and private
// data. "tcp" uses bare verbs: the two ends exchange what they need over a TCP
// socket (internal/tcp) and move their QPs by hand; the socket stays open and tells
// each end when the other has gone.
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
// # Parts of a queue pair
//
// A qp has the state of the connection, and three parts: the send queue (post.go)
// and the receive queue (recv.go), each with a lock of its own, turn a program's
// requests into the device's; the drain (drain.go) brings them back at the end. Its
// sinks (spinread.go) are READs that are prepared, beside the send queue's lock.
// tcpEnd (tcp.go) and cmConn (cmloop.go) are the two ways to connect it.
//
// # Closing
//
// QP.Close moves the QP to ERR, posts one last work request to each queue and
// takes completions from its CQs until these two come back flushed: everything
// before them has come back too. What it takes for the program goes to a queue
// in software in front of the CQ (cq.go), and is polled from there.
package verbs
