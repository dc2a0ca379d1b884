package perf

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// passive is one test seen from the server.
type passive struct {
	*Server
	*end
	test *Test
	data *region
	h    hello
	recv int // receives granted
	got  result
}

// run accepts the connection and does the test that the client asks for.
func (p *passive) run(ctx context.Context, req rdma.ConnRequest) error {
	setup, cancel := context.WithTimeoutCause(ctx, p.limits.Setup, fmt.Errorf("%w: no Hello within %v", rdma.ErrDeadline, p.limits.Setup))
	defer cancel()
	if err := p.postReceives(1, controlSize); err != nil {
		_ = req.Reject(nil)
		return err
	}
	if _, err := req.Accept(setup, p.qp, rdma.ConnParams{}); err != nil {
		return err
	}
	wc, err := p.next(setup)
	if err != nil {
		return err
	}
	if wc.ID&idKind != idRecv {
		return fmt.Errorf("%w: completion %#x", errType, wc.ID)
	}
	if p.h, err = parseHello(p.received(wc)); err != nil {
		return errors.Join(err, p.refuse(ctx, err.Error()))
	}
	p.test.Name, p.test.Size = p.params().Name(), int(p.h.Size)
	if reason := p.objection(); reason != "" {
		return errors.Join(fmt.Errorf("refused: %s", reason), p.refuse(ctx, reason))
	}
	if err := p.prepare(); err != nil {
		return errors.Join(err, p.refuse(ctx, err.Error()))
	}
	if err := p.measured(ctx); err != nil {
		return err
	}
	p.test.Messages = p.got.Messages
	// The rights end with the test, before the client is told that it has
	// ended.
	if err := p.qp.SetAccess(0); err != nil {
		return err
	}
	if err := p.send(ctx, p.got.append); err != nil {
		return err
	}
	p.farewell(ctx)
	return nil
}

func (p *passive) params() Params { return Params{Op: p.h.Op, Kind: p.h.Kind, Size: int(p.h.Size)} }

// objection says which limit a Hello passes; empty if none.
func (p *passive) objection() string {
	switch h, l := p.h, p.limits; {
	case int(h.Size) > l.MaxSize:
		return fmt.Sprintf("messages of %d bytes; this server takes %d", h.Size, l.MaxSize)
	case int(h.Depth) > l.MaxDepth:
		return fmt.Sprintf("%d messages in flight; this server takes %d", h.Depth, l.MaxDepth)
	case h.Time > uint64(l.MaxTime):
		return fmt.Sprintf("a test of %v; this server takes %v", time.Duration(h.Time), l.MaxTime)
	}
	if err := p.params().capable(p.attr); err != nil {
		return err.Error()
	}
	return ""
}

// refuse tells the client why there will be no test.
func (p *passive) refuse(ctx context.Context, reason string) error {
	if err := p.send(ctx, ready{Status: statusRefused, Reason: reason}.append); err != nil {
		return err
	}
	p.farewell(ctx)
	return nil
}

// farewell gives the client time to read the last message and to disconnect.
func (p *passive) farewell(ctx context.Context) {
	timer := time.NewTimer(2 * time.Second)
	defer timer.Stop()
	select {
	case <-p.qp.Done():
	case <-timer.C:
	case <-ctx.Done():
	}
}

// receiveBudget bounds the memory of receives in bytes, unless four messages
// are larger.
const receiveBudget = 16 << 20

// prepare registers the scratch buffer and posts the receives.
func (p *passive) prepare() (err error) {
	access := rdma.AccessLocalWrite
	switch p.h.Op {
	case Read:
		access |= rdma.AccessRemoteRead
	case Write:
		access |= rdma.AccessRemoteWrite
	}
	size, slotSize := int(p.h.Size), controlSize
	p.recv = 4
	if p.h.Op == Send {
		slotSize = stride(max(size, controlSize))
		if p.h.Kind == Bandwidth {
			p.recv = max(4, min(2*int(p.h.Depth), maxReceives, receiveBudget/slotSize, p.attr.MaxQPWR-2))
		}
	}
	if p.h.Op != Send || p.h.Kind == Latency { // send_bw uses nothing but receives
		n := slots(size, int(p.h.Depth))
		if p.data, err = p.region(n*stride(size), access); err != nil {
			return err
		}
	}
	return p.postReceives(p.recv+2, slotSize) // two more: a Done and one in reserve
}

