package perf

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// latency measures one message at a time.
func (c *client) latency(ctx context.Context, res *Result) error {
	turn := c.readTurn
	switch c.Op {
	case Write:
		turn = c.writeTurn
	case Send:
		turn = c.sendTurn
	}
	for range c.Warmup {
		if err := turn(ctx); err != nil {
			return fmt.Errorf("%s, warm-up: %w", c.Name(), err)
		}
	}
	rec := newRecorder(c.Params)
	begin := time.Now()
	last := begin
	for res.Iterations = 0; ; {
		if err := turn(ctx); err != nil {
			return fmt.Errorf("%s after %d messages: %w", c.Name(), res.Iterations, err)
		}
		now := time.Now()
		res.Iterations++
		if rec.add(now.Sub(last)) {
			c.count(res.Iterations)
			now = time.Now()
		}
		last = now
		if c.Duration > 0 && now.Sub(begin) >= c.Duration || c.Duration == 0 && res.Iterations >= c.Iterations {
			break
		}
	}
	res.Seconds = last.Sub(begin).Seconds()
	res.Latency = rec.spread()
	return c.finish(ctx)
}

// readTurn is one READ.
func (c *client) readTurn(ctx context.Context) error {
	c.message(0, c.sent, rdma.SendSignaled)
	c.sent++
	if err := c.post(c.wrs[:1]); err != nil {
		return err
	}
	_, err := c.next(ctx)
	return err
}

// sendTurn is a ping and its pong.
func (c *client) sendTurn(ctx context.Context) error {
	c.message(0, c.sent, rdma.SendSignaled)
	c.sent++
	if err := c.post(c.wrs[:1]); err != nil {
		return err
	}
	var completed, pong bool
	for !completed || !pong {
		wc, err := c.next(ctx)
		if err != nil {
			return err
		}
		if wc.ID&idKind != idRecv {
			completed = true
			continue
		}
		if typeOf(c.received(wc)) != 0 || wc.ByteLen != uint32(c.Size) {
			return fmt.Errorf("%w: a pong of %d bytes, want %d", errType, wc.ByteLen, c.Size)
		}
		pong = true
		if err := c.repost(wc); err != nil {
			return err
		}
	}
	return nil
}

// writeTurn is a ping and its pong by WRITE. As in ib_write_lat the last byte
// of the buffer counts, and each end looks at its memory until it has changed.
func (c *client) writeTurn(ctx context.Context) error {
	c.sent++
	mark := markOf(c.sent)
	c.data.bytes()[stride(c.Size)+c.Size-1] = mark
	c.message(0, 0, rdma.SendSignaled)
	if err := c.post(c.wrs[:1]); err != nil {
		return err
	}
	if _, err := c.next(ctx); err != nil {
		return err
	}
	err := c.see(ctx, c.data, c.Size, mark)
	if errors.Is(err, errInterrupted) {
		if _, why := c.next(ctx); why != nil {
			return why
		}
	}
	return err
}

// markOf is the byte that ends message n of a write_lat, n from 1. It always
// differs from the byte that was there before.
func markOf(n uint64) byte { return byte(n%255) + 1 }

// see looks at the last byte of size bytes of a region until it is mark.
func (e *end) see(ctx context.Context, r *region, size int, mark byte) error {
	for i := 1; lastByte(r.bytes(), size) != mark; i++ {
		if e.soft {
			rest(ctx, i)
		}
		if i%256 != 0 {
			continue
		}
		// A peer that dies shows in the CQ: the receives are flushed.
		if err := e.look(); err != nil {
			return err
		}
		if e.head < e.tail {
			return errInterrupted
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	e.moves.Store(e.moves.Load() + 1)
	return nil
}

// rest leaves the processor to the fabric after look number i at the memory:
// for a moment at first, then for longer, so that the runtime serves the
// network. It ends with ctx.
func rest(ctx context.Context, i int) {
	if i%16 != 0 {
		runtime.Gosched()
		return
	}
	timer := time.NewTimer(10 * time.Microsecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// errInterrupted: a completion came instead of a WRITE.
var errInterrupted = fmt.Errorf("%w: a completion instead of the other end's WRITE", rdma.ErrProtocol)

// lastByte reads the last of size bytes that a NIC may be writing.
func lastByte(b []byte, size int) byte {
	var word [8]byte
	at := (size - 1) &^ 7
	mem.LoadWords(word[:], b[at:at+8])
	return word[(size-1)&7]
}
