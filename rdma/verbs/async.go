package verbs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// async reads the device's asynchronous events (ibv_get_async_event(3)) until the
// device is closed. Package ibv acknowledges each before it returns it.
func (d *device) async(ctx context.Context) {
	log := d.fabric.opts.Logger.With("device", d.name)
	for {
		ev, err := d.hw.AsyncEvent(ctx)
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, ibv.ErrClosed) {
				// The descriptor answers no more: the device was unplugged.
				log.Error("RDMA device is lost", "error", err)
				d.lose(fmt.Errorf("%w: device %s: no events any more: %w", rdma.ErrPeerGone, d.name, err))
			}
			return
		}
		if over := d.event(log, ev); over {
			return
		}
	}
}

// event does what an asynchronous event asks for. over says that no further event
// is to be read: what is destroyed after a fatal event must not be read beside
// that.
func (d *device) event(log *slog.Logger, ev ibv.AsyncEvent) (over bool) {
	switch ev.Type {
	case ibv.AsyncCQErr:
		if c := d.findCQ(ev.CQ); c != nil {
			c.overrun()
		}
	case ibv.AsyncQPFatal:
		d.failQP(ev, fmt.Errorf("%w: the device reports a fatal error of the queue pair", rdma.ErrProtocol))
	case ibv.AsyncQPReqErr, ibv.AsyncQPAccessErr:
		// This end is the responder: the peer asked for memory that it may not
		// have.
		d.failQP(ev, fmt.Errorf("%w: the device refused a request of the peer", rdma.ErrAccess))
	case ibv.AsyncSRQErr:
		// The SRQ takes no receives from its queue any more: each QP that it
		// serves would wait for one for ever.
		d.failSRQ(ev.SRQ, fmt.Errorf("%w: the device reports a fatal error of the shared receive queue", rdma.ErrProtocol))
	case ibv.AsyncCommEst:
		// Data came before the connection manager's last message.
		if q := d.qpOf(ev); q != nil {
			q.heard()
		}
	case ibv.AsyncQPLastWQEReached:
		d.lastWQE.Store(lastWQESeen)
		if q := d.qpOf(ev); q != nil {
			q.drain.leftSRQ.give()
		}
	case ibv.AsyncDeviceFatal:
		log.Error("RDMA device failed or was removed")
		d.lose(fmt.Errorf("%w: device %s failed or was removed", rdma.ErrPeerGone, d.name))
		return true
	case ibv.AsyncPortErr:
		log.Warn("RDMA port is down", "port", ev.Port)
	case ibv.AsyncPortActive:
		log.Info("RDMA port is active", "port", ev.Port)
		d.refreshPort()
		d.portChanged()
	case ibv.AsyncGIDChange, ibv.AsyncLIDChange, ibv.AsyncPKeyChange, ibv.AsyncClientReregister:
		log.Info("RDMA port has changed", "port", ev.Port, "event", uint32(ev.Type))
		d.refreshPort()
		d.portChanged()
	}
	return false
}

func (d *device) failQP(ev ibv.AsyncEvent, err error) {
	if q := d.qpOf(ev); q != nil {
		q.fail(err)
	}
}

// failSRQ fails every QP that takes its receives from an SRQ.
func (d *device) failSRQ(hw *ibv.SRQ, err error) {
	d.mu.Lock()
	var qps []*qp
	for _, q := range d.qps {
		if q.srq != nil && q.srq.hw == hw {
			qps = append(qps, q)
		}
	}
	d.mu.Unlock()
	for _, q := range qps {
		q.fail(err)
	}
}

// qpOf is the QP that an event is about, or nil if it is gone: the number alone
// may be that of a younger QP by now.
func (d *device) qpOf(ev ibv.AsyncEvent) *qp {
	if q := d.findQP(ev.QPN); q != nil && q.hw == ev.QP {
		return q
	}
	return nil
}

// portChanged tells the reader of PortChanges.
func (d *device) portChanged() {
	select {
	case d.changes <- struct{}{}:
	default: // the last one has not been seen yet
	}
}

// PortChanges tells of ports that have come back. On iWARP, which does not reach
// itself, it is nil.
func (d *device) PortChanges() <-chan struct{} {
	if d.iwarp {
		return nil
	}
	return d.changes
}

var _ rdma.PortWatcher = (*device)(nil)

// refreshPort looks again at what new connections need to know of the port.
func (d *device) refreshPort() {
	ports, err := queryPorts(d.hw, d.ports)
	if err != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range ports {
		if p.num == d.port.num {
			d.port = p
		}
	}
}

// lose ends everything of a device that is gone: its QPs fail, its CQs end their
// waits and answer with why.
func (d *device) lose(why error) {
	if !d.dead.CompareAndSwap(nil, &why) {
		return
	}
	d.mu.Lock()
	var qps []*qp
	for _, q := range d.qps {
		qps = append(qps, q)
	}
	var cqs []*cq
	for _, c := range d.cqs {
		cqs = append(cqs, c)
	}
	d.mu.Unlock()
	for _, q := range qps {
		q.fail(why)
	}
	for _, c := range cqs {
		c.die(why)
	}
}

func (d *device) findCQ(hw *ibv.CQ) *cq {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cqs[hw]
}
