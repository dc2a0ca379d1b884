package verbs

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// A cmLoop is the event channel of a device's connections, and the one
// goroutine that reads it. Package ibv acknowledges each event as it is read.
type cmLoop struct {
	ec   *ibv.EventChannel
	stop context.CancelFunc
	done chan struct{}

	closing atomic.Bool // close has run: drop closes ec too

	mu    sync.Mutex
	sinks map[*ibv.CMID]cmSink
}

// A cmSink takes the events of one identifier. It must not wait.
type cmSink interface {
	cmEvent(ev ibv.CMEvent)
}

// loop returns the device's cmLoop, started with the first connection.
func (d *device) loop() (*cmLoop, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("%w: device %s", rdma.ErrClosed, d.name)
	}
	if d.cm != nil {
		return d.cm, nil
	}
	ec, err := ibv.NewEventChannel()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rdma.ErrNoDevice, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &cmLoop{ec: ec, stop: cancel, done: make(chan struct{}), sinks: make(map[*ibv.CMID]cmSink)}
	d.cm = l
	go l.run(ctx)
	return l, nil
}

// run hands each event to its identifier, until the channel is closed. It never
// waits for one.
func (l *cmLoop) run(ctx context.Context) {
	defer close(l.done)
	for {
		ev, err := l.ec.Get(ctx)
		if err != nil {
			return
		}
		at := ev.ID
		if ev.Type == ibv.CMConnectRequest {
			at = ev.ListenID
		}
		l.mu.Lock()
		s := l.sinks[at]
		l.mu.Unlock()
		if s != nil {
			s.cmEvent(ev)
		} else if ev.Type == ibv.CMConnectRequest {
			_ = ev.ID.Close() // the listener is gone
		}
	}
}

func (l *cmLoop) add(id *ibv.CMID, s cmSink) {
	l.mu.Lock()
	l.sinks[id] = s
	l.mu.Unlock()
}

// drop destroys an identifier. The peer of an unfinished set-up is refused by
// the kernel.
func (l *cmLoop) drop(id *ibv.CMID) {
	l.mu.Lock()
	delete(l.sinks, id)
	l.mu.Unlock()
	_ = id.Close()
	if l.closing.Load() {
		_ = l.ec.Close()
	}
}

// close ends the goroutine. All identifiers are destroyed by then, but for one
// whose rdma_connect still sits in the kernel: the last of these closes the
// channel, which is busy until then.
func (l *cmLoop) close() {
	l.stop()
	<-l.done
	l.closing.Store(true)
	_ = l.ec.Close()
}

// A cmConn is one identifier of librdmacm: the link of a QP, and before that
// the events of its set-up.
type cmConn struct {
	loop *cmLoop
	id   *ibv.CMID

	events   chan ibv.CMEvent // of the set-up; it has room for all of its steps
	gone     chan struct{}    // closed when the peer, or the attempt, has ended
	goneOnce sync.Once
	qp       atomic.Pointer[qp] // set once connected
	onGone   func()             // of a request that has no answer yet; may be nil
}

const (
	// cmEvents is more than one set-up has.
	cmEvents = 8
	// byeTimeout bounds how long a closing QP waits for the peer to confirm
	// that it has heard of the end. Unconfirmed, the message may be lost, and
	// the peer finds out by itself.
	byeTimeout = 250 * time.Millisecond
)

func newCMConn(l *cmLoop, id *ibv.CMID) *cmConn {
	return &cmConn{loop: l, id: id, events: make(chan ibv.CMEvent, cmEvents), gone: make(chan struct{})}
}

// cmEvent is called by the loop.
func (c *cmConn) cmEvent(ev ibv.CMEvent) {
	switch ev.Type {
	case ibv.CMDisconnected:
		c.end("the peer has disconnected")
	case ibv.CMDeviceRemoval:
		c.end("the device was removed")
	case ibv.CMRejected, ibv.CMUnreachable, ibv.CMConnectError:
		c.end("the set-up ended")
	}
	select {
	case c.events <- ev:
	default:
	}
}

func (c *cmConn) end(why string) {
	c.goneOnce.Do(func() { close(c.gone) })
	if q := c.qp.Load(); q != nil {
		q.peerGone(why)
	} else if c.onGone != nil {
		c.onGone()
	}
}

// attach makes the identifier the link of q.
func (c *cmConn) attach(q *qp, info rdma.ConnInfo) error {
	if err := q.connected(c, info); err != nil {
		return err
	}
	c.qp.Store(q)
	select {
	case <-c.gone: // before it was q's
		q.peerGone("the peer has disconnected")
	default:
	}
	return nil
}

// wait returns the next event of the set-up, which must be of the given type,
// or nothing as soon as instead is closed.
func (c *cmConn) wait(ctx context.Context, step string, want ibv.CMEventType, instead <-chan struct{}) (ibv.CMEvent, error) {
	select {
	case <-instead:
		return ibv.CMEvent{}, nil
	case <-ctx.Done():
		return ibv.CMEvent{}, setupError(ctx, step, ctx.Err())
	case ev := <-c.events:
		switch ev.Type {
		case want:
			return ev, nil
		case ibv.CMRejected:
			return ev, fmt.Errorf("%s: %w", step, rejection(ev.Status))
		case ibv.CMAddrError:
			return ev, fmt.Errorf("%s: %w", step, eventError("the address cannot be resolved", ev.Status))
		case ibv.CMRouteError:
			return ev, fmt.Errorf("%s: %w", step, eventError("no route", ev.Status))
		case ibv.CMUnreachable:
			return ev, fmt.Errorf("%s: %w", step, eventError("nobody answers", ev.Status))
		case ibv.CMConnectError:
			return ev, fmt.Errorf("%s: %w", step, eventError("connection error", ev.Status))
		case ibv.CMDisconnected:
			return ev, fmt.Errorf("%s: %w: the peer has disconnected", step, rdma.ErrPeerGone)
		}
		return ev, fmt.Errorf("%s: %w: event %d of the connection manager", step, rdma.ErrProtocol, ev.Type)
	}
}

// Disconnect tells the peer.
func (c *cmConn) Disconnect() {
	_ = c.id.Disconnect() // fails if the peer was first, or if it never connected
}

// Close frees the identifier, after the peer has confirmed or a moment has
// passed: destroying it would stop the repetition of a lost message.
func (c *cmConn) Close() {
	t := time.NewTimer(byeTimeout)
	defer t.Stop()
	select {
	case <-c.gone:
	case <-t.C:
	}
	c.loop.drop(c.id)
}
