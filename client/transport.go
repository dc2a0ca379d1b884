package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/rdmakv/rdmakv/internal/memory"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A transport is an opened device and what is registered on it: memory that one
// device knows is nothing to another one. A session belongs to one transport.
// It is opened when a connection needs it first and stays for the next ones.
type transport struct {
	key      transportKey
	dev      rdma.Device
	pd       rdma.PD // of this server alone: nobody else can name what we stage
	software bool    // the program itself is the RNIC
	reason   string  // why the fabric chose this device, if it did

	buffers *bufferPool
	staging *bufferPool
	// maxQuarantine is how many bytes of buffers may wait for completions that
	// do not come before the connection is given up.
	maxQuarantine int64
	maxReads      int // READs under way at a time: Config.MaxReads, if the device takes that many
	owned         ownedBuffers

	// Guarded by transports.mu.
	users    int  // sessions, and attempts to make one
	retired  bool // closed as soon as nobody uses it
	messages []messages
}

// messages is the registered memory that the SENDs of one session use, in both
// directions. Sessions pass it on: connecting again registers nothing.
type messages struct {
	mem *memory.Block
	mr  rdma.MR
}

func (m messages) close() error { return errors.Join(m.mr.Close(), m.mem.Free()) }

// spareMessages is how many of them a transport keeps for sessions to come.
const spareMessages = 2

// A transportKey names a transport: a fabric by its index in Config.Fabrics, and
// a device as Fabric.Open takes it.
type transportKey struct {
	fabric int
	device string
}

// transports are all devices that a client has open.
type transports struct {
	c       *peer
	opening chan struct{} // cap 1: held by whoever opens a device

	mu      sync.Mutex
	open    map[transportKey]*transport
	closing sync.WaitGroup // of retired ones
}

// errSoftware: Config.RequireRDMA forbids the fabric.
var errSoftware = errors.New("it is done in software, and RequireRDMA is set")

// use returns the transport of a device and opens it if need be. The caller
// leaves it when he is done.
func (ts *transports) use(ctx context.Context, key transportKey) (*transport, error) {
	t := ts.find(key) // without waiting for a device that does not let itself be opened
	if t == nil {
		var err error
		if t, err = ts.findOrOpen(ctx, key); err != nil {
			return nil, err
		}
	}
	if t.software && ts.c.cfg.RequireRDMA {
		ts.leave(t)
		return nil, errSoftware
	}
	return t, nil
}

// find is use for a device that is open already; nil if it is not.
func (ts *transports) find(key transportKey) *transport {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.open[key]
	if t != nil {
		t.users++
	}
	return t
}

// findOrOpen opens a device, unless somebody else just has: none is opened twice.
func (ts *transports) findOrOpen(ctx context.Context, key transportKey) (*transport, error) {
	select {
	case ts.opening <- struct{}{}:
		defer func() { <-ts.opening }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if t := ts.find(key); t != nil {
		return t, nil
	}
	t, err := ts.c.openTransport(ctx, key)
	if err != nil {
		return nil, err
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t.users++
	ts.open[key] = t
	return t, nil
}

// leave ends one use.
func (ts *transports) leave(t *transport) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t.users--
	ts.closeIdleLocked(t)
}

// retire takes a transport out of service on which nothing can be made any
// more: the device has been removed, say. The next connection opens it anew.
func (ts *transports) retire(t *transport) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t.retired {
		return
	}
	t.retired = true
	delete(ts.open, t.key)
	ts.closeIdleLocked(t)
}

func (ts *transports) closeIdleLocked(t *transport) {
	if t.users > 0 || !t.retired {
		return
	}
	ts.closing.Go(func() {
		if err := t.close(errLost); err != nil {
			ts.c.log.Warn("closing a device", "device", t.dev.Name(), "err", err)
		}
	})
}

// trim gives back what transports other than t keep for later: t is in use now.
func (ts *transports) trim(t *transport) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, other := range ts.open {
		if other != t {
			other.users++
			ts.closing.Go(func() {
				other.buffers.trim()
				other.staging.trim()
				ts.leave(other)
			})
		}
	}
}

// close closes all. No session may be left.
func (ts *transports) close() error {
	ts.closing.Wait()
	ts.mu.Lock()
	open := slices.Collect(maps.Values(ts.open))
	clear(ts.open)
	ts.mu.Unlock()
	var errs []error
	for _, t := range open {
		errs = append(errs, t.close(ErrClosed))
	}
	return errors.Join(errs...)
}

