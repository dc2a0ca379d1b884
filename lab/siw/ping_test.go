package siw_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// The protocol of rping(1) of librdmacm, spoken over the rdma interface so that
// either end can be any fabric and the other the C program. One iteration:
//
//	client                              server
//	  SEND {source buffer}      ──▶
//	                            ◀──     RDMA READ of the source
//	                            ◀──     SEND (go ahead; contents ignored)
//	  SEND {sink buffer}        ──▶
//	                            ◀──     RDMA WRITE of what was read
//	                            ◀──     SEND (go ahead)
//	  compare source and sink
//
// A message has 16 bytes in network byte order:
//
//	┌──────────────────┬──────────┬──────────┐
//	│ address 64       │ rkey 32  │ size 32  │
//	└──────────────────┴──────────┴──────────┘
const (
	pingAddrOff = 0
	pingRKeyOff = pingAddrOff + 8
	pingSizeOff = pingRKeyOff + 4
	pingLen     = pingSizeOff + 4

	// pingMaxSize bounds the data of one iteration in bytes: rping's own limit.
	pingMaxSize = 64<<10 - 1
	// pingMinSize leaves room for the text that the C program writes first.
	pingMinSize = 32

	pingQueue   = 16 // depth of both queues: rping has at most two in flight
	pingReceive = 2  // receives kept posted
)

// Receive IDs count up from pingRecvID, everything else is below.
const (
	pingOpID   = 1
	pingRecvID = 100
)

// A pingEnd is one end of an rping connection. One goroutine uses it.
type pingEnd struct {
	pd    rdma.PD
	cq    rdma.CQ
	qp    rdma.QP
	block *mem.Block
	mrs   []rdma.MR
	send  rdma.MR
	recv  [pingReceive]rdma.MR
	data  []rdma.MR // for the data of iterations

	recvs []int // completed receives that no caller has asked for, by buffer
	done  bool  // the operation under way has completed
}

// newPingEnd makes everything that a connection needs: its own PD, and a data
// buffer of size bytes for each element of access.
func newPingEnd(dev rdma.Device, size int, access ...rdma.Access) (e *pingEnd, err error) {
	e = &pingEnd{}
	defer func() {
		if err != nil {
			_ = e.close()
		}
	}()
	if e.pd, err = dev.AllocPD(); err != nil {
		return nil, err
	}
	if e.cq, err = dev.CreateCQ(2*pingQueue + pingReceive); err != nil {
		return nil, err
	}
	if e.qp, err = e.pd.CreateQP(rdma.QPConfig{SendCQ: e.cq, RecvCQ: e.cq, Cap: rdma.QPCap{MaxSendWR: pingQueue, MaxRecvWR: pingQueue, MaxSGE: 1}}); err != nil {
		return nil, err
	}
	// Each region begins on a page: a kernel provider pins whole pages.
	const page = 4096
	stride := (size + page - 1) / page * page
	messages := 1 + pingReceive
	if e.block, err = mem.Alloc(messages*page+len(access)*stride, mem.Options{Tag: "rping"}); err != nil {
		return nil, err
	}
	at := 0
	reg := func(n, room int, a rdma.Access) (rdma.MR, error) {
		mr, err := e.pd.RegMR(e.block.Bytes()[at:at+n], a)
		at += room
		if err == nil {
			e.mrs = append(e.mrs, mr)
		}
		return mr, err
	}
	if e.send, err = reg(pingLen, page, 0); err != nil {
		return nil, err
	}
	for i := range e.recv {
		if e.recv[i], err = reg(pingLen, page, rdma.AccessLocalWrite); err != nil {
			return nil, err
		}
		if err = e.postRecv(i); err != nil {
			return nil, err
		}
	}
	for _, a := range access {
		mr, err := reg(size, stride, a)
		if err != nil {
			return nil, err
		}
		e.data = append(e.data, mr)
	}
	return e, nil
}

func (e *pingEnd) postRecv(i int) error {
	_, err := e.qp.PostRecv([]rdma.RecvWR{{ID: pingRecvID + uint64(i), SGL: []rdma.SGE{{MR: e.recv[i], Len: pingLen}}}})
	return err
}

