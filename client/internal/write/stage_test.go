package write

import (
	"bytes"
	"errors"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/device"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// large does not fit a message.
func large() []byte { return bytes.Repeat([]byte("0123456789abcdef"), 100_000/16) }

// A large put is staged once for all its copies: each names the same memory and the checksum of
// what stands there. The memory comes back when the last of them is answered.
func TestStagedOnce(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		value := large()
		r.drawing(func(copied) fate { return []fate{lostAfter, overloaded, closing, answered}[len(r.copies)-1] })
		if err := r.put(value); err != nil {
			t.Fatal(err)
		}
		copies := r.sent()
		if len(copies) != 4 {
			t.Fatalf("%d copies", len(copies))
		}
		for i, c := range copies {
			if c.typ != wire.TypePutLarge || c.put.Addr != copies[0].put.Addr || c.put.ValueLen != uint64(len(value)) || c.put.Checksum != xxh3.Hash(value) {
				t.Errorf("copy %d: %+v", i, c)
			}
		}
	})
}

// The memory is held for as long as a copy may be READ, whatever becomes of the caller: here
// until the connection ends on which no reply has come.
func TestStagedUntilTheReply(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		r.draw(unheard)
		s := r.c.Current()
		if err := r.put(large()); !errors.Is(err, base.ErrOutcomeUnknown) {
			t.Error(err)
		}
		if out := s.Device.Staging.Usage().Out; out != 1 {
			t.Errorf("%d buffers are out while the server may READ one", out)
		}
		r.LastQP().Die(errors.New("the test ends"))
		<-s.Gone
		if out := s.Device.Staging.Usage().Out; out != 0 {
			t.Errorf("%d buffers are out", out)
		}
	})
}

// What is staged is a copy: the caller's memory may change as soon as the call has returned.
func TestStage(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		dev := r.c.Current().Device
		p := r.c.Begin(t.Context())
		w := Write{Type: wire.TypePut, Key: key, Data: large()}
		if err := w.stage(&p, dev, w.Data); err != nil {
			t.Fatal(err)
		}
		first := w.staged
		if &first.buf.Mem[0] == &w.Data[0] || !bytes.Equal(first.buf.Mem[:first.n], w.Data) {
			t.Error("it is no copy")
		}
		if err := w.stage(&p, dev, w.Data); err != nil || w.staged != first {
			t.Errorf("staged anew for the same device: %v", err)
		}
		// A slot needs it, too: the last of both gives it back.
		held := first.keep()
		finished(&w)
		if out := dev.Staging.Usage().Out; out != 1 || w.staged != nil {
			t.Errorf("%d buffers are out while a slot holds one", out)
		}
		held.Drop()

		// More than there is room for was not sent.
		w = Write{Type: wire.TypePut, Key: key, Data: make([]byte, r.c.Config().StagingBytes+1)}
		if err := w.stage(&p, dev, w.Data); !base.IsNotSent(err) || !errors.Is(err, base.ErrOverloaded) || w.staged != nil {
			t.Error(err)
		}
	})
}

// A value in memory of the program is READ from there, without a copy, and the memory is in
// use until the reply.
func TestOwnMemoryIsNotCopied(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		gone := make(chan struct{}, 1)
		own, err := device.NewOwned(100_000, true, func() { gone <- struct{}{} })
		if err != nil {
			t.Fatal(err)
		}
		value := own.Bytes()[:copy(own.Bytes(), large())]
		busy := false
		r.drawing(func(copied) fate { busy = own.Busy(); return answered })
		w, _ := NewPut(key, value, wire.Terms{})
		w.From(own)
		if err := Do(t.Context(), r.router, "put", &w); err != nil {
			t.Fatal(err)
		}
		if c := r.sent()[0]; c.typ != wire.TypePutLarge || c.put.Checksum != xxh3.Hash(value) || !busy {
			t.Errorf("%+v, in use meanwhile: %v", c, busy)
		}
		if n := r.c.Counters().StagingBytes; n != 0 {
			t.Errorf("%d bytes of staging memory", n)
		}
		own.Free()
		<-gone
	})
}
