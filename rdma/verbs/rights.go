package verbs

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// Whether a device keeps to the remote rights of a queue pair is found out when it
// is opened, because some drivers do not and none says so: bnxt_re granted READ
// and WRITE to every peer until October 2024, irdma never takes back what was once
// granted, siw asks for no right at all.
//
// Two queue pairs of one protection domain are connected with each other through
// the port itself, and one READs a region of the other, which allows that:
//
//	pair   rights of the responder    what a READ must do    otherwise
//	1      none                       fail, refused          CapAccessIgnored
//	2      REMOTE_READ                succeed                the probe proves nothing
//	2      none again                 fail, refused          CapNoRevoke
//
// A device for which the probe proves nothing is treated like one that ignores the
// rights. Nothing of it leaves the device: RoCE and InfiniBand ports send what is
// addressed to themselves back by loopback. iWARP has no such loopback; its
// devices are not probed.

// An enforcement says whether a device keeps to the remote rights of a queue pair.
type enforcement struct {
	ignored  bool   // a peer may READ without the right
	noRevoke bool   // a right that was granted stays
	why      string // how that is known, for log and doctor
}

// caps are the capabilities that say it.
func (e enforcement) caps() (c rdma.Caps) {
	if e.ignored {
		c |= rdma.CapAccessIgnored
	}
	if e.ignored || e.noRevoke {
		c |= rdma.CapNoRevoke
	}
	return c
}

// A probePair is two connected queue pairs.
type probePair interface {
	allow(ibv.Access) error      // changes the responder's rights
	read() (ibv.WCStatus, error) // READs from the responder
	close() error
}

