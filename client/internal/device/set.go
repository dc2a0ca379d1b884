package device

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/rdmakv/rdmakv/client/internal/base"
)

// A Key names a device: a fabric by its index in Config.Fabrics, and
// a device as Fabric.Open takes it.
type Key struct {
	Fabric int
	Name   string
}

// A Set is all devices that a peer has open. Safe for concurrent use.
type Set struct {
	cfg     *base.Config
	heap    bool // memory comes from Go's heap (world.World)
	log     *slog.Logger
	opening chan struct{} // cap 1: held by the goroutine that opens a device

	mu      sync.Mutex
	open    map[Key]*Device
	closing sync.WaitGroup // of retired ones
}

// NewSet is a Set that has nothing open yet. heap has registered memory come from Go's
// heap, where the race detector sees what a software fabric does with it.
func NewSet(cfg *base.Config, heap bool) *Set {
	return &Set{cfg: cfg, heap: heap, log: cfg.Logger, opening: make(chan struct{}, 1), open: make(map[Key]*Device)}
}

// errSoftware: Config.RequireRDMA forbids the fabric.
var errSoftware = errors.New("it is done in software, and RequireRDMA is set")

// Use returns a device and opens it if need be. The caller calls Leave when it is
// done with it.
func (ts *Set) Use(ctx context.Context, key Key) (*Device, error) {
	t := ts.find(key) // without waiting for a device that does not let itself be opened
	if t == nil {
		var err error
		if t, err = ts.findOrOpen(ctx, key); err != nil {
			return nil, err
		}
	}
	if t.Software && ts.cfg.RequireRDMA {
		ts.Leave(t)
		return nil, errSoftware
	}
	return t, nil
}

// find is use for a device that is open already; nil if it is not.
func (ts *Set) find(key Key) *Device {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.open[key]
	if t != nil {
		t.users++
	}
	return t
}

// findOrOpen opens a device, unless another attempt just has: none is opened twice.
func (ts *Set) findOrOpen(ctx context.Context, key Key) (*Device, error) {
	select {
	case ts.opening <- struct{}{}:
		defer func() { <-ts.opening }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if t := ts.find(key); t != nil {
		return t, nil
	}
	t, err := ts.openDevice(ctx, key)
	if err != nil {
		return nil, err
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t.users++
	ts.open[key] = t
	return t, nil
}

// Leave ends one use.
func (ts *Set) Leave(t *Device) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t.users--
	ts.closeIdleLocked(t)
}

// Retire takes a device out of service on which nothing can be made any
// more: the device has been removed, say. The next connection opens it anew.
func (ts *Set) Retire(t *Device) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t.retired {
		return
	}
	t.retired = true
	delete(ts.open, t.key)
	ts.closeIdleLocked(t)
}

func (ts *Set) closeIdleLocked(t *Device) {
	if t.users > 0 || !t.retired {
		return
	}
	ts.closing.Go(func() {
		if err := t.close(base.ErrLost); err != nil {
			ts.log.Warn("closing a device", "device", t.Dev.Name(), "err", err)
		}
	})
}

// Trim gives back what devices other than t keep for later: t is in use now.
func (ts *Set) Trim(t *Device) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, other := range ts.open {
		if other != t {
			other.users++
			ts.closing.Go(func() {
				other.Buffers.Trim()
				other.Staging.Trim()
				ts.Leave(other)
			})
		}
	}
}

// Close closes all. No session may be left.
func (ts *Set) Close() error {
	ts.closing.Wait()
	ts.mu.Lock()
	open := slices.Collect(maps.Values(ts.open))
	clear(ts.open)
	ts.mu.Unlock()
	var errs []error
	for _, t := range open {
		errs = append(errs, t.close(base.ErrClosed))
	}
	return errors.Join(errs...)
}

// Usage sums up the registered bytes of all devices.
func (ts *Set) Usage() (buffers, staging, quarantined int64) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, t := range ts.open {
		b, s := t.Buffers.Usage(), t.Staging.Usage()
		buffers, staging, quarantined = buffers+b.Bytes, staging+s.Bytes, quarantined+b.Quarantined+s.Quarantined
	}
	return buffers, staging, quarantined
}

// Devices are those that are open now.
func (ts *Set) Devices() []*Device {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return slices.Collect(maps.Values(ts.open))
}
