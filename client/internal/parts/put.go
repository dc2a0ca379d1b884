package parts

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/client/internal/write"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// giveUpWait is how long a put that has failed tells the server of it, at most.
const giveUpWait = time.Second

// A put is a value on its way in parts.
type put struct {
	ctx   context.Context
	f     *route.Router
	op    string
	key   []byte
	head  layout.Head
	keys  layout.PartKeys
	begun bool // the record may be there
}

// Put stores value under key, in parts. The caller's terms are those of the head. It fails as a put does: if the
// outcome is unknown, then that of the head; otherwise nothing was changed.
func Put(ctx context.Context, f *route.Router, op string, key, value []byte, terms wire.Terms) (version uint64, err error) {
	p, err := begin(ctx, f, op, key, int64(len(value)))
	if err == nil {
		w := newWork(ctx)
		for n := 1; n <= p.head.Parts(); n++ {
			off, length := p.head.Part(n)
			part := value[off : off+int64(length)]
			if !w.run(func() error { return p.part(n, part) }) {
				break
			}
		}
		err = w.wait()
	}
	return p.end(terms, err)
}

// PutFrom is Put of size bytes that r has. size < 0: up to the end of r, which must not have more than
// layout.MaxWholeLen. If r ends before size bytes the error wraps io.ErrUnexpectedEOF.
func PutFrom(ctx context.Context, f *route.Router, op string, key []byte, r io.Reader, size int64, terms wire.Terms) (version uint64, err error) {
	bound := size
	if size < 0 {
		bound = min(layout.MaxWholeLen, int64(f.Config().PartBytes)*layout.MaxParts)
	}
	p, err := begin(ctx, f, op, key, bound)
	if err == nil {
		var read int64
		if read, err = p.parts(r, size); err == nil {
			p.head.Total = read
			p.head.Sums = p.head.Sums[:p.head.Parts()]
		}
	}
	return p.end(terms, err)
}

// parts puts what r has, and returns how many bytes that was.
func (p *put) parts(r io.Reader, size int64) (read int64, err error) {
	w := newWork(p.ctx)
	free := make(chan []byte, atOnce)
	for range atOnce {
		free <- nil
	}
	most := p.head.Shape
	for n := 1; n <= most.Parts(); n++ {
		_, length := most.Part(n)
		buf := <-free // one comes back with each part that has ended
		if buf == nil {
			buf = make([]byte, length)
		}
		got, fault := io.ReadFull(r, buf[:length])
		read += int64(got)
		switch {
		case fault == nil:
		case size < 0 && (errors.Is(fault, io.EOF) || errors.Is(fault, io.ErrUnexpectedEOF)):
		case errors.Is(fault, io.EOF):
			err = io.ErrUnexpectedEOF
		default:
			err = fault
		}
		if err != nil || got == 0 {
			break
		}
		if !w.run(func() error {
			defer func() { free <- buf }()
			return p.part(n, buf[:got])
		}) || fault != nil {
			break
		}
	}
	if err == nil && size < 0 && read == most.Total {
		if n, _ := io.ReadFull(r, make([]byte, 1)); n > 0 {
			err = fmt.Errorf("%w: more than %d bytes", base.ErrTooLarge, read)
		}
	}
	if fault := w.wait(); err == nil {
		err = fault
	}
	if err == nil && read == 0 {
		err = io.ErrUnexpectedEOF
	}
	return read, err
}

// begin puts the record of an upload of at most size bytes.
func begin(ctx context.Context, f *route.Router, op string, key []byte, size int64) (*put, error) {
	p := &put{ctx: ctx, f: f, op: op, key: key}
	if err := base.CheckKey(key); err != nil {
		return p, err
	}
	shards, most, err := bounds(ctx, f, op, key)
	if err != nil {
		return p, err
	}
	if most <= layout.MaxValueLen {
		return p, fmt.Errorf("%w: this server takes up to %d bytes, and none in parts", base.ErrTooLarge, most)
	}
	if size < 0 || size > most || size > layout.MaxWholeLen {
		return p, fmt.Errorf("%w: %d bytes, this server takes up to %d", base.ErrTooLarge, size, most)
	}
	p.head.Shape = layout.Shape{Total: size, PartLen: f.Config().PartBytes}
	if most := int64(p.head.PartLen) * layout.MaxParts; size > most {
		return p, fmt.Errorf("%w: %d bytes, and with parts of %d at most %d are possible (PartBytes)", base.ErrTooLarge, size, p.head.PartLen, most)
	}
	if err := p.head.Check(); err != nil {
		return p, fmt.Errorf("%w: %w", base.ErrTooLarge, err)
	}
	rand.Read(p.head.ID[:]) // never fails
	if p.keys, err = keysOf(key, p.head.ID, shards); err != nil {
		return p, err
	}
	p.head.Sums = make([]uint64, p.head.Parts())
	p.begun = true
	return p, p.write(p.keys.Key(layout.UploadPart), layout.AppendUpload(nil, layout.Upload{Shape: p.head.Shape, Key: key}))
}

// part puts part n.
func (p *put) part(n int, value []byte) error {
	p.head.Sums[n-1] = xxh3.Hash(value)
	return p.write(p.keys.Key(n), value)
}

// write puts a key of the upload. That its outcome is unknown changes nothing that anybody sees.
func (p *put) write(key, value []byte) error {
	w, err := write.NewPut(key, value, wire.Terms{})
	if err == nil {
		err = write.Do(p.ctx, p.f, p.op, &w)
	}
	if errors.Is(err, base.ErrOutcomeUnknown) {
		err = base.Caused(base.ErrTimeout, fmt.Errorf("a part of the value was not acknowledged: %v", reason(err)))
	}
	return err
}

// reason is what err says beside the name of the operation and the key, which are those of a part.
func reason(err error) error {
	if e, ok := errors.AsType[*base.Error](err); ok {
		return e.Err
	}
	return err
}

// end puts the head, if nothing has failed, and otherwise gives the upload up.
func (p *put) end(terms wire.Terms, err error) (version uint64, _ error) {
	if err == nil {
		var w write.Write
		if w, err = write.NewPut(p.key, layout.AppendHead(nil, p.head), terms); err == nil {
			if err = write.Do(p.ctx, p.f, p.op, &w); err == nil {
				return w.Reply.Version, nil
			}
		}
	}
	if p.begun && !errors.Is(err, base.ErrOutcomeUnknown) {
		p.giveUp()
	}
	if _, told := errors.AsType[*base.Error](err); !told {
		err = p.f.Fail(p.op, p.key, err)
	}
	return 0, err
}

// giveUp tells the server that there will be no head. If that fails it finds out by itself.
func (p *put) giveUp() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), giveUpWait)
	defer cancel()
	if w, err := write.NewDelete(p.keys.Key(layout.UploadPart), 0); err == nil {
		_ = write.Do(ctx, p.f, p.op, &w)
	}
}
