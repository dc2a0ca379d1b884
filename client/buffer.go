package client

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/internal/memory"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store/layout"
)

// ErrBufferBusy: a Buffer is used by another call, or by a connection that a call
// has given up on, or it was freed.
var ErrBufferBusy = errors.New("the buffer is in use")

// A Buffer is memory for values that is registered with the devices of its
// Client, once: a large value that is put from it is READ by the server where it
// stands, and one that is got into it is READ to where it stays. With plain
// slices each of these is one copy more.
//
//	buf, err := c.NewBuffer(8 << 20)
//	defer buf.Free()
//	n, err := io.ReadFull(file, buf.Bytes())
//	version, err := c.PutBuffer(ctx, key, buf, n, client.PutOptions{})
//
// The memory is the caller's to read and write between calls. During a call it
// belongs to the library, and after one that failed with ErrOutcomeUnknown,
// ErrTimeout or the error of its context until Busy says no: the server may READ
// the value still, or an answer may still arrive. (Who writes to it before that
// spoils at most that put: the server stores only what the checksum of the call
// fits.) A call with a Buffer that is in use fails with ErrBufferBusy.
//
// All Buffers of a Client together have at most Config.StagingBytes for each
// server. Free gives the memory back, as soon as nothing uses it. A Buffer is of
// no use with another Client.
type Buffer struct {
	c    *Client
	size int
	mem  *memory.Block

	// uses counts who may still reach the memory: the caller until Free, a call,
	// requests whose value stands there, READs into it. The last one frees it.
	uses      atomic.Int64
	abandoned atomic.Int64 // READs into it that were given up on, ever
	freed     atomic.Bool

	mu sync.Mutex
	at []*transport // where it is registered
}

// bufferSlack is what a Buffer has behind its end: READs are of whole words.
const bufferSlack = 8

// NewBuffer returns a Buffer of size bytes, 1 to 64 MiB. It fails with
// ErrTooLarge, with ErrOverloaded if all Buffers together would pass
// Config.StagingBytes, and with ErrClosed.
func (c *Client) NewBuffer(size int) (*Buffer, error) {
	if size < 1 || size > layout.MaxValueLen {
		return nil, c.fail("new-buffer", nil, fmt.Errorf("%w: a buffer of %d bytes, must be 1 to %d", ErrTooLarge, size, layout.MaxValueLen))
	}
	cfg := c.config()
	if limit := cfg.StagingBytes; c.bufferBytes.Add(int64(size)) > limit {
		c.bufferBytes.Add(-int64(size))
		return nil, c.fail("new-buffer", nil, fmt.Errorf("%w: the buffers of a client may have %d bytes together (StagingBytes)", ErrOverloaded, limit))
	}
	// For any device. A server maps what it is to READ only if all pages are there.
	linux := runtime.GOOS == "linux"
	opt := memory.Options{Kind: memory.Mmap, Shared: linux, Prefault: linux, Tag: "client buffers"}
	if cfg.HeapMemory {
		opt.Kind, opt.Shared, opt.Prefault = memory.Heap, false, false
	}
	mem, err := memory.Alloc(size+bufferSlack, opt)
	if err != nil {
		c.bufferBytes.Add(-int64(size))
		return nil, c.fail("new-buffer", nil, because(ErrOverloaded, err))
	}
	b := &Buffer{c: c, size: size, mem: mem}
	b.uses.Store(1)
	return b, nil
}

// config is what the client was made with.
func (c *Client) config() *Config {
	if c.solo != nil {
		return &c.solo.cfg
	}
	return &c.fleet.cfg
}

// Bytes is the memory, of the size that was asked for. It must not be touched
// after Free.
func (b *Buffer) Bytes() []byte { return b.mem.Bytes()[:b.size:b.size] }

// Busy reports whether a call uses the memory, or a request or READ of one that
// was given up on.
func (b *Buffer) Busy() bool { return b.freed.Load() || b.uses.Load() > 1 }

// Free gives the memory back. Freeing twice is harmless; no call may be under way.
func (b *Buffer) Free() {
	if !b.freed.Swap(true) {
		b.unuse()
	}
}

// PutBuffer stores the first n bytes of b under key, as PutWith does with a slice.
// It fails as PutWith does, and with ErrBufferBusy.
func (c *Client) PutBuffer(ctx context.Context, key []byte, b *Buffer, n int, opts PutOptions) (version uint64, err error) {
	if err := b.begin(c); err != nil {
		return 0, c.fail("put", key, err)
	}
	defer b.unuse()
	if n < 0 || n > b.size {
		return 0, c.fail("put", key, fmt.Errorf("%w: %d bytes of a buffer of %d", ErrRange, n, b.size))
	}
	w, err := newPut(key, b.Bytes()[:n], opts)
	if err != nil {
		return 0, c.fail("put", key, err)
	}
	w.own = b
	err = c.writeKey(ctx, "put", &w)
	return w.reply.Version, err
}

