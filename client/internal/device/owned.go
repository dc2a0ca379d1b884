package device

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// An Owned is memory of a program that is registered with the devices of its
// client, with each at the first call that uses it there: what a Buffer is made of.
//
// Safe for concurrent use.
type Owned struct {
	size int
	mem  *mem.Block
	gone func() // called when the memory has been given back

	// uses counts those that may still reach the memory: the program until free, a call,
	// requests whose value stands there, READs into it. The last one frees it.
	uses      atomic.Int64
	abandoned atomic.Int64 // READs into it that were given up on, ever
	freed     atomic.Bool

	mu sync.Mutex
	at []*Device // where it is registered
}

// Collapse has the kernel put memory of the heap that is read at random into huge pages, where it can.
func Collapse(b []byte) { mem.Collapse(b) }

// ownedSlack is what an owned has behind its end: READs are of whole words.
const ownedSlack = 8

// NewOwned is memory of size bytes for any device; heap has it come from Go's
// heap. It fails with ErrOverloaded; else gone is called once, when all is given back.
func NewOwned(size int, heap bool, gone func()) (*Owned, error) {
	// A server maps what it is to READ only if all pages are there.
	linux := runtime.GOOS == "linux"
	opt := mem.Options{Kind: mem.Mmap, Shared: linux, Prefault: linux, Tag: "client buffers"}
	if heap {
		opt.Kind, opt.Shared, opt.Prefault = mem.Heap, false, false
	}
	pages, err := mem.Alloc(size+ownedSlack, opt)
	if err != nil {
		return nil, base.Because(base.ErrOverloaded, err)
	}
	b := &Owned{size: size, mem: pages, gone: gone}
	b.uses.Store(1)
	return b, nil
}

// Bytes is the memory, of the size that was asked for.
func (b *Owned) Bytes() []byte { return b.mem.Bytes()[:b.size:b.size] }

// Busy reports whether a call uses the memory, or a request or READ of one that
// was given up on, or whether it was freed.
func (b *Owned) Busy() bool { return b.freed.Load() || b.uses.Load() > 1 }

// InUse reports whether anything may still reach the memory; if not, it has been
// given back or is about to be.
func (b *Owned) InUse() bool { return b.uses.Load() > 0 }

// GivenUp is how many READs into the memory were given up on, ever.
func (b *Owned) GivenUp() int64 { return b.abandoned.Load() }

// Size is the size in bytes.
func (b *Owned) Size() int { return b.size }

// Free ends the program's use. Freeing twice is harmless.
func (b *Owned) Free() {
	if !b.freed.Swap(true) {
		b.Unuse()
	}
}

// Begin takes b for a call, which ends with unuse; false if it is busy.
func (b *Owned) Begin() bool { return !b.freed.Load() && b.uses.CompareAndSwap(1, 2) }

// Aligned reports whether a place begins with a word, as the sink of a READ has to.
func Aligned(sink []byte) bool { return mem.Skew(sink, 0) == 0 }

// Takes says whether a value of n bytes fits.
func (b *Owned) Takes(n int64) bool { return n <= int64(b.size) }

// TooSmall is the error of a value that does not fit.
func (b *Owned) TooSmall(n int64) error {
	return fmt.Errorf("%w: a value of %d bytes in a buffer of %d", base.ErrTooLarge, n, b.size)
}

// Use is one more that may reach the memory.
func (b *Owned) Use() { b.uses.Add(1) }

// Unuse ends one use; the last one ends the registrations and frees the memory.
func (b *Owned) Unuse() {
	if b.uses.Add(-1) > 0 {
		return
	}
	// The goroutine that polls a completion may be the last user; deregistering can take long.
	go b.destroy()
}

func (b *Owned) destroy() {
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
	b.gone()
}

// On is b as registered memory of t, which it becomes with the first call.
func (b *Owned) On(t *Device) (*Buffer, error) {
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

// ownedBuffers is the owned memory that is registered with one device.
type ownedBuffers struct {
	mu     sync.Mutex
	bufs   map[*Owned]*Buffer
	closed bool
}

// take returns b's registration; fresh if it is a new one.
func (o *ownedBuffers) take(t *Device, b *Owned) (buf *Buffer, fresh bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if buf := o.bufs[b]; buf != nil {
		return buf, false, nil
	}
	if o.closed {
		return nil, false, base.ErrLost
	}
	pages := b.mem.Bytes()[:b.size+ownedSlack]
	mr, err := t.PD.RegMR(pages, t.Buffers.access|rdma.AccessRemoteRead)
	if err != nil {
		return nil, false, growthError(err)
	}
	buf = &Buffer{block: &registration{mem: b.mem, mr: mr, owner: b}, Mem: pages}
	if o.bufs == nil {
		o.bufs = make(map[*Owned]*Buffer)
	}
	o.bufs[b] = buf
	return buf, true, nil
}

// drop ends b's registration.
func (o *ownedBuffers) drop(b *Owned) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	buf := o.bufs[b]
	if buf == nil {
		return nil
	}
	delete(o.bufs, b)
	return buf.block.mr.Close()
}

// close ends all. No QP of the device is left.
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
