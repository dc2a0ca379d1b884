package iwarp

import (
	"net"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp/internal/proto"
)

// Habits of Linux's siw that differ from the standards, or from ours. What a
// kernel really does is tried in the lab (package lab/siw); these tests keep
// here what was learnt there (internal/proto has its form of a Terminate).

// TestTerminateThenReset: siw sends its Terminate and closes at once. If a
// request of ours is on the way then, its kernel answers with a reset, and the
// next write fails before the reader has seen the Terminate. The reason for the
// end is the Terminate all the same.
func TestTerminateThenReset(t *testing.T) {
	for range 100 {
		a := newEnd(t, New(Options{}), rdma.QPConfig{})
		p, err := acceptRaw(t, a, rdma.ConnParams{}, nil)
		check(t, err)
		// The reader must not be done first, which it would be if it were idle:
		// Terminate, reset and our requests all come while the lock is held.
		q := a.qp.(*qp)
		q.Mu.Lock()
		p.write(proto.AppendTerminate(nil, &proto.Terminate{Code: proto.CodeInvalidSTag}, p.crc))
		check(t, p.conn.(*net.TCPConn).SetLinger(0))
		check(t, p.conn.Close())
		_, _, err = q.PostLocked([]rdma.SendWR{{ID: 1, Op: rdma.OpRDMARead}, {ID: 2, Op: rdma.OpSend}})
		q.tx.kick()
		q.Mu.Unlock()
		check(t, err)
		a.dead(rdma.ErrAccess)
		wcs := a.wait(2)
		if wcs[0].ID != 1 || wcs[0].Status != rdma.StatusRemAccessErr || wcs[1].Status != rdma.StatusWRFlushErr {
			t.Fatalf("completions %+v, want the first refused and the second flushed", wcs)
		}
		a.close()
	}
}
