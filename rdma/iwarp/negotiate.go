package iwarp

import (
	"fmt"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp/internal/proto"
)

// terms are what both ends agreed on.
type terms struct {
	revision uint8
	crc      bool
	ird, ord int
	rtr      RTR  // the frame to open with; 0: none
	silent   bool // the acceptor is silent until the first FPDU
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

// request is the initiator's opening; within: the connection stays within the machine.
func (o *Options) request(within bool, ird, ord int, private []byte) proto.Frame {
	f := proto.Frame{CRC: o.crc(within), Revision: uint8(o.Revision), Private: private}
	if o.Revision >= 2 {
		f.Enhanced = true
		f.IRD, f.ORD = uint16(ird), uint16(ord)
		if !o.NoPeerToPeer {
			f.PeerToPeer, f.RTR = true, o.RTR
		}
	}
	return f
}

// judgeReply is the initiator's view of an accepting reply to req. A bad one
// is a proto.Code to send, if one exists for it, and an error.
func judgeReply(req, rep *proto.Frame, ird, ord int) (terms, proto.Code, error) {
	t := terms{revision: req.Revision, crc: req.CRC || rep.CRC, ird: ird, ord: ord, private: rep.Private}
	if rep.Markers {
		return t, proto.CodeMPAFrame, fmt.Errorf("%w: the peer demands MPA markers, which are not supported", rdma.ErrProtocol)
	}
	if rep.Revision != req.Revision || rep.Enhanced != req.Enhanced {
		return t, proto.CodeMPAFrame, fmt.Errorf("%w: asked for MPA revision %d (enhanced: %v), the peer answered with %d (enhanced: %v)",
			rdma.ErrProtocol, req.Revision, req.Enhanced, rep.Revision, rep.Enhanced)
	}
	if !req.Enhanced {
		return t, 0, nil
	}
	if rep.IRD != proto.NoNegotiation {
		t.ord = min(ord, int(rep.IRD))
	}
	if rep.ORD != proto.NoNegotiation {
		// A responder must not ask for more than we offered (RFC 6581 section
		// 9.1).
		if int(rep.ORD) > ird {
			return t, proto.CodeIRD, fmt.Errorf("%w: the peer wants %d READs in flight, %d were offered", rdma.ErrProtocol, rep.ORD, ird)
		}
		t.ird = int(rep.ORD)
	}
	if req.PeerToPeer {
		both := req.RTR & rep.RTR
		if !rep.PeerToPeer || both == 0 {
			return t, proto.CodeRTR, fmt.Errorf("%w: no RTR frame in common: offered %v, the peer takes %v", rdma.ErrProtocol, req.RTR, rep.RTR)
		}
		t.rtr = preferredRTR(both)
	}
	return t, 0, nil
}

// preferredRTR picks one frame: a WRITE costs the peer least, a READ asks for an
// answer, and most cards do not understand the bare FPDU.
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
func refusal(req *proto.Frame) string {
	switch {
	case req.Markers:
		return "iwarp: MPA markers are not supported"
	case req.Revision != 1 && req.Revision != 2:
		return fmt.Sprintf("iwarp: MPA revision %d is not supported, 1 and 2 are", req.Revision)
	case req.Revision == 2 && !req.Enhanced:
		return "iwarp: MPA revision 2 without enhanced set-up data"
	}
	return ""
}

// answer is the responder's accepting reply to req, and what it means.
func (o *Options) answer(req *proto.Frame, within bool, ird, ord int, private []byte) (proto.Frame, terms) {
	rep := proto.Frame{Reply: true, CRC: req.CRC || o.crc(within), Revision: req.Revision, Enhanced: req.Enhanced, Private: private}
	t := terms{revision: req.Revision, crc: rep.CRC, ird: ird, ord: ord, silent: true, private: req.Private}
	if !req.Enhanced {
		return rep, t
	}
	rep.IRD, rep.ORD = proto.NoNegotiation, proto.NoNegotiation
	if req.IRD != proto.NoNegotiation {
		t.ord = min(ord, int(req.IRD))
		rep.ORD = uint16(t.ord)
	}
	if req.ORD != proto.NoNegotiation {
		t.ird = min(ird, int(req.ORD))
		rep.IRD = uint16(t.ird)
	}
	if req.PeerToPeer {
		rep.PeerToPeer = true
		// There is always something in common, because this end understands
		// every frame. An initiator that offers none is told which ones there
		// are and decides.
		if t.rtr = preferredRTR(req.RTR); t.rtr == 0 {
			t.rtr = RTRWrite
		}
		rep.RTR = t.rtr
	}
	return rep, t
}
