package verbs

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// A shared receive queue that fails takes the QPs with it that have their
// receives from it, and no others: without that they would wait for ever.
func TestSRQError(t *testing.T) {
	d := deviceless(Options{})
	d.qps = make(map[uint32]*qp)
	bad, good := &srq{hw: new(ibv.SRQ)}, &srq{hw: new(ibv.SRQ)}
	newQP := func(num uint32, s *srq) *qp {
		q := &qp{num: num, hw: new(ibv.QP), srq: s, dead: make(chan struct{}), pd: &pd{dev: d}}
		d.enter(q)
		return q
	}
	hit := []*qp{newQP(1, bad), newQP(2, bad)}
	spared := []*qp{newQP(3, good), newQP(4, nil)}
	if d.event(slog.New(slog.DiscardHandler), ibv.AsyncEvent{Type: ibv.AsyncSRQErr, SRQ: bad.hw}) {
		t.Error("no event is read any more")
	}
	for _, q := range hit {
		if q.State() != rdma.QPError || !errors.Is(q.Err(), rdma.ErrProtocol) {
			t.Errorf("QP %d of the failed queue: %v, %v", q.num, q.State(), q.Err())
		}
		q.workers.Wait()
	}
	for _, q := range spared {
		if q.State() == rdma.QPError {
			t.Errorf("QP %d of another queue failed: %v", q.num, q.Err())
		}
	}
}

// After a fatal event nothing is read from the device any more.
func TestFatalEvent(t *testing.T) {
	d := deviceless(Options{})
	if !d.event(slog.New(slog.DiscardHandler), ibv.AsyncEvent{Type: ibv.AsyncDeviceFatal}) {
		t.Error("events are read on")
	}
	if why := d.dead.Load(); why == nil || !errors.Is(*why, rdma.ErrPeerGone) {
		t.Error("the device is not lost")
	}
}

// A goroutine that watches the ports is told once of all changes since it looked
// last, and nothing waits for it; a device that does not reach itself has nothing
// to tell.
func TestPortChanges(t *testing.T) {
	d := deviceless(Options{})
	d.changes = make(chan struct{}, 1)
	changes := d.PortChanges()
	for _, typ := range []ibv.AsyncType{ibv.AsyncPortActive, ibv.AsyncGIDChange, ibv.AsyncClientReregister} {
		for range 2 {
			d.event(slog.New(slog.DiscardHandler), ibv.AsyncEvent{Type: typ})
		}
		select {
		case <-changes:
		default:
			t.Errorf("event %d is not told", typ)
		}
		select {
		case <-changes:
			t.Errorf("event %d is told twice", typ)
		default:
		}
	}
	d.event(slog.New(slog.DiscardHandler), ibv.AsyncEvent{Type: ibv.AsyncPortErr})
	select {
	case <-changes:
		t.Error("a port that goes down is told as one that came back")
	default:
	}
	d.iwarp = true
	if d.PortChanges() != nil {
		t.Error("iWARP does not reach itself")
	}
}
