package write

import (
	"errors"
	"sync/atomic"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/device"
)

// A staged is a copy of what a large write carries, in registered memory where
// the server READs it. It belongs to the call for as long as that may send the
// request again, and to every slot that has sent it until the reply or the end
// of the QP, whatever becomes of the caller: the last of them gives it back.
// Nothing writes to it meanwhile, so that copies of the request over several
// connections may be READ at the same time, and the memory of the caller was
// only read while it was filled.
type staged struct {
	t    *device.Device
	buf  *device.Buffer
	n    int
	sum  uint64 // XXH3-64 of the bytes: the server compares it with its own copy's
	refs atomic.Int32
}

// stage copies data into memory of t, unless the write has it there already.
// Every failure is a base.NotSent.
func (w *Write) stage(p *base.Limit, t *device.Device, data []byte) error {
	if w.staged != nil {
		if w.staged.t == t {
			return nil
		}
		w.staged.Drop() // another device knows nothing of it
		w.staged = nil
	}
	if w.own != nil {
		buf, err := w.own.On(t)
		if err != nil {
			return base.NotSent(err)
		}
		w.own.Use()
		w.staged = &staged{t: t, buf: buf, n: len(data), sum: xxh3.Hash(data)}
		w.staged.refs.Store(1)
		return nil
	}
	buf, err := t.Staging.Take(p, len(data))
	if err != nil {
		if errors.Is(err, device.ErrNoMemory) {
			err = base.Because(base.ErrOverloaded, err)
		}
		return base.NotSent(err)
	}
	copy(buf.Mem, data)
	w.staged = &staged{t: t, buf: buf, n: len(data), sum: xxh3.Hash(buf.Mem[:len(data)])}
	w.staged.refs.Store(1)
	return nil
}

// keep counts one more holder.
func (b *staged) keep() *staged {
	b.refs.Add(1)
	return b
}

// Drop ends what keep, or stage, began; the last one gives the memory back.
func (b *staged) Drop() {
	if b.refs.Add(-1) == 0 {
		b.t.Staging.Put(b.buf)
	}
}
