package iwarp

import (
	"encoding/hex"
	"net"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
)

// Habits of Linux's siw that differ from the standards, or from ours. What a
// kernel really does is tried in the lab (package lab/siw); these tests keep
// here what was learnt there.

// siwTerminate is what a kernel 6.1 sent when it refused a READ by its STag:
// layer 0, type 1, code 0, with the nibbles and the flags the wrong way round.
// The length of the segment and the sequence number in the embedded READ
// request are wrong too, and nobody needs them.
const siwTerminate = "10000700" + // control
	"0012" + "4101000000000000000100000040" + "00000000" + // length, DDP header
	"4b2f110000000000000000000000004074740000" + "0000000000000000" // READ request

func TestSiwTerminate(t *testing.T) {
	b, err := hex.DecodeString(siwTerminate)
	check(t, err)
	got, ok := parseTerminate(b)
	if !ok || got.code != termInvalidSTag || !got.hasLen || !got.hasRead || len(got.header) != untaggedLen+readReqLen {
		t.Errorf("parsed as %v (ok %v), header of %d bytes, want %v with 46", got.code, ok, len(got.header), termInvalidSTag)
	}
	// Without flags there is nothing to tell the two orders apart: the RFC's.
	got, ok = parseTerminate([]byte{0x20, 0x02, 0, 0})
	if !ok || got.code != termCRC {
		t.Errorf("parsed as %v (ok %v), want %v", got.code, ok, termCRC)
	}
}

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
		q.mu.Lock()
		p.write(appendTerminateFPDU(nil, &terminate{code: termInvalidSTag}, p.crc))
		check(t, p.conn.(*net.TCPConn).SetLinger(0))
		check(t, p.conn.Close())
		_, err = q.enqueueSends([]rdma.SendWR{{ID: 1, Op: rdma.OpRDMARead}, {ID: 2, Op: rdma.OpSend}})
		q.kick()
		q.mu.Unlock()
		check(t, err)
		a.dead(rdma.ErrAccess)
		wcs := a.wait(2)
		if wcs[0].ID != 1 || wcs[0].Status != rdma.StatusRemAccessErr || wcs[1].Status != rdma.StatusWRFlushErr {
			t.Fatalf("completions %+v, want the first refused and the second flushed", wcs)
		}
		a.close()
	}
}
