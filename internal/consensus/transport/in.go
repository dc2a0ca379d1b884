package transport

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// Accept answers the connection request of a node, whose private data wire.IsNode has told
// from a client's, and serves the way until it ends. dev is the device of the listener. It
// does not block.
func (t *Transport) Accept(dev rdma.Device, req rdma.ConnRequest) {
	select {
	case t.setups <- struct{}{}:
	default:
		req.Reject(t.reject(req, wire.NodeBusy))
		return
	}
	t.mu.Lock()
	closed := t.ctx.Err() != nil
	if !closed {
		t.running.Add(1)
	}
	t.mu.Unlock()
	if closed {
		<-t.setups
		req.Reject(t.reject(req, wire.NodeRefused))
		return
	}
	go func() {
		defer t.running.Done()
		from := req.RemoteAddr()
		key, e, err := t.welcome(dev, req)
		<-t.setups
		if err != nil {
			t.refused(from, err)
			return
		}
		switch key.lane {
		case wire.LaneState:
			err = t.takeState(key.node, e)
		case wire.LaneAsk:
			err = t.answerAll(key.node, e)
		default:
			err = t.receive(key.node, e)
		}
		t.gone(key, e)
		e.close()
		if t.ctx.Err() == nil {
			t.c.Logger.Info("a way of a node has ended", "node", key.node, "lane", key.lane, "err", err)
		}
	}()
}

// refusedEvery is how often it is told that connection requests are refused: whoever reaches the port can send any number.
const refusedEvery = time.Second

// refused tells of a request that was refused, or keeps it for the next line.
func (t *Transport) refused(from net.Addr, err error) {
	t.mu.Lock()
	t.untold++
	n, now := t.untold, time.Now()
	if now.Sub(t.toldAt) < refusedEvery {
		t.mu.Unlock()
		return
	}
	t.untold, t.toldAt = 0, now
	t.mu.Unlock()
	t.c.Logger.Warn("a node is refused", "from", from, "err", err, "refused", n)
}

// welcome sets a way up.
func (t *Transport) welcome(dev rdma.Device, req rdma.ConnRequest) (key outKey, e *end, err error) {
	ctx, cancel := context.WithTimeout(t.ctx, SetupTimeout)
	defer cancel()
	connect := append([]byte(nil), wire.Unpad(req.PrivateData(), wire.NodeConnectSize)...)
	c, err := wire.ParseNodeConnect(connect)
	if err == nil && !wire.VerifyNodeConnect(t.c.Secret, connect) {
		err = fmt.Errorf("transport: it does not know the cluster's secret")
	}
	version, ok := t.c.Speaks.Common(c.Versions)
	if err == nil && !ok {
		err = fmt.Errorf("%w: it speaks %v, and this one %v", ErrVersions, c.Versions, t.c.Speaks)
	}
	if err == nil && !t.claim(c.Nonce) {
		err = errReplayed
	} else if err == nil {
		defer t.unclaim(c.Nonce)
		e, err = t.newEnd(dev, accepts[c.Lane], 0)
	}
	if err != nil {
		why := wire.NodeRefused
		if errors.Is(err, errReplayed) {
			why = wire.NodeBusy
		}
		req.Reject(t.reject(req, why))
		return key, nil, err
	}
	made := e
	defer func() {
		if err != nil {
			made.close()
		}
	}()
	var nonce wire.Nonce
	if _, err := rand.Read(nonce[:]); err != nil {
		return key, nil, err
	}
	accept := wire.AppendNodeAccept(nil, t.c.Secret, connect, version, nonce)
	if _, err := req.Accept(ctx, e.qp, rdma.ConnParams{PrivateData: accept}); err != nil {
		return key, nil, err
	}
	m, slot, err := e.hear(ctx)
	if err != nil {
		return key, nil, err
	}
	if m.kind != kindHello || !wire.VerifyNodeHello(m.body, t.c.Secret, connect, accept) {
		return key, nil, fmt.Errorf("%w: no hello that answers this acceptance", errProtocol)
	}
	h, err := wire.ParseNodeHello(m.body)
	switch {
	case err != nil:
		return key, nil, err
	case h.Cluster != t.c.Cluster:
		return key, nil, fmt.Errorf("transport: node %q is of another cluster", h.From)
	case t.c.Knows != nil && !t.c.Knows(string(h.From)):
		return key, nil, fmt.Errorf("transport: node %q is none of this cluster's that may have replicas", clean(h.From))
	case string(h.To) != t.c.Name || string(h.From) == t.c.Name:
		return key, nil, fmt.Errorf("transport: node %q takes this one, %q, for %q", h.From, t.c.Name, h.To)
	}
	key = outKey{string(h.From), c.Lane}
	if t.c.Admit != nil {
		if err := t.c.Admit(key.node, h.Store, h.Openings); err != nil {
			var back *SetBackError
			if errors.As(err, &back) {
				t.turnAway(ctx, e, wire.AppendNodeRefusal(nil, t.c.Secret, connect, accept, back.Seen))
			}
			return key, nil, err
		}
	}
	if err := e.recv(slot); err != nil {
		return key, nil, err
	}
	t.come(key, e)
	if err := e.say(ctx, message{kind: kindWelcome, value: uint32(e.grants())}); err != nil {
		t.gone(key, e)
		return key, nil, err
	}
	return key, e, nil
}