// close takes everything apart, last made first.
func (e *pingEnd) close() error {
	var errs []error
	if e.qp != nil {
		errs = append(errs, e.qp.Close())
	}
	for _, mr := range e.mrs {
		errs = append(errs, mr.Close())
	}
	if e.cq != nil {
		errs = append(errs, e.cq.Close())
	}
	if e.pd != nil {
		errs = append(errs, e.pd.Close())
	}
	if e.block != nil {
		errs = append(errs, e.block.Free())
	}
	return errors.Join(errs...)
}

// until takes completions until ok or one of them says that the connection is
// over.
func (e *pingEnd) until(ctx context.Context, ok func() bool) error {
	var wcs [4]rdma.WC
	for !ok() {
		n, err := rdma.Await(ctx, e.cq, wcs[:])
		if err != nil {
			return err
		}
		for _, wc := range wcs[:n] {
			if err := e.take(wc); err != nil {
				return err
			}
		}
	}
	return nil
}

// take notes one completion.
func (e *pingEnd) take(wc rdma.WC) error {
	if err := wc.Status.Err(); err != nil {
		return fmt.Errorf("work request %d: %w", wc.ID, err)
	}
	if wc.ID < pingRecvID {
		e.done = true
		return nil
	}
	if wc.ByteLen != pingLen {
		return fmt.Errorf("rping: a message of %d bytes, want %d", wc.ByteLen, pingLen)
	}
	e.recvs = append(e.recvs, int(wc.ID-pingRecvID))
	return nil
}

// do posts one request and waits for its completion.
func (e *pingEnd) do(ctx context.Context, wr rdma.SendWR) error {
	wr.ID, wr.Flags = pingOpID, rdma.SendSignaled
	e.done = false
	if _, err := e.qp.PostSend([]rdma.SendWR{wr}); err != nil {
		return fmt.Errorf("%v: %w", wr.Op, err)
	}
	if err := e.until(ctx, func() bool { return e.done }); err != nil {
		return fmt.Errorf("%v: %w", wr.Op, err)
	}
	return nil
}

// advertise sends a message that names mr.
func (e *pingEnd) advertise(ctx context.Context, mr rdma.MR) error {
	b := e.send.Bytes()
	binary.BigEndian.PutUint64(b[pingAddrOff:], mr.Addr())
	binary.BigEndian.PutUint32(b[pingRKeyOff:], mr.RKey())
	binary.BigEndian.PutUint32(b[pingSizeOff:], uint32(mr.Len()))
	return e.do(ctx, rdma.SendWR{Op: rdma.OpSend, SGL: []rdma.SGE{{MR: e.send, Len: pingLen}}})
}

// receive waits for one message and posts its buffer again.
func (e *pingEnd) receive(ctx context.Context) (at rdma.RemoteAddr, size uint32, err error) {
	if err := e.until(ctx, func() bool { return len(e.recvs) > 0 }); err != nil {
		return at, 0, fmt.Errorf("RECV: %w", err)
	}
	i := e.recvs[0]
	e.recvs = e.recvs[1:]
	b := e.recv[i].Bytes()
	at.Addr = binary.BigEndian.Uint64(b[pingAddrOff:])
	at.RKey = binary.BigEndian.Uint32(b[pingRKeyOff:])
	size = binary.BigEndian.Uint32(b[pingSizeOff:])
	return at, size, e.postRecv(i)
}

