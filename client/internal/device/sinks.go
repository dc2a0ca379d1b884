package device

import (
	"errors"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Sinks of prepared READs (rdma.SpinReader): where gets land that are one READ. Each
// session has some of its own, because the device keeps the work requests of a queue
// pair ready, each with its place. They are few, because one READ at a time is polled
// for; the others are being looked at, or wait for a completion that is late.

// SinkCount is how many sinks a session has.
const SinkCount = 8

// SinkBytes is the size of one: that of an item with a value of 4 KiB and a key of up
// to 256 bytes. What is larger is READ by posting.
var SinkBytes = func() int {
	class, ok := layout.ClassFor(layout.ItemSize(256, 4<<10, true))
	if !ok {
		panic("client: no class for an item of 4 KiB")
	}
	return layout.ClassSize(class)
}()

// Sinks is the registered memory of one session's sinks.
type Sinks struct {
	mem    *mem.Block
	mr     rdma.MR
	Places []rdma.SGE
}

// TakesSinks reports whether queue pairs of the device take prepared READs.
func (t *Device) TakesSinks() bool { return t.Dev.Attr().Caps.Has(rdma.CapSpinRead) }

// NewSinks registers sinks. The caller closes them when the queue pair is closed that
// they were prepared for.
func (ts *Set) NewSinks(t *Device) (*Sinks, error) {
	pages, err := mem.Alloc(SinkCount*SinkBytes, mem.Options{Kind: ts.memKind(), Tag: "client sinks"})
	if err != nil {
		return nil, err
	}
	mr, err := t.PD.RegMR(pages.Bytes()[:SinkCount*SinkBytes], t.sinkAccess())
	if err != nil {
		return nil, errors.Join(err, pages.Free())
	}
	s := &Sinks{mem: pages, mr: mr}
	for i := range SinkCount {
		s.Places = append(s.Places, rdma.SGE{MR: mr, Off: uint64(i * SinkBytes), Len: uint32(SinkBytes)})
	}
	return s, nil
}

// Close gives the memory back. If it cannot be deregistered a device may still write to
// it, and it is left.
func (s *Sinks) Close() error {
	if err := s.mr.Close(); err != nil {
		return err
	}
	return s.mem.Free()
}

// sinkAccess are the rights of memory that READs of this client fill.
func (t *Device) sinkAccess() rdma.Access {
	access := rdma.AccessLocalWrite
	if t.Dev.Attr().Caps.Has(rdma.CapReadSinkWrite) {
		// The device asks for it of the memory that its own READs fill. The QP
		// never grants it, so the server can use it for nothing else; and what
		// lies there is what the server has sent us anyway.
		access |= rdma.AccessRemoteWrite
	}
	return access
}
