package iwarp

import (
	"fmt"

	"github.com/rdmakv/rdmakv/rdma"
)

// terms are what both ends agreed on.
type terms struct {
	revision uint8
	crc      bool
	ird, ord int
	rtr      RTR  // the frame to open with; 0: none
	hold     bool // the acceptor is silent until the first FPDU
	private  []byte
}

// detail is the line for people in ConnInfo.
func (t *terms) detail() string {
	sum := "no CRC"
	if t.crc {
		sum = "CRC32C"
	}
	s := fmt.Sprintf("MPA rev %d, %s, no markers", t.revision, sum)
	if t.rtr != 0 {
		s += ", peer-to-peer with zero-length " + t.rtr.String()
	}
	return s
}

// depths fills in and checks what a program asks for in ConnParams.
func (d *device) depths(p rdma.ConnParams, maxPrivate int) (ird, ord int, err error) {
	ird, ord = p.IRD, p.ORD
	if ird == 0 {
		ird = d.attr.MaxQPRdAtom
	}
	if ord == 0 {
		ord = d.attr.MaxQPInitRdAtom
	}
	switch {
	case ird < 0 || ird > d.attr.MaxQPRdAtom:
		err = fmt.Errorf("%w: IRD %d is not within 0 and %d", rdma.ErrInvalid, p.IRD, d.attr.MaxQPRdAtom)
	case ord < 0 || ord > d.attr.MaxQPInitRdAtom:
		err = fmt.Errorf("%w: ORD %d is not within 0 and %d", rdma.ErrInvalid, p.ORD, d.attr.MaxQPInitRdAtom)
	case len(p.PrivateData) > maxPrivate:
		err = fmt.Errorf("%w: %d bytes of private data, the limit is %d", rdma.ErrInvalid, len(p.PrivateData), maxPrivate)
	}
	return ird, ord, err
}

// request is the initiator's opening.
func (o *Options) request(ird, ord int, private []byte) mpaFrame {
	f := mpaFrame{crc: !o.NoCRC, revision: uint8(o.Revision), private: private}
	if o.Revision >= 2 {
		f.enhanced = true
		f.ird, f.ord = uint16(ird), uint16(ord)
		if !o.NoPeerToPeer {
			f.peerToPeer, f.rtr = true, o.RTR
		}
	}
	return f
}

// judgeReply is the initiator's view of an accepting reply to req. A bad one
// is a termCode to send, if one exists for it, and an error.
func judgeReply(req, rep *mpaFrame, ird, ord int) (terms, termCode, error) {
	t := terms{revision: req.revision, crc: req.crc || rep.crc, ird: ird, ord: ord, private: rep.private}
	if rep.markers {
		return t, termMPAFrame, fmt.Errorf("%w: the peer demands MPA markers, which are not supported", rdma.ErrProtocol)
	}
	if rep.revision != req.revision || rep.enhanced != req.enhanced {
		return t, termMPAFrame, fmt.Errorf("%w: asked for MPA revision %d (enhanced: %v), the peer answered with %d (enhanced: %v)",
			rdma.ErrProtocol, req.revision, req.enhanced, rep.revision, rep.enhanced)
	}
	if !req.enhanced {
		return t, 0, nil
	}
	if rep.ird != mpaNoNegotiation {
		t.ord = min(ord, int(rep.ird))
	}
	if rep.ord != mpaNoNegotiation {
		// A responder must not want more than we offered (RFC 6581 section 9.1).
		if int(rep.ord) > ird {
			return t, termIRD, fmt.Errorf("%w: the peer wants %d READs in flight, %d were offered", rdma.ErrProtocol, rep.ord, ird)
		}
		t.ird = int(rep.ord)
	}
	if req.peerToPeer {
		both := req.rtr & rep.rtr
		if !rep.peerToPeer || both == 0 {
			return t, termRTR, fmt.Errorf("%w: no RTR frame in common: offered %v, the peer takes %v", rdma.ErrProtocol, req.rtr, rep.rtr)
		}
		t.rtr = preferredRTR(both)
	}
	return t, 0, nil
}

// preferredRTR picks one frame: a WRITE costs the peer least, a READ asks for
// an answer, the bare FPDU is what most cards never learnt.
func preferredRTR(set RTR) RTR {
	for _, r := range []RTR{RTRWrite, RTRRead, RTRSend} {
		if set&r != 0 {
			return r
		}
	}
	return 0
}

// refusal says why a request cannot be answered with an accept; empty if it
// can. The text goes to the peer as private data of the reject.
func refusal(req *mpaFrame) string {
	switch {
	case req.markers:
		return "iwarp: MPA markers are not supported"
	case req.revision != 1 && req.revision != 2:
		return fmt.Sprintf("iwarp: MPA revision %d is not supported, 1 and 2 are", req.revision)
	case req.revision == 2 && !req.enhanced:
		return "iwarp: MPA revision 2 without enhanced set-up data"
	}
	return ""
}

// answer is the responder's accepting reply to req, and what it means.
func (o *Options) answer(req *mpaFrame, ird, ord int, private []byte) (mpaFrame, terms) {
	rep := mpaFrame{reply: true, crc: req.crc || !o.NoCRC, revision: req.revision, enhanced: req.enhanced, private: private}
	t := terms{revision: req.revision, crc: rep.crc, ird: ird, ord: ord, hold: true, private: req.private}
	if !req.enhanced {
		return rep, t
	}
	rep.ird, rep.ord = mpaNoNegotiation, mpaNoNegotiation
	if req.ird != mpaNoNegotiation {
		t.ord = min(ord, int(req.ird))
		rep.ord = uint16(t.ord)
	}
	if req.ord != mpaNoNegotiation {
		t.ird = min(ird, int(req.ord))
		rep.ird = uint16(t.ird)
	}
	if req.peerToPeer {
		rep.peerToPeer = true
		// Nothing in common cannot be: every frame is understood. An initiator
		// that offers none hears which ones there are and decides.
		if t.rtr = preferredRTR(req.rtr); t.rtr == 0 {
			t.rtr = RTRWrite
		}
		rep.rtr = t.rtr
	}
	return rep, t
}