// ping is the client: it connects qp of a new set of objects on dev to addr,
// does count iterations of size bytes and compares every byte that comes back.
// It returns what was negotiated. The context bounds all of it.
func ping(ctx context.Context, dev rdma.Device, addr string, count, size int, p rdma.ConnParams) (info rdma.ConnInfo, err error) {
	if size < pingMinSize || size > pingMaxSize {
		return info, fmt.Errorf("%w: rping of %d bytes is not within %d and %d", rdma.ErrInvalid, size, pingMinSize, pingMaxSize)
	}
	e, err := newPingEnd(dev, size, rdma.AccessLocalWrite|rdma.AccessRemoteRead, rdma.AccessLocalWrite|rdma.AccessRemoteWrite)
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	if info, err = e.qp.Connect(ctx, addr, p); err != nil {
		return info, err
	}
	if err := e.qp.SetAccess(rdma.AccessRemoteRead | rdma.AccessRemoteWrite); err != nil {
		return info, err
	}
	source, sink := e.data[0], e.data[1]
	for i := range count {
		pingFill(source.Bytes(), i)
		clear(sink.Bytes())
		for _, mr := range []rdma.MR{source, sink} {
			if err := e.advertise(ctx, mr); err != nil {
				return info, fmt.Errorf("iteration %d: %w", i, err)
			}
			if _, _, err := e.receive(ctx); err != nil {
				return info, fmt.Errorf("iteration %d: %w", i, err)
			}
		}
		if !bytes.Equal(source.Bytes(), sink.Bytes()) {
			return info, fmt.Errorf("iteration %d: the bytes written back differ from those read", i)
		}
	}
	return info, nil
}

// pingFill writes what rping(1) does: a text with the iteration, then letters,
// then a zero byte, up to which the C server copies back.
func pingFill(b []byte, iteration int) {
	n := copy(b, fmt.Sprintf("rdma-ping-%d: ", iteration))
	for i := range b[n:] {
		b[n+i] = 'A' + byte((iteration+i)%58)
	}
	b[len(b)-1] = 0
}

// servePing is the server: it takes one connection from l and answers until
// the client disconnects. It returns how many iterations it has answered, and
// what was negotiated.
// READ is done before the WRITE of each, so a client that advertises memory
// that may not be read, or not be written, ends it with an error.
func servePing(ctx context.Context, dev rdma.Device, l rdma.Listener, p rdma.ConnParams) (count int, info rdma.ConnInfo, err error) {
	req, err := l.Accept(ctx)
	if err != nil {
		return 0, info, err
	}
	access := rdma.AccessLocalWrite
	if dev.Attr().Caps.Has(rdma.CapReadSinkWrite) {
		access |= rdma.AccessRemoteWrite
	}
	e, err := newPingEnd(dev, pingMaxSize, access)
	if err != nil {
		return 0, info, errors.Join(err, req.Reject(nil))
	}
	defer func() { err = errors.Join(err, e.close()) }()
	if info, err = req.Accept(ctx, e.qp, p); err != nil {
		return 0, info, err
	}
	for ; ; count++ {
		for step, op := range []rdma.Opcode{rdma.OpRDMARead, rdma.OpRDMAWrite} {
			at, size, err := e.receive(ctx)
			if err != nil {
				if step == 0 && e.over(ctx, err) {
					return count, info, nil
				}
				return count, info, fmt.Errorf("iteration %d: %w", count, err)
			}
			if size == 0 || size > pingMaxSize {
				return count, info, fmt.Errorf("iteration %d: the client advertises %d bytes, at most %d are served", count, size, pingMaxSize)
			}
			sge := rdma.SGE{MR: e.data[0], Len: size}
			if err := e.do(ctx, rdma.SendWR{Op: op, SGL: []rdma.SGE{sge}, Remote: at}); err != nil {
				return count, info, fmt.Errorf("iteration %d: %w", count, err)
			}
			if err := e.advertise(ctx, e.data[0]); err != nil {
				if step == 1 && e.over(ctx, err) {
					return count + 1, info, nil // the client has all it wanted
				}
				return count, info, fmt.Errorf("iteration %d: %w", count, err)
			}
		}
	}
}

// over reports whether err is the client's orderly end: its receives are
// flushed because the peer has gone.
func (e *pingEnd) over(ctx context.Context, err error) bool {
	if ctx.Err() != nil || !errors.Is(err, rdma.ErrFlushed) && !errors.Is(err, rdma.ErrPeerGone) {
		return false
	}
	select {
	case <-e.qp.Done():
		return errors.Is(e.qp.Err(), rdma.ErrPeerGone)
	case <-ctx.Done():
		return false
	}
}