// usage sums up the registered bytes of all transports.
func (ts *transports) usage() (buffers, staging, quarantined int64) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, t := range ts.open {
		b, q1 := t.buffers.usage()
		s, q2 := t.staging.usage()
		buffers, staging, quarantined = buffers+b, staging+s, quarantined+q1+q2
	}
	return buffers, staging, quarantined
}

// openTransport opens a device.
func (c *peer) openTransport(ctx context.Context, key transportKey) (_ *transport, err error) {
	t := &transport{key: key, maxQuarantine: c.cfg.BufferBytes / 4}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close(ErrClosed))
		}
	}()
	if t.dev, err = c.cfg.Fabrics[key.fabric].Open(ctx, key.device); err != nil {
		return nil, err
	}
	attr := t.dev.Attr()
	t.reason = attr.Reason
	// What the processors of the two ends do: not what RequireRDMA asks for.
	mapped := attr.Caps.Has(rdma.CapMapped)
	t.software = mapped || attr.Caps.Has(rdma.CapDiesWithProcess)
	// The queues must hold every READ and every request at once.
	slots := c.cfg.MaxInflight + 1
	t.maxReads = min(c.cfg.MaxReads, attr.MaxQPWR-slots, attr.MaxCQE-2*slots-spareReceives)
	if t.maxReads < minReads {
		return nil, fmt.Errorf("%w: device %s takes %d work requests and %d completions: %d requests in flight leave too few for READs",
			ErrConfig, t.dev.Name(), attr.MaxQPWR, attr.MaxCQE, c.cfg.MaxInflight)
	}
	if t.pd, err = t.dev.AllocPD(); err != nil {
		return nil, err
	}
	sink := rdma.AccessLocalWrite
	if attr.Caps.Has(rdma.CapReadSinkWrite) {
		// The device asks for it of the memory that its own READs fill. The QP
		// never grants it, so the server can use it for nothing else; and what
		// lies there is what the server has sent us anyway.
		sink |= rdma.AccessRemoteWrite
	}
	t.buffers = newBufferPool(t.pd, sink, c.memKind, "client reads", 512, readWindow, c.cfg.BufferBytes)
	t.staging = newBufferPool(t.pd, rdma.AccessRemoteRead, c.memKind, "client puts", minBlock, layout.MaxValueLen, c.cfg.StagingBytes)
	t.staging.shared = mapped // the server copies from there itself
	c.log.Info("device opened", "fabric", attr.Fabric, "device", t.dev.Name(), "why", attr.Reason)
	return t, nil
}

// close gives back what openTransport took, as far as it came, in reverse.
func (t *transport) close(why error) error {
	var errs []error
	for _, m := range t.messages {
		errs = append(errs, m.close())
	}
	errs = append(errs, t.owned.close())
	for _, pool := range []*bufferPool{t.buffers, t.staging} {
		if pool != nil {
			errs = append(errs, pool.close(why))
		}
	}
	if t.pd != nil {
		errs = append(errs, t.pd.Close())
	}
	if t.dev != nil {
		errs = append(errs, t.dev.Close())
	}
	return errors.Join(errs...)
}

// takeMessages returns message memory of size bytes, which is the same for every
// session of a client.
func (ts *transports) takeMessages(t *transport, size int) (messages, error) {
	ts.mu.Lock()
	if n := len(t.messages); n > 0 {
		m := t.messages[n-1]
		t.messages = t.messages[:n-1]
		ts.mu.Unlock()
		return m, nil
	}
	ts.mu.Unlock()
	mem, err := memory.Alloc(size, memory.Options{Kind: ts.c.memKind, Tag: "client messages"})
	if err != nil {
		return messages{}, err
	}
	mr, err := t.pd.RegMR(mem.Bytes()[:size], rdma.AccessLocalWrite)
	if err != nil {
		return messages{}, errors.Join(err, mem.Free())
	}
	return messages{mem, mr}, nil
}

// putMessages takes it back from a session whose QP is closed.
func (ts *transports) putMessages(t *transport, m messages) error {
	ts.mu.Lock()
	if !t.retired && len(t.messages) < spareMessages {
		t.messages = append(t.messages, m)
		ts.mu.Unlock()
		return nil
	}
	ts.mu.Unlock()
	return m.close()
}
