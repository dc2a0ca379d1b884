// Package device is what a client registers memory with: the devices that one peer
// has open (Set, Device), the pools in which gets land and large puts wait (Pool), and
// memory of the program itself (Owned). A peer chooses a device for a connection, the
// sessions post what stands in its memory. It knows neither.
//
// A buffer belongs to the fabric from the post until its completion has been polled.
// So a caller that gives up earlier calls Pool.Quarantine, and the completion's
// clean-up calls Pool.Release: memory that a NIC may still write to is never handed
// out again, nor freed.
//
// Lock order: Set.mu before Pool.mu. All other locks are leaves.
package device

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A Device is an opened device and what is registered on it: memory that one
// device knows is nothing to another one. A session belongs to one device.
// It is opened when a connection needs it first and stays for the next ones.
type Device struct {
	key      Key
	Dev      rdma.Device
	PD       rdma.PD // of this server alone: no other server can name what we stage
	Software bool    // the program itself is the RNIC
	Reason   string  // why the fabric chose this device, if it did

	Buffers *Pool // where gets land
	Staging *Pool // where large puts wait for the server's READ
	// MaxQuarantine is how many bytes of buffers may wait for completions that
	// do not come before the connection is given up.
	MaxQuarantine int64
	MaxReads      int // READs under way at a time: Config.MaxReads, if the device takes that many
	owned         ownedBuffers

	// Guarded by Set.mu.
	users    int  // sessions, and attempts to make one
	retired  bool // closed as soon as it has no users
	messages []Messages
}

// Messages is the registered memory that the SENDs of one session use, in both
// directions. Sessions pass it on: connecting again registers nothing.
type Messages struct {
	Mem *mem.Block
	MR  rdma.MR
}

// Close gives the memory back.
func (m Messages) Close() error { return errors.Join(m.MR.Close(), m.Mem.Free()) }

// What is posted beside one receive for each request that may be under way, and
// needs room in the queues of a device: a receive for the reply to Ping, and those
// for messages that the server sends unasked.
const (
	UnaskedReceives = 2
	SpareReceives   = 1 + UnaskedReceives
)

// spareMessages is how many of them a device keeps for sessions to come.
const spareMessages = 2

// openDevice opens a device.
func (ts *Set) openDevice(ctx context.Context, key Key) (_ *Device, err error) {
	t := &Device{key: key, MaxQuarantine: ts.cfg.BufferBytes / 4}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close(base.ErrClosed))
		}
	}()
	if t.Dev, err = ts.cfg.Fabrics[key.Fabric].Open(ctx, key.Name); err != nil {
		return nil, err
	}
	attr := t.Dev.Attr()
	t.Reason = attr.Reason
	// What the processors of the two ends do: not what RequireRDMA asks for.
	mapped := attr.Caps.Has(rdma.CapMapped)
	t.Software = mapped || attr.Caps.Has(rdma.CapDiesWithProcess)
	// The queues must hold every READ and every request at once.
	slots := ts.cfg.MaxInflight + 1
	t.MaxReads = min(ts.cfg.MaxReads, attr.MaxQPWR-slots-SinkCount, attr.MaxCQE-2*slots-SpareReceives-SinkCount)
	if t.MaxReads < base.MinReads {
		return nil, fmt.Errorf("%w: device %s takes %d work requests and %d completions: %d requests in flight leave too few for READs",
			base.ErrConfig, t.Dev.Name(), attr.MaxQPWR, attr.MaxCQE, ts.cfg.MaxInflight)
	}
	if t.PD, err = t.Dev.AllocPD(); err != nil {
		return nil, err
	}
	t.Buffers = newPool(t.PD, t.sinkAccess(), ts.memKind(), "client reads", 512, base.WindowBytes, ts.cfg.BufferBytes)
	t.Staging = newPool(t.PD, rdma.AccessRemoteRead, ts.memKind(), "client puts", minBlock, layout.MaxValueLen, ts.cfg.StagingBytes)
	t.Staging.shared = mapped // the server copies from there itself
	ts.log.Info("device opened", "fabric", attr.Fabric, "device", t.Dev.Name(), "why", attr.Reason)
	return t, nil
}

// close gives back what openDevice took, as far as it came, in reverse.
func (t *Device) close(why error) error {
	var errs []error
	for _, m := range t.messages {
		errs = append(errs, m.Close())
	}
	errs = append(errs, t.owned.close())
	for _, pool := range []*Pool{t.Buffers, t.Staging} {
		if pool != nil {
			errs = append(errs, pool.close(why))
		}
	}
	if t.PD != nil {
		errs = append(errs, t.PD.Close())
	}
	if t.Dev != nil {
		errs = append(errs, t.Dev.Close())
	}
	return errors.Join(errs...)
}

// TakeMessages returns message memory of size bytes, which is the same for every
// session of a client.
func (ts *Set) TakeMessages(t *Device, size int) (Messages, error) {
	ts.mu.Lock()
	if n := len(t.messages); n > 0 {
		m := t.messages[n-1]
		t.messages = t.messages[:n-1]
		ts.mu.Unlock()
		return m, nil
	}
	ts.mu.Unlock()
	pages, err := mem.Alloc(size, mem.Options{Kind: ts.memKind(), Tag: "client messages"})
	if err != nil {
		return Messages{}, err
	}
	mr, err := t.PD.RegMR(pages.Bytes()[:size], rdma.AccessLocalWrite)
	if err != nil {
		return Messages{}, errors.Join(err, pages.Free())
	}
	return Messages{pages, mr}, nil
}

// PutMessages takes it back from a session whose QP is closed.
func (ts *Set) PutMessages(t *Device, m Messages) error {
	ts.mu.Lock()
	if !t.retired && len(t.messages) < spareMessages {
		t.messages = append(t.messages, m)
		ts.mu.Unlock()
		return nil
	}
	ts.mu.Unlock()
	return m.Close()
}

// memKind says where registered memory comes from.
func (ts *Set) memKind() mem.Kind {
	if ts.heap {
		return mem.Heap
	}
	return mem.Mmap
}