// GetBuffer reads the value of key into b, from its beginning, and returns it: a
// part of b.Bytes(). A value that does not fit is ErrTooLarge; then, as after
// every error, what b holds is undefined. Otherwise it fails as Get does, and with
// ErrBufferBusy.
func (c *Client) GetBuffer(ctx context.Context, key []byte, b *Buffer) ([]byte, error) {
	if err := b.begin(c); err != nil {
		return nil, c.fail("get", key, err)
	}
	defer b.unuse()
	before := b.abandoned.Load()
	w := want{n: -1, dst: b.Bytes()[:0], sink: b}
	if err := c.get(ctx, "get", key, &w); err != nil {
		return nil, err
	}
	switch {
	case len(w.dst) > b.size:
		return nil, c.fail("get", key, b.tooSmall(int64(len(w.dst))))
	case b.abandoned.Load() != before:
		// A READ of a connection that broke may have come later than what was
		// verified.
		return nil, c.fail("get", key, fmt.Errorf("%w: a READ into the buffer was given up on", ErrUnavailable))
	}
	return w.dst, nil
}

// begin takes b for a call.
func (b *Buffer) begin(c *Client) error {
	if b.c != c {
		return fmt.Errorf("%w: a buffer of another client", ErrOptions)
	}
	if b.freed.Load() || !b.uses.CompareAndSwap(1, 2) {
		return ErrBufferBusy
	}
	return nil
}

// takes says whether a value of n bytes fits.
func (b *Buffer) takes(n int64) bool { return n <= int64(b.size) }

func (b *Buffer) tooSmall(n int64) error {
	return fmt.Errorf("%w: a value of %d bytes in a buffer of %d", ErrTooLarge, n, b.size)
}

func (b *Buffer) use() { b.uses.Add(1) }

// unuse ends one use; the last one ends the registrations and frees the memory.
func (b *Buffer) unuse() {
	if b.uses.Add(-1) > 0 {
		return
	}
	// Whoever polls may have been the last; deregistering can take long.
	go b.destroy()
}

func (b *Buffer) destroy() {
	b.mu.Lock()
	at := b.at
	b.at = nil
	b.mu.Unlock()
	kept := false
	for _, t := range at {
		kept = t.owned.drop(b) != nil || kept
	}
	if !kept { // else a NIC may still write to it: it is left on purpose
		_ = b.mem.Free()
	}
	b.c.bufferBytes.Add(-int64(b.size))
}

// on is b as registered memory of t, which it becomes with the first call.
func (b *Buffer) on(t *transport) (*buffer, error) {
	buf, fresh, err := t.owned.take(t, b)
	if fresh {
		b.mu.Lock()
		if !slices.Contains(b.at, t) {
			b.at = append(b.at, t)
		}
		b.mu.Unlock()
	}
	return buf, err
}

// ownedBuffers are the Buffers that are registered with one transport.
type ownedBuffers struct {
	mu     sync.Mutex
	bufs   map[*Buffer]*buffer
	closed bool
}

// take returns b's registration; fresh if it is a new one.
func (o *ownedBuffers) take(t *transport, b *Buffer) (buf *buffer, fresh bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if buf := o.bufs[b]; buf != nil {
		return buf, false, nil
	}
	if o.closed {
		return nil, false, errLost
	}
	mem := b.mem.Bytes()[:b.size+bufferSlack]
	mr, err := t.pd.RegMR(mem, t.buffers.access|rdma.AccessRemoteRead)
	if err != nil {
		return nil, false, growthError(err)
	}
	buf = &buffer{block: &bufferBlock{mem: b.mem, mr: mr, owner: b}, mem: mem}
	if o.bufs == nil {
		o.bufs = make(map[*Buffer]*buffer)
	}
	o.bufs[b] = buf
	return buf, true, nil
}

// drop ends b's registration.
func (o *ownedBuffers) drop(b *Buffer) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	buf := o.bufs[b]
	if buf == nil {
		return nil
	}
	delete(o.bufs, b)
	return buf.block.mr.Close()
}

// close ends all. No QP of the transport is left.
func (o *ownedBuffers) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	var errs []error
	for b, buf := range o.bufs {
		if err := buf.block.mr.Close(); err != nil {
			errs = append(errs, err) // drop will meet it, too
			continue
		}
		delete(o.bufs, b)
	}
	return errors.Join(errs...)
}

// room gets the place into which a window of chunks is READ: that from offset at on
// of the caller's Buffer, if he has one, else a buffer of the pool, which post sees
// to. Without must it waits for nothing and says false where it would have to.
func (b *batch) room(p *patience, w *want, at int, must bool) (ok bool, err error) {
	if w.sink == nil {
		return must || b.reserve(), nil
	}
	buf, err := w.sink.on(b.s.t)
	if err != nil {
		return false, err
	}
	if must {
		if err := p.enter(b.s.reads, len(b.wrs)); err != nil {
			return false, err
		}
	} else if !b.s.reads.tryEnter(len(b.wrs)) {
		return false, nil
	}
	w.sink.use()
	b.buf = buf
	for i := range b.at {
		b.at[i] += at
	}
	return true, nil
}
