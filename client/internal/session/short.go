package session

import (
	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/device"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/wait"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A single READ by the short way: into a sink whose work request is prepared, posted and
// polled for in one call (rdma.SpinReader). No buffer of a pool, no batch, no operation
// to wait for. It is tried by gets that one READ may answer; where it does not work out at
// once, because another call polls or nothing comes while it is worth polling, the get
// begins anew by posting.
//
// A READ that has not ended by then may still write to its sink, and goes by its view. So
// the sink stays out of use and the view in use until its completion has come.

// A Short is what a session has for it. Safe for concurrent use.
type Short struct {
	s      *Session
	sinks  *wait.Sinks // nil: the session posts every READ
	memory *device.Sinks
}

// prepare makes the sinks, where the device takes prepared READs.
func (h *Short) prepare(s *Session) (err error) {
	qp, can := s.QP.(rdma.SpinReader)
	if !can || !s.Device.TakesSinks() {
		return nil
	}
	h.s = s
	if h.memory, err = s.Devices.NewSinks(s.Device); err != nil {
		return err
	}
	h.sinks, err = s.d.NewSinks(qp, h.memory.Places, leaveView)
	return err
}

// leaveView ends the use of the view by which a late READ went.
func leaveView(k *wait.Sink) { k.Held.(*paddedCount).n.Add(-1) }

// close waits until no sink is in use. The queue pair and the dispatcher are closed.
func (h *Short) close() {
	if h.sinks != nil {
		h.sinks.Close()
	}
}

// free gives the memory back.
func (h *Short) free() error {
	if h.memory == nil {
		return nil
	}
	return h.memory.Close()
}

// IsWorth reports whether a READ by the short way is worth a try: the session has it,
// and no call waits, which would poll for this one too.
func (h *Short) IsWorth() bool { return h.sinks != nil && h.sinks.IsWorth() }

// A Sink is a place for one READ.
type Sink = wait.Sink

// Take returns a sink for one READ, which End gives back; nil if all are in use or the
// session has ended. Its Index is below base.Stripes, and nobody else's meanwhile.
func (h *Short) Take() *wait.Sink { return h.sinks.Take() }

// End gives a sink back, once what it holds has been judged and what is wanted of it was
// copied.
func (h *Short) End(k *wait.Sink) { h.sinks.Put(k) }

// Read READs n bytes of a place by the view in force into a sink of Take. It returns them,
// and when their completion was polled, on the lease clock. Without bytes there is no
// answer, and the READ must be posted; one that failed has ended the queue pair. mine is
// false if the READ is late: then the sink is not the caller's any more.
func (h *Short) Read(k *wait.Sink, p layout.Place, n int) (bytes []byte, at int64, mine bool) {
	if n > device.SinkBytes {
		return nil, 0, true
	}
	v := h.s.enterDirect(k.Index)
	under := &v.direct[k.Index]
	remote, known := v.at(p, n)
	if !known {
		under.n.Add(-1)
		return nil, 0, true
	}
	k.Held = under
	state, status, polled := h.sinks.Read(k, remote, uint32(n))
	if state == wait.ReadLate {
		return nil, 0, false // sink and view are its completion's
	}
	under.n.Add(-1)
	if state != wait.ReadDone || status != rdma.StatusSuccess {
		return nil, 0, true
	}
	if polled == 0 || h.s.World.Now != nil {
		polled = h.s.Now()
	}
	return k.Bytes[:n:n], polled, true
}

// Each sink has a stripe of its own.
const _ = uint(base.Stripes - device.SinkCount)

// Out is how many sinks are with callers or with the fabric.
func (h *Short) Out() int {
	if h.sinks == nil {
		return 0
	}
	return h.sinks.Out()
}