// measured sends the Ready and plays the server's part until Done has come.
func (p *passive) measured(ctx context.Context) error {
	answer := ready{Receives: uint32(p.recv)}
	var grant rdma.Access
	switch p.h.Op {
	case Read:
		grant = rdma.AccessRemoteRead
	case Write:
		grant = rdma.AccessRemoteWrite
	}
	if grant != 0 {
		answer.Addr, answer.RKey, answer.Length = p.data.mr.Addr(), p.data.mr.RKey(), uint32(p.data.mr.Len())
		if err := p.qp.SetAccess(grant); err != nil {
			return err
		}
	}
	// The server sleeps unless it takes part.
	part := p.bystand
	switch {
	case p.h.Op == Write && p.h.Kind == Latency:
		part, p.events = p.pongWrite, false
	case p.h.Op == Send && p.h.Kind == Latency:
		part, p.events = p.pongSend, p.h.Events
	case p.h.Op == Send:
		part, p.events = p.sink, p.h.Events
	}
	if err := p.send(ctx, answer.append); err != nil {
		return err
	}
	if p.h.Op == Send || p.h.Kind == Latency && p.h.Op == Write {
		var stop func()
		ctx, stop = p.watch(ctx, p.limits.Idle)
		defer stop()
	}
	return part(ctx)
}

// bystand waits for the Done of a test in which the server takes no part.
func (p *passive) bystand(ctx context.Context) error {
	wc, err := p.next(ctx)
	if err != nil {
		return err
	}
	_, err = p.arrived(wc)
	return err
}

// arrived looks at a completed receive: payload, or the Done.
func (p *passive) arrived(wc rdma.WC) (done bool, err error) {
	if wc.ID&idKind != idRecv {
		return false, fmt.Errorf("%w: completion %#x", errType, wc.ID)
	}
	msg := p.received(wc)
	if typeOf(msg) == 0 && p.h.Op == Send {
		if wc.ByteLen != p.h.Size {
			return false, fmt.Errorf("%w: %d bytes, the test has %d", errRange, wc.ByteLen, p.h.Size)
		}
		p.got.Messages++
		p.got.Bytes += uint64(wc.ByteLen)
		return false, p.repost(wc)
	}
	_, err = parseCount(msg, typeDone)
	return err == nil, err
}

// sink takes the SENDs of a send_bw and gives receives back in quarters.
func (p *passive) sink(ctx context.Context) error {
	quarter := uint64(p.recv+3) / 4
	told := uint64(0)
	for {
		wc, err := p.next(ctx)
		if err != nil {
			return err
		}
		done, err := p.arrived(wc)
		if done || err != nil {
			return err
		}
		if n := p.got.Messages; n-told >= quarter {
			told = n
			if err := p.send(ctx, func(dst []byte) []byte { return appendCount(dst, typeCredit, n) }); err != nil {
				return err
			}
		}
	}
}

// pong is the request that answers: a SEND, or a WRITE into the client's
// buffer.
func (p *passive) pong(op rdma.Opcode) rdma.SendWR {
	size := int(p.h.Size)
	wr := rdma.SendWR{ID: idData, Op: op, Flags: rdma.SendSignaled}
	if op == rdma.OpRDMAWrite {
		wr.Remote = rdma.RemoteAddr{Addr: p.h.Addr, RKey: p.h.RKey}
	}
	if size <= p.inline {
		wr.Flags |= rdma.SendInline
		wr.Inline = p.data.bytes()[:size]
	} else {
		wr.SGL = []rdma.SGE{{MR: p.data.mr, Len: uint32(size)}}
	}
	return wr
}

// pongSend answers each SEND with one.
func (p *passive) pongSend(ctx context.Context) error {
	wrs := []rdma.SendWR{p.pong(rdma.OpSend)}
	open := 0 // pongs not yet completed
	for {
		wc, err := p.next(ctx)
		if err != nil {
			return err
		}
		if wc.ID&idKind == idData {
			open--
			continue
		}
		done, err := p.arrived(wc)
		if done || err != nil {
			return err
		}
		if open >= controlSlots {
			return fmt.Errorf("%w: %d pings before the pong", errRange, open)
		}
		if err := p.post(wrs); err != nil {
			return err
		}
		open++
	}
}

// pongWrite answers each WRITE, seen in memory, with one. It sends what has
// come, of which the mark is the last byte.
func (p *passive) pongWrite(ctx context.Context) error {
	wrs := []rdma.SendWR{p.pong(rdma.OpRDMAWrite)}
	for n := uint64(1); ; n++ {
		err := p.see(ctx, p.data, int(p.h.Size), markOf(n))
		if errors.Is(err, errInterrupted) {
			return p.bystand(ctx) // no more pings: the Done, or the end
		}
		if err != nil {
			return err
		}
		if err := p.post(wrs); err != nil {
			return err
		}
		p.got.Messages++
		p.got.Bytes += uint64(p.h.Size)
		wc, err := p.next(ctx)
		if err != nil {
			return err
		}
		if wc.ID&idKind != idData {
			// The Done has overtaken the completion of the last pong.
			_, err = p.arrived(wc)
			return err
		}
	}
}