// turnAway tells the other node why it may not speak, and gives it the time to hear that: it ends the way then.
func (t *Transport) turnAway(ctx context.Context, e *end, refusal []byte) {
	err := e.say(ctx, message{kind: kindRefusal, body: refusal})
	for err == nil {
		_, err = e.next(ctx)
	}
}

// errReplayed: whoever replays a request that he has seen takes one place with it, not all.
var errReplayed = errors.New("transport: a connection request with the same nonce is being set up: it is a copy")

func (t *Transport) claim(n wire.Nonce) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.nonces[n] {
		return false
	}
	t.nonces[n] = true
	return true
}

func (t *Transport) unclaim(n wire.Nonce) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.nonces, n)
}

// maxWays is how many ways of a lane a node may have open to this one: one, but for snapshots, each of which has its own. It sends fewer at a
// time (driver.MaxSending), and begins others when this node does not know yet that the last ones have ended.
func maxWays(lane wire.Lane) int {
	if lane == wire.LaneState {
		return 4
	}
	return 1
}

// come notes a new way. If there are too many now, the oldest one is dead, or soon: it is ended.
func (t *Transport) come(key outKey, e *end) {
	t.mu.Lock()
	ways := append(t.ins[key], e)
	var old *end
	if len(ways) > maxWays(key.lane) {
		old = ways[0]
		ways = slices.Delete(ways, 0, 1)
	}
	t.ins[key] = ways
	t.mu.Unlock()
	if old != nil {
		old.qp.Disconnect()
	}
}

// gone forgets a way.
func (t *Transport) gone(key outKey, e *end) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ways := slices.DeleteFunc(t.ins[key], func(other *end) bool { return other == e })
	if len(ways) == 0 {
		delete(t.ins, key)
	} else {
		t.ins[key] = ways
	}
}

// receive takes frames until the way ends.
func (t *Transport) receive(node string, e *end) error {
	ctx := t.ctx
	var frame []byte // what has come of one that is not whole
	owed := 0        // receives that are posted again, and the other node does not know
	for {
		m, slot, err := e.hear(ctx)
		if err != nil {
			return err
		}
		if m.kind != kindData || m.value != 0 {
			return fmt.Errorf("%w: a message of kind %d", errProtocol, m.kind)
		}
		whole := m.body
		if len(frame) > 0 || !m.last {
			if len(frame)+len(m.body) > MaxFrame {
				return fmt.Errorf("%w: a frame of more than %d bytes", errProtocol, MaxFrame)
			}
			frame = append(frame, m.body...)
			whole = frame
		}
		if m.last {
			if err := t.c.Endpoint.Deliver(node, whole); err != nil {
				return err
			}
			if frame = frame[:0]; cap(frame) > keptFrame {
				frame = nil
			}
		}
		if err := e.recv(slot); err != nil {
			return err
		}
		if owed++; owed >= e.recvs/2 {
			if err := e.say(ctx, message{kind: kindCredit, value: uint32(owed)}); err != nil {
				return err
			}
			owed = 0
		}
	}
}

// keptFrame is how much memory of a frame a way keeps for the next one.
const keptFrame = 256 << 10