// judgeRights tries a device. pair connects two queue pairs of which the responder
// begins with those rights.
func judgeRights(pair func(ibv.Access) (probePair, error)) (f enforcement, err error) {
	unproved := func(what string, err error) (enforcement, error) {
		return enforcement{ignored: true, noRevoke: true, why: fmt.Sprintf("whether it keeps to the rights of queue pairs could not be probed: %s: %v", what, err)}, nil
	}
	p, err := pair(0)
	if err != nil {
		return unproved("connecting it to itself", err)
	}
	s, err := p.read()
	if err = errors.Join(err, p.close()); err != nil {
		return unproved("READ without the right", err)
	}
	switch {
	case s == ibv.StatusSuccess:
		return enforcement{ignored: true, noRevoke: true, why: "a probe at its opening has READ without the right to"}, nil
	case !refusedStatus(s):
		return unproved("READ without the right", fmt.Errorf("completion status %d", s))
	}

	if p, err = pair(0); err != nil {
		return unproved("connecting it to itself", err)
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.allow(ibv.AccessRemoteRead); err != nil {
		return unproved("granting the right", err)
	}
	if s, err = p.read(); err != nil || s != ibv.StatusSuccess {
		return unproved("READ with the right", errors.Join(err, fmt.Errorf("completion status %d", s)))
	}
	if err := p.allow(0); err != nil {
		return unproved("revoking the right", err)
	}
	s, err = p.read()
	switch {
	case err != nil || s != ibv.StatusSuccess && !refusedStatus(s):
		return unproved("READ after the right was revoked", errors.Join(err, fmt.Errorf("completion status %d", s)))
	case s == ibv.StatusSuccess:
		return enforcement{noRevoke: true, why: "a probe at its opening has READ after the right to was revoked"}, nil
	}
	return enforcement{why: "a probe at its opening was refused before and after it had the right to READ"}, nil
}

// refusedStatus is how a requester learns that the responder refuses: InfiniBand
// specification, volume 1, section 9.7.5.2.4 (NAK codes).
func refusedStatus(s ibv.WCStatus) bool {
	return s == ibv.StatusRemAccessErr || s == ibv.StatusRemInvReqErr
}

const (
	probeWait    = time.Second // for one READ within the device
	probeBytes   = 64
	probeTimeout = 14 // 4.096 us * 2^14, 67 ms
)

// probeRights tries the opened device.
func (d *device) probeRights() (_ enforcement, err error) {
	if d.iwarp {
		return enforcement{ignored: true, noRevoke: true, why: "iWARP has no loopback to probe it by"}, nil
	}
	var close closers
	defer func() { err = errors.Join(err, close.all()) }()
	block, err := mem.Alloc(2*probeBytes, mem.Options{Tag: "probe"})
	if err != nil {
		return enforcement{}, err
	}
	close.add(block.Free)
	pd, err := d.hw.AllocPD()
	if err != nil {
		return enforcement{}, classify(err)
	}
	close.add(pd.Close)
	mr, err := pd.RegMR(addrOf(block.Bytes()), 2*probeBytes, ibv.AccessLocalWrite|ibv.AccessRemoteRead)
	if err != nil {
		return enforcement{}, classify(err)
	}
	close.add(mr.Close)
	return judgeRights(func(a ibv.Access) (probePair, error) { return d.pairWithItself(pd, mr, a) })
}

// closers end what was made, the last first.
type closers []func() error

func (c *closers) add(f func() error) { *c = append(*c, f) }

func (c *closers) all() (err error) {
	for len(*c) > 0 {
		last := len(*c) - 1
		err = errors.Join(err, (*c)[last]())
		*c = (*c)[:last]
	}
	return err
}

// A hwPair is a probePair of the device.
type hwPair struct {
	closers
	cq             *ibv.CQ
	mr             *ibv.MR
	asks, responds *ibv.QP
}

// pairWithItself connects two queue pairs of the device through its own port.
func (d *device) pairWithItself(pd *ibv.PD, mr *ibv.MR, rights ibv.Access) (_ probePair, err error) {
	p := &hwPair{mr: mr}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.cq, err = d.hw.CreateCQ(16, nil); err != nil {
		return nil, err
	}
	p.add(p.cq.Close)
	if d.kernel {
		p.cq.Yield()
	}
	for _, q := range []**ibv.QP{&p.asks, &p.responds} {
		*q, _, err = pd.CreateQP(ibv.QPInit{SendCQ: p.cq, RecvCQ: p.cq, Cap: ibv.QPCap{MaxSendWR: 4, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
		if err != nil {
			return nil, err
		}
		p.add((*q).Close)
	}
	if err := d.bringPair(p.asks, p.responds.Num(), 0); err != nil {
		return nil, fmt.Errorf("the requester: %w", err)
	}
	if err := d.bringPair(p.responds, p.asks.Num(), rights); err != nil {
		return nil, fmt.Errorf("the responder: %w", err)
	}
	return p, nil
}

// bringPair moves one of the two from RESET to RTS; peer is the other's number.
func (d *device) bringPair(q *ibv.QP, peer uint32, rights ibv.Access) error {
	init := ibv.QPAttr{State: ibv.QPSInit, Port: d.port.num, AccessFlags: rights}
	if err := q.Modify(&init, ibv.QPMaskState|ibv.QPMaskPort|ibv.QPMaskPKeyIndex|ibv.QPMaskAccessFlags); err != nil {
		return err
	}
	rtr := ibv.QPAttr{
		State: ibv.QPSRTR, PathMTU: d.port.attr.ActiveMTU, DestQPN: peer,
		MaxDestRdAtomic: 1, MinRNRTimer: d.fabric.opts.MinRNRTimer,
		AH: ibv.AHAttr{PortNum: d.port.num, DLID: d.port.attr.LID},
	}
	if d.port.attr.LinkLayer == ibv.LinkEthernet || d.port.attr.GRHRequired {
		rtr.AH.IsGlobal = true
		rtr.AH.DGID, rtr.AH.SGIDIndex, rtr.AH.HopLimit = d.gid.GID, uint8(d.gid.Index), 1
	}
	mask := ibv.QPMaskState | ibv.QPMaskAV | ibv.QPMaskPathMTU | ibv.QPMaskDestQPN | ibv.QPMaskRQPSN |
		ibv.QPMaskMaxDestRdAtomic | ibv.QPMaskMinRNRTimer
	if err := q.Modify(&rtr, mask); err != nil {
		return err
	}
	rts := ibv.QPAttr{State: ibv.QPSRTS, Timeout: probeTimeout, RetryCnt: 3, RNRRetry: 3, MaxRdAtomic: 1}
	return q.Modify(&rts, ibv.QPMaskState|ibv.QPMaskSQPSN|ibv.QPMaskTimeout|ibv.QPMaskRetryCnt|ibv.QPMaskRNRRetry|ibv.QPMaskMaxQPRdAtomic)
}

func (p *hwPair) allow(a ibv.Access) error {
	return p.responds.Modify(&ibv.QPAttr{AccessFlags: a}, ibv.QPMaskAccessFlags)
}

// read READs once and returns the status of the completion.
func (p *hwPair) read() (ibv.WCStatus, error) {
	wr := ibv.SendWR{ID: 1, Op: ibv.WRRDMARead, Flags: ibv.SendSignaled, RemoteAddr: p.mr.Addr, RKey: p.mr.RKey, NumSGE: 1}
	wr.SGL[0] = ibv.SGE{Addr: p.mr.Addr + probeBytes, Len: probeBytes, LKey: p.mr.LKey}
	if _, err := p.asks.PostSend([]ibv.SendWR{wr}); err != nil {
		return 0, err
	}
	var wcs [1]ibv.WC
	for end := time.Now().Add(probeWait); ; {
		n, err := p.cq.Spin(wcs[:], ibv.MaxSpin)
		switch {
		case err != nil:
			return 0, err
		case n > 0:
			return wcs[0].Status, nil
		case time.Now().After(end):
			return 0, fmt.Errorf("no completion within %v", probeWait)
		}
	}
}

func (p *hwPair) close() error { return p.all() }
