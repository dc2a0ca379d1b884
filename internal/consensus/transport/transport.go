package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// Bounds of a transport.
const (
	MaxFrame    = 8 << 20   // bytes of a frame
	QueueUrgent = 256 << 10 // bytes that wait for an urgent way
	QueueBulk   = MaxFrame  // bytes that wait for a bulk way

	MaxSetups    = 64 // ways that are being accepted at once
	SetupTimeout = 2 * time.Second
)

// A Route is a way to reach a node: a device of this one, and an address that it dials.
type Route struct {
	Device rdma.Device
	Addr   string
}

// Config is what a Transport is made of.
type Config struct {
	Name     string   // of this node
	Cluster  [16]byte // that both ends must be of
	Secret   []byte   // the cluster's
	Endpoint consensus.Endpoint
	// Routes returns how to reach a node, the best first. It must not block.
	Routes func(node string) []Route
	// Knows says whether a node may have replicas; nil: whoever knows the secret may.
	Knows func(node string) bool
	// Store is the id of this node's data directory, Openings its starts, this one first: what other nodes are told (wire.NodeHello).
	Store    [16]byte
	Openings []wire.Opening
	// Admit says whether a node may speak that has this data directory and these openings; nil: each may. What it admits it has made
	// durable when it returns. A *SetBackError is told to that node. It may be called by several goroutines.
	Admit func(node string, store [16]byte, openings []wire.Opening) error
	// SetBack is told that another node refuses this one, because it has seen an opening that is none of Openings; nil: nobody is. It
	// must not block.
	SetBack func(by string, seen wire.Opening)
	// Answer answers a question of another node (Ask); nil: none is answered, and who asks gets ErrNoAnswers. The question is Answer's own, and the
	// answer is given away; it has at most MaxAsk bytes. ctx ends when the way of the question does: nobody hears the answer then, and Answer is to
	// return soon, because Close waits for it. An error is told to the node that asks, as the text of an *AskError. It is called by several
	// goroutines, MaxAsking for one node and MaxAnswering for all.
	Answer func(ctx context.Context, node string, question []byte) (answer []byte, err error)
	// Speaks are the versions of the protocol of nodes; default wire.NodeSpeaks.
	Speaks wire.NodeVersions
	// Rate bounds the bytes of snapshots that are taken in a second, of one at a time;
	// default 256 MiB.
	Rate int64
	// Stall is for how long a way may bring neither completions nor credits that are owed,
	// until it is ended; default 3 s.
	Stall  time.Duration
	Logger *slog.Logger
}

// A SetBackError says that a node's data directory does not know of an opening that was seen of it: the directory is an older copy, or
// another one.
type SetBackError struct {
	Node string
	Seen wire.Opening // the newest that was seen
	Says wire.Opening // the newest that the node knows of
}

func (e *SetBackError) Error() string {
	return fmt.Sprintf("transport: the data directory of node %q does not know of its own start in epoch %d (%016x), which was seen here; it is now in epoch %d, so its disk was set back, and what it promised since is forgotten: start it with its newest data directory",
		e.Node, e.Seen.Epoch, e.Seen.Incarnation, e.Says.Epoch)
}

// A Transport takes messages to other nodes and from them. It is safe for concurrent use.
type Transport struct {
	c       Config
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	setups  chan struct{}

	mu     sync.Mutex
	outs   map[outKey]*out
	ins    map[outKey][]*end // the newest of each lane of each node, maxWays of them at most; the oldest first
	uses   map[rdma.Device]*use
	asks   map[string]*asker   // by node
	busy   answers             // that are being answered
	nonces map[wire.Nonce]bool // of the requests that are being set up
	untold int                 // requests that were refused since toldAt, when a line told of one
	toldAt time.Time

	older older
}

type outKey struct {
	node string
	lane wire.Lane
}

var _ consensus.Link = (*Transport)(nil)

