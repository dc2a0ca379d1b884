package verbs

import (
	"fmt"
	"math/bits"
	"net"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// depths checks what one end asks of a connection and fills in the device's
// limits. Both are rounded down to powers of two: kernels differ in whether a
// driver (mlx5) rounds other values up or down, and if the two ends round one
// value differently, a READ beyond the lower one breaks the connection.
func (d *device) depths(p rdma.ConnParams, maxPrivate int) (ird, ord int, err error) {
	if len(p.PrivateData) > maxPrivate {
		return 0, 0, fmt.Errorf("%w: %d bytes of private data, the limit is %d", rdma.ErrInvalid, len(p.PrivateData), maxPrivate)
	}
	if p.IRD < 0 || p.ORD < 0 {
		return 0, 0, fmt.Errorf("%w: IRD %d and ORD %d must not be negative", rdma.ErrInvalid, p.IRD, p.ORD)
	}
	limit := func(v, most int) int {
		if v == 0 {
			return most
		}
		return min(v, most)
	}
	return powerOfTwo(limit(p.IRD, d.attr.MaxQPRdAtom)), powerOfTwo(limit(p.ORD, d.attr.MaxQPInitRdAtom)), nil
}

// agreed takes the depths that the peer names into account: theirIRD READs it
// serves, theirORD it sends. What it names need be no power of two, though ours are,
// and ours must stay such: depths says why. What we send is rounded down, since the
// peer's driver may have rounded down what it serves. What we serve is rounded up,
// since its driver may have rounded up what it sends, and a responder that serves
// less than it is sent breaks the connection; it is never beyond ird, which is a
// power of two.
func agreed(ird, ord, theirIRD, theirORD int) (int, int) {
	if theirORD < ird {
		if ird = powerOfTwo(theirORD); ird < theirORD {
			ird *= 2
		}
	}
	return ird, powerOfTwo(min(ord, theirIRD))
}

// powerOfTwo is the largest power of two that is at most n, or 0 for 0.
func powerOfTwo(n int) int {
	if n <= 0 {
		return 0
	}
	return 1 << (bits.Len(uint(n)) - 1)
}

// toInit moves the QP to INIT, with the rights that the peer has now. From
// INIT to INIT is a transition too: it changes the port.
func (q *qp) toInit(port uint8, pkeyIndex uint16) error {
	attr := ibv.QPAttr{State: ibv.QPSInit, AccessFlags: remoteRights(q.Access()), Port: port, PKeyIndex: pkeyIndex}
	mask := ibv.QPMaskState | ibv.QPMaskAccessFlags
	if !q.pd.dev.iwarp {
		mask |= ibv.QPMaskPort | ibv.QPMaskPKeyIndex
	}
	return q.hw.Modify(&attr, mask)
}

// bring moves the QP from INIT over RTR to RTS. rtr and rts have what the
// connection knows, with their masks; the rest is decided here: the rights, the
// depths of READs, timeouts and retries.
//
// max_rd_atomic is at least 1 for the device: with 0, Soft-RoCE never answers.
// PostSend refuses READs in that case.
func (q *qp) bring(rtr, rts *ibv.QPAttr, rtrMask, rtsMask ibv.QPAttrMask, ird, ord int) error {
	o := &q.pd.dev.fabric.opts
	q.modMu.Lock()
	defer q.modMu.Unlock()

	rtr.State = ibv.QPSRTR
	rtr.AccessFlags = remoteRights(q.Access())
	rtr.MaxDestRdAtomic = uint8(max(1, ird))
	rtr.MinRNRTimer = o.MinRNRTimer
	if m := mtuOf(o.PathMTU); m != 0 {
		rtr.PathMTU = min(rtr.PathMTU, m)
	}
	if o.TrafficClass != 0 {
		rtr.AH.TrafficClass = o.TrafficClass
	}
	if o.ServiceLevel != 0 {
		rtr.AH.SL = o.ServiceLevel
	}
	rtrMask |= ibv.QPMaskState | ibv.QPMaskAccessFlags | ibv.QPMaskMaxDestRdAtomic | ibv.QPMaskMinRNRTimer
	if err := q.hw.Modify(rtr, rtrMask); err != nil {
		return fmt.Errorf("INIT to RTR: %w", classify(err))
	}
	if err := q.advance(rdma.QPRTR); err != nil {
		return err
	}

	rts.State = ibv.QPSRTS
	rts.Timeout, rts.RetryCnt, rts.RNRRetry = o.Timeout, o.RetryCount, o.RNRRetry
	rts.MaxRdAtomic = uint8(max(1, ord))
	rtsMask |= ibv.QPMaskState | ibv.QPMaskTimeout | ibv.QPMaskRetryCnt | ibv.QPMaskRNRRetry | ibv.QPMaskMaxQPRdAtomic
	rtsMask &^= ibv.QPMaskAccessFlags
	if err := q.hw.Modify(rts, rtsMask); err != nil {
		return fmt.Errorf("RTR to RTS: %w", classify(err))
	}
	return nil
}

// advance notes the next state, unless the QP has failed meanwhile.
func (q *qp) advance(s rdma.QPState) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.State() == rdma.QPError {
		return q.err
	}
	q.state.Store(uint32(s))
	return nil
}

// connected gives the QP its link and opens it for posts. From here on the link
// is the QP's to close; on an error it is still the caller's.
func (q *qp) connected(l link, info rdma.ConnInfo) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.State() == rdma.QPError {
		return q.err
	}
	q.link, q.info, q.setup.abort = l, info, nil
	q.sends.ord.Store(int32(info.ORD))
	q.state.Store(uint32(rdma.QPRTS))
	return nil
}

// pathOf describes what the QP runs over, from the attributes of RTR.
func (d *device) pathOf(rtr *ibv.QPAttr) rdma.Path {
	p := rdma.Path{Device: d.name, Port: int(rtr.AH.PortNum), MTU: rtr.PathMTU.Bytes(), PeerGID: gidText(rtr.AH.DGID)}
	if !rtr.AH.IsGlobal {
		p.PeerGID = ""
	}
	d.mu.Lock()
	num, link := d.port.num, d.port.attr.LinkLayer
	d.mu.Unlock()
	if p.Port == 0 {
		p.Port = int(num)
	}
	if link == ibv.LinkInfiniBand {
		p.LID = int(rtr.AH.DLID)
	}
	if g, ok := d.gidAt(uint8(p.Port), int(rtr.AH.SGIDIndex)); ok && rtr.AH.IsGlobal {
		p.GID, p.GIDIndex, p.GIDType = gidText(g.GID), g.Index, g.Type.String()
	}
	return p
}

// infoOf is the outcome of a connection.
func infoOf(how string, private []byte, ird, ord int, local, remote net.Addr, path rdma.Path) rdma.ConnInfo {
	kind := path.GIDType
	if kind == "" {
		kind = "RC"
	}
	return rdma.ConnInfo{
		PrivateData: private, IRD: ird, ORD: ord, LocalAddr: local, RemoteAddr: remote, Path: path,
		Detail: fmt.Sprintf("%s on %s port %d, MTU %d, %s", kind, path.Device, path.Port, path.MTU, how),
	}
}
