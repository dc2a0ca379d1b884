package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/client/internal/device"
	"github.com/rdmakv/rdmakv/client/internal/read"
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
//	version, err := buf.Put(ctx, key, n, client.PutOptions{})
//
// The memory is the caller's to read and write between calls. During a call it
// belongs to the library, and after one that failed with ErrOutcomeUnknown,
// ErrTimeout or the error of its context until Busy says no: the server may READ
// the value still, or an answer may still arrive. (A program that writes to it before
// that spoils at most that put: the server stores only what the checksum of the call
// fits.) A call with a Buffer that is in use fails with ErrBufferBusy.
//
// All Buffers of a Client together have at most Config.StagingBytes for each
// server. Free gives the memory back, as soon as nothing uses it. Put and Get are
// calls of the Client that has made the Buffer.
type Buffer struct {
	c   *Client
	mem *device.Owned
}

// NewBuffer returns a Buffer of size bytes, 1 to 64 MiB. It fails with
// ErrTooLarge, with ErrOverloaded if all Buffers together would pass
// Config.StagingBytes, and with ErrClosed.
func (c *Client) NewBuffer(size int) (*Buffer, error) {
	if size < 1 || size > layout.MaxValueLen {
		return nil, c.fail("new-buffer", nil, fmt.Errorf("%w: a buffer of %d bytes, must be 1 to %d", ErrTooLarge, size, layout.MaxValueLen))
	}
	if limit := c.rt().Config().StagingBytes; c.rt().BufferBytes().Add(int64(size)) > limit {
		c.rt().BufferBytes().Add(-int64(size))
		return nil, c.fail("new-buffer", nil, fmt.Errorf("%w: the buffers of a client may have %d bytes together (StagingBytes)", ErrOverloaded, limit))
	}
	mem, err := device.NewOwned(size, c.rt().World().Heap, func() { c.rt().BufferBytes().Add(-int64(size)) })
	if err != nil {
		c.rt().BufferBytes().Add(-int64(size))
		return nil, c.fail("new-buffer", nil, err)
	}
	return &Buffer{c: c, mem: mem}, nil
}

// Bytes is the memory, of the size that was asked for. It must not be touched
// after Free.
func (b *Buffer) Bytes() []byte { return b.mem.Bytes() }

// Busy reports whether a call uses the memory, or a request or READ of one that
// was given up on.
func (b *Buffer) Busy() bool { return b.mem.Busy() }

// Free gives the memory back. Freeing twice is harmless; no call may be under way.
func (b *Buffer) Free() { b.mem.Free() }

// Put stores the first n bytes of b under key, as Client.PutWith does with a slice.
// It fails as PutWith does, and with ErrBufferBusy.
func (b *Buffer) Put(ctx context.Context, key []byte, n int, opts PutOptions) (version uint64, err error) {
	c := b.c
	if !b.mem.Begin() {
		return 0, c.fail("put", key, ErrBufferBusy)
	}
	defer b.mem.Unuse()
	if n < 0 || n > b.mem.Size() {
		return 0, c.fail("put", key, fmt.Errorf("%w: %d bytes of a buffer of %d", ErrRange, n, b.mem.Size()))
	}
	w, err := putOf(key, b.Bytes()[:n], opts)
	if err != nil {
		return 0, c.fail("put", key, err)
	}
	w.From(b.mem)
	err = c.writeKey(ctx, "put", &w)
	return w.Reply.Version, err
}

// Get reads the value of key into b, from its beginning, and returns it: a part
// of b.Bytes(). A value that does not fit is ErrTooLarge; then, as after
// every error, what b holds is undefined. Otherwise it fails as Client.Get does,
// and with ErrBufferBusy.
func (b *Buffer) Get(ctx context.Context, key []byte) ([]byte, error) {
	c := b.c
	if !b.mem.Begin() {
		return nil, c.fail("get", key, ErrBufferBusy)
	}
	defer b.mem.Unuse()
	before := b.mem.GivenUp()
	w := read.Query{N: -1, Dst: b.Bytes()[:0], Sink: b.mem}
	if err := c.get(ctx, "get", key, &w); err != nil {
		return nil, err
	}
	switch {
	case len(w.Dst) > b.mem.Size():
		return nil, c.fail("get", key, b.mem.TooSmall(int64(len(w.Dst))))
	case b.mem.GivenUp() != before:
		// A READ of a connection that broke may have come later than what was
		// verified.
		return nil, c.fail("get", key, fmt.Errorf("%w: a READ into the buffer was given up on", ErrUnavailable))
	}
	return w.Dst, nil
}