// New returns a transport. Close ends it; the devices stay the caller's.
func New(c Config) (*Transport, error) {
	if c.Name == "" || len(c.Name) > wire.MaxName {
		return nil, fmt.Errorf("transport: a node's name has 1 to %d bytes, %q has %d", wire.MaxName, c.Name, len(c.Name))
	}
	if len(c.Openings) == 0 || len(c.Openings) > wire.MaxOpenings {
		return nil, fmt.Errorf("transport: a node tells of 1 to %d openings, not of %d", wire.MaxOpenings, len(c.Openings))
	}
	if c.Speaks == (wire.NodeVersions{}) {
		c.Speaks = wire.NodeSpeaks()
	}
	if c.Rate == 0 {
		c.Rate = 256 << 20
	}
	if c.Stall == 0 {
		c.Stall = 3 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	t := &Transport{c: c, setups: make(chan struct{}, MaxSetups), outs: map[outKey]*out{}, ins: map[outKey][]*end{}, uses: map[rdma.Device]*use{}, asks: map[string]*asker{}, busy: answers{of: map[string]int{}}, nonces: map[wire.Nonce]bool{}}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t, nil
}

// Send implements consensus.Link.
func (t *Transport) Send(node string, urgent bool, b []byte) {
	key := outKey{node, wire.LaneBulk}
	if urgent {
		key.lane = wire.LaneUrgent
	}
	t.mu.Lock()
	o := t.outs[key]
	if o == nil && t.ctx.Err() == nil && node != t.c.Name && len(t.c.Routes(node)) > 0 {
		o = newOut(t, key)
		t.outs[key] = o
		t.running.Go(o.run)
	}
	t.mu.Unlock()
	if o != nil {
		o.send(b)
	}
}

// goes starts a goroutine that Close waits for; false: the transport is closed.
func (t *Transport) goes(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil {
		return false
	}
	t.running.Go(f)
	return true
}

// Forget ends the ways to a node that is no more.
func (t *Transport) Forget(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, o := range t.outs {
		if key.node == node {
			delete(t.outs, key)
			o.close()
		}
	}
	if a := t.asks[node]; a != nil {
		delete(t.asks, node)
		a.close()
	}
	for key, ends := range t.ins {
		if key.node == node {
			delete(t.ins, key)
			for _, e := range ends {
				e.qp.Disconnect()
			}
		}
	}
}

// Close ends all ways, and returns when no memory of them is registered any more.
func (t *Transport) Close() error {
	t.cancel()
	t.mu.Lock()
	for _, o := range t.outs {
		o.close()
	}
	for _, ends := range t.ins {
		for _, e := range ends {
			e.qp.Disconnect()
		}
	}
	t.mu.Unlock()
	t.running.Wait()
	var err error
	t.mu.Lock()
	defer t.mu.Unlock()
	for dev, u := range t.uses {
		if u.pd != nil {
			err = errors.Join(err, u.pd.Close())
		}
		delete(t.uses, dev)
	}
	return err
}

// A use is what the transport has made on a device.
type use struct {
	pd       rdma.PD
	ends     map[*end]bool // that are not closed; true: its queue pair is there
	released chan struct{} // nil: not yet; closed when the last end is
}

// begin counts a new end on its device in, which has a protection domain of its own for all of them. The end is to be closed.
func (t *Transport) begin(dev rdma.Device, e *end) (rdma.PD, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil {
		return nil, consensus.ErrClosed
	}
	u := t.uses[dev]
	if u == nil {
		pd, err := dev.AllocPD()
		if err != nil {
			return nil, err
		}
		u = &use{pd: pd, ends: map[*end]bool{}}
		t.uses[dev] = u
	}
	if u.released != nil {
		return nil, rdma.ErrClosed
	}
	u.ends[e] = false
	e.over = func() { t.over(u, e) }
	return u.pd, nil
}

// opened tells that an end has its queue pair, which Release may disconnect from here on.
func (t *Transport) opened(dev rdma.Device, e *end) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.uses[dev]
	if u == nil || !has(u.ends, e) || u.released != nil { // nil, or another one: Release gave up waiting, and the device is closed
		return rdma.ErrClosed
	}
	u.ends[e] = true
	return nil
}

func has(ends map[*end]bool, e *end) bool {
	_, ok := ends[e]
	return ok
}

// over is that an end is closed.
func (t *Transport) over(u *use, e *end) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(u.ends, e)
	if u.released != nil && len(u.ends) == 0 {
		close(u.released)
	}
}

// Release lets go of a device that is about to be closed: the ways on it end, and none is made there any more. It returns when nothing of
// the transport is left on it, or with ctx's error. It is called once for a device; Closed when it is closed.
func (t *Transport) Release(ctx context.Context, dev rdma.Device) error {
	t.mu.Lock()
	u := t.uses[dev]
	if u == nil {
		u = &use{}
		t.uses[dev] = u // so that nobody begins
	}
	u.released = make(chan struct{})
	if len(u.ends) == 0 {
		close(u.released)
	}
	for e, whole := range u.ends {
		if whole {
			e.qp.Disconnect()
		}
	}
	t.mu.Unlock()
	select {
	case <-u.released:
	case <-ctx.Done():
		return ctx.Err()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if u.pd == nil {
		return nil
	}
	pd := u.pd
	u.pd = nil
	return pd.Close()
}

// Closed tells that a device which was released is closed: nothing can be made there, and nothing has to be known of it.
func (t *Transport) Closed(dev rdma.Device) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.uses, dev)
}
