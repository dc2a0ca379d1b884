package write

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Every copy of a write goes under the name of the first one, and tells its age; the next
// write has another name.
func TestNameIsKept(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		var last uint64
		for i, fates := range [][]fate{
			nil, {closing}, {lostBefore}, {lostAfter}, {overloaded, overloaded}, {unknown},
			{lostAfter, lostBefore, unknown, overloaded, closing, lostAfter},
		} {
			r.draw(fates...)
			done := r.done[string(key)]
			ages := []uint32{0}
			r.drawing(func(c copied) fate {
				r.clock.Advance(3 * time.Millisecond)
				if n := len(r.copies) - 1; n < len(fates) {
					ages = append(ages, ages[len(ages)-1]+3)
					return fates[n]
				}
				return answered
			})
			if err := r.put([]byte("v")); err != nil {
				t.Fatalf("%v: %v", fates, err)
			}
			copies := r.sent()
			if len(copies) != len(fates)+1 {
				t.Errorf("%v: %d copies", fates, len(copies))
			}
			for n, c := range copies {
				if c.id.Slot != copies[0].id.Slot || c.id.Seq != copies[0].id.Seq {
					t.Errorf("%v: copy %d goes under %+v, the first one under %+v", fates, n, c.id, copies[0].id)
				}
				// The clock is read once a tick for the first copy, so a copy may say more,
				// never less; the first one says 0.
				if c.id.AgeMillis < ages[n] || (c.id.AgeMillis == 0) != (n == 0) {
					t.Errorf("%v: copy %d is %d ms old, sent %d ms after the first", fates, n, c.id.AgeMillis, ages[n])
				}
			}
			if n := r.done[string(key)] - done; n != 1 {
				t.Errorf("%v: it took effect %d times", fates, n)
			}
			if i > 0 && copies[0].id.Seq == last {
				t.Errorf("%v: two writes under one name", fates)
			}
			last = copies[0].id.Seq
		}
	})
}

// What follows from how a copy went.
func TestJudge(t *testing.T) {
	lost, full := base.ErrLost, base.Because(base.ErrOverloaded, errors.New("full"))
	for _, c := range []struct {
		err       error
		sent, old bool // before
		want      writeState
		unknown   bool // after
	}{
		{nil, false, false, writeDone, false},
		{base.NotSent(lost), false, false, writeLost, false},
		{base.NotSent(base.ErrClosing), true, false, writeLost, true},
		{base.NotSent(full), false, false, writeOver, false}, // the client's own queues
		{base.NotSent(full), true, false, writeLater, true},  // a copy is about: that must be cleared up
		{base.NotSent(context.Canceled), false, false, writeOver, false},
		{base.NotSent(context.Canceled), true, false, writeOver, true},
		{base.NotSent(base.ErrTooLarge), false, false, writeOver, false},
		{full, false, false, writeLater, false},
		{full, true, false, writeLater, true},
		{lost, false, false, writeLost, true},
		{base.ErrLate, false, false, writeOver, true},
		{context.Canceled, false, false, writeOver, true},
		{context.DeadlineExceeded, false, false, writeOver, true},
		{base.ErrProtocol, false, false, writeOver, true},
		{base.ErrOutcomeUnknown, false, false, writeLater, true},
		{base.ErrOutcomeUnknown, false, true, writeOver, true},
		{base.ErrNotNumber, true, false, writeOver, false},
		{base.ErrNumberRange, true, false, writeOver, false},
		{base.ErrNoSpace, false, false, writeOver, false},
		{base.ErrNoSpace, true, false, writeOver, true},
		{&session.Moved{}, false, false, writeOver, false},
		{base.ErrDenied, true, false, writeOver, true},
	} {
		w := Write{sent: c.sent}
		if c.old {
			w.Terms.ID.AgeMillis = uint32(tooOld / time.Millisecond)
		}
		if got := w.judge(c.err); got != c.want || w.sent != c.unknown {
			t.Errorf("%v, sent %v: %d, sent %v; want %d, %v", c.err, c.sent, got, w.sent, c.want, c.unknown)
		}
	}
}

// A copy that may have been applied makes the outcome unknown, whatever ends the call, and
// such a copy is not sent again where that tells nothing.
func TestOutcomeUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		fates   []fate
		copies  int
		unknown bool
		is      error
	}{
		"no reply in time":                {[]fate{unheard}, 1, true, base.ErrLate},
		"a reply that does not parse":     {[]fate{nonsense}, 1, true, base.ErrProtocol},
		"a reply to something else":       {[]fate{wrongType}, 1, true, base.ErrProtocol},
		"the answer is no":                {[]fate{notNumber}, 1, false, base.ErrNotNumber},
		"lost, and the answer is no":      {[]fate{lostBefore, notNumber}, 2, false, base.ErrNotNumber},
		"lost, and then a reply too late": {[]fate{lostAfter, unheard}, 2, true, base.ErrLate},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, r *rig) {
				r.draw(c.fates...)
				err := r.put([]byte("v"))
				if errors.Is(err, base.ErrOutcomeUnknown) != c.unknown || !errors.Is(err, c.is) {
					t.Errorf("%v", err)
				}
				time.Sleep(time.Minute)
				if n := len(r.sent()); n != c.copies {
					t.Errorf("%d copies, want %d", n, c.copies)
				}
				if n := r.c.Counters().OutcomeUnknown; (n == 1) != c.unknown {
					t.Errorf("%d outcomes unknown", n)
				}
				if name == "no reply in time" {
					r.LastQP().Die(errors.New("the test ends")) // the slot waits for the late reply
				}
			})
		})
	}
}

// A server that has forgotten a request is asked again while it may find out, and not once
// the request is so old that it never will.
func TestForgottenByTheServer(t *testing.T) {
	inBubble(t, func(_ *rig, cfg *base.Config) { cfg.Timeout = time.Hour }, func(t *testing.T, r *rig) {
		r.drawing(func(copied) fate {
			r.clock.Advance(time.Minute)
			return tooOldFor
		})
		err := r.put([]byte("v"))
		if !errors.Is(err, base.ErrOutcomeUnknown) {
			t.Error(err)
		}
		if copies := r.sent(); len(copies) != 10 || copies[9].id.AgeMillis < uint32(tooOld/time.Millisecond) {
			t.Errorf("%d copies", len(copies))
		}
	})
}

// A server without room is asked again after a rest that grows, under the same name; when the
// time is over nothing was changed, and the refusal is what the error tells.
func TestOverloadedServer(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		r.drawing(func(copied) fate { return overloaded })
		begun := time.Now()
		err := r.put([]byte("v"))
		if !errors.Is(err, base.ErrOverloaded) || !errors.Is(err, base.ErrTimeout) || errors.Is(err, base.ErrOutcomeUnknown) {
			t.Error(err)
		}
		if took := time.Since(begun); took < 5*time.Second || took > 6*time.Second {
			t.Errorf("it took %v of 5 s", took)
		}
		copies := r.sent()
		pause := base.RetryFirst
		for i := range copies[1:] {
			if rest := copies[i+1].at.Sub(copies[i].at); rest < pause/2 || rest > pause {
				t.Errorf("rest %d is %v, want up to %v", i, rest, pause)
			}
			pause = min(2*pause, base.RetryMost)
		}
		if r.done[string(key)] != 0 || len(copies) < 20 {
			t.Errorf("%d copies, %d took effect", len(copies), r.done[string(key)])
		}
		// If a copy was lost before, it is not known whether something was changed.
		first := true
		r.drawing(func(copied) fate {
			if first {
				first = false
				return lostBefore
			}
			return overloaded
		})
		if err := r.put([]byte("v")); !errors.Is(err, base.ErrOutcomeUnknown) {
			t.Error(err)
		}
	})
}

// A call whose time is over before anything was posted has changed nothing.
func TestDeadlineBeforeTheFirstCopy(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		var ids []wire.RequestID
		for range r.c.Config().MaxInflight {
			id, _ := r.c.IDs.TryTake()
			ids = append(ids, id)
		}
		r.draw()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		w, _ := NewPut(key, nil, wire.Terms{})
		begun := time.Now()
		err := Do(ctx, r.router, "put", &w)
		if !errors.Is(err, base.ErrTimeout) || errors.Is(err, base.ErrOutcomeUnknown) || time.Since(begun) != 30*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		if len(r.sent()) != 0 {
			t.Error("it was sent")
		}
		for _, id := range ids {
			r.c.IDs.Put(id)
		}
	})
}

// A call that its caller gives up while a copy is under way ends at once, and is not sent
// again.
func TestGivenUpUnderWay(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		r.draw(unheard)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		w, _ := NewPut(key, nil, wire.Terms{})
		go func() { done <- Do(ctx, r.router, "put", &w) }()
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, base.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if n := len(r.sent()); n != 1 {
			t.Errorf("%d copies", n)
		}
		if w.Reply != (wire.WriteReply{}) {
			t.Errorf("a call that failed has a reply: %+v", w.Reply)
		}
		r.LastQP().Die(errors.New("the test ends"))
	})
}

// A call waits for a server that is away, and then sends the same write again, whether the
// first copy took effect or was refused.
func TestServerIsAway(t *testing.T) {
	for _, what := range []fate{lostAfter, closing} {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			lost := false
			r.drawing(func(copied) fate {
				if lost {
					return answered
				}
				lost = true
				r.Connect = func(context.Context) error {
					if time.Since(r.copies[0].at) < 3*time.Second {
						return errors.New("away")
					}
					return nil
				}
				return what
			})
			if err := r.put([]byte("v")); err != nil {
				t.Errorf("%d: %v", what, err)
			}
			if n := r.done[string(key)]; n != 1 || len(r.sent()) != 2 {
				t.Errorf("%d: it took effect %d times in %d copies", what, n, len(r.sent()))
			}
		})
	}
}

// A caller with more time than Config.Timeout waits for as long as it said for a server that
// may have applied its write; a write of which nothing was applied fails with the reason when
// the server has been away for Config.Timeout.
func TestServerIsAwayForLong(t *testing.T) {
	for _, what := range []fate{lostAfter, closing} {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			r.drawing(func(copied) fate {
				if len(r.copies) > 1 {
					return answered
				}
				r.Connect = func(context.Context) error {
					if time.Since(r.copies[0].at) < 20*time.Second {
						return errors.New("away")
					}
					return nil
				}
				return what
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			w, _ := NewPut(key, nil, wire.Terms{})
			begun := time.Now()
			err := Do(ctx, r.router, "put", &w)
			took := time.Since(begun)
			if what == lostAfter && (err != nil || took < 20*time.Second || r.done[string(key)] != 1) {
				t.Errorf("after %v: %v, it took effect %d times", took, err, r.done[string(key)])
			}
			if what == closing && (!errors.Is(err, base.ErrUnavailable) || errors.Is(err, base.ErrOutcomeUnknown) || took > 10*time.Second) {
				t.Errorf("after %v: %v", took, err)
			}
			time.Sleep(time.Minute)
		})
	}
}

// What the server does not take is refused before anything is sent.
func TestRefusedBeforeItIsSent(t *testing.T) {
	small := func(r *rig, _ *base.Config) {
		r.Welcome = func(w *wire.Welcome) { w.MaxKey, w.MaxValue, w.Shards = 10, 1000, 1 }
	}
	inBubble(t, small, func(t *testing.T, r *rig) {
		for _, c := range []struct {
			key, value int
			want       error
		}{
			{10, 1000, nil}, {11, 0, base.ErrKeyTooLarge}, {10, 1001, base.ErrTooLarge},
			{0, 0, base.ErrKeyEmpty}, {layout.MaxKeyLen + 1, 0, base.ErrKeyTooLarge}, {1, layout.MaxValueLen + 1, base.ErrTooLarge},
		} {
			r.draw()
			w, err := NewPut(make([]byte, c.key), make([]byte, c.value), wire.Terms{})
			if err == nil {
				err = Do(t.Context(), r.router, "put", &w)
			}
			if !errors.Is(err, c.want) || errors.Is(err, base.ErrOutcomeUnknown) || (len(r.sent()) == 0) != (c.want != nil) {
				t.Errorf("%d and %d bytes: %d copies, %v", c.key, c.value, len(r.sent()), err)
			}
		}
		for _, make := range []func(key []byte) (Write, error){
			func(k []byte) (Write, error) { return NewDelete(k, 0) },
			func(k []byte) (Write, error) { return NewIncrement(k, 1) },
			func(k []byte) (Write, error) { return NewTouch(k, 1) },
		} {
			if _, err := make(nil); !errors.Is(err, base.ErrKeyEmpty) {
				t.Error(err)
			}
		}
	})
	inBubble(t, func(r *rig, _ *base.Config) { r.Shards = 8 }, func(t *testing.T, r *rig) {
		var parts []byte
		for i := range 32 {
			parts = wire.AppendBatchPart(parts, wire.BatchPart{Key: fmt.Append(nil, i), Delete: true})
		}
		w := NewBatch(parts, 32)
		if err := Do(t.Context(), r.router, "batch", &w); !errors.Is(err, base.ErrCrossShard) || len(r.sent()) != 0 {
			t.Errorf("%d copies, %v", len(r.sent()), err)
		}
		parts = parts[:0]
		for i := range 32 {
			parts = wire.AppendBatchPart(parts, wire.BatchPart{Key: fmt.Appendf(nil, "{tag}%d", i), Delete: true})
		}
		w = NewBatch(parts, 32)
		if err := Do(t.Context(), r.router, "batch", &w); err != nil || string(w.anyKey()) != "{tag}0" {
			t.Errorf("%q, %v", w.anyKey(), err)
		}
	})
}

// What a refusal by a condition says, for each way to write.
func TestConditions(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		do := func(w Write, err error) error {
			if err != nil {
				t.Error(err)
			}
			return Do(t.Context(), r.router, "write", &w)
		}
		r.reply = wire.WriteReply{Version: 42}
		v := (*base.VersionError)(nil)
		if err := do(NewPut(key, nil, wire.Terms{If: wire.CondAbsent})); !errors.Is(err, base.ErrExists) || !errors.As(err, &v) || v.Actual != 42 {
			t.Error(err)
		}
		w, _ := NewPut(key, nil, wire.Terms{If: wire.CondAbsent})
		if err := Do(t.Context(), r.router, "put", &w); err == nil || w.Reply != (wire.WriteReply{}) {
			t.Errorf("%v: a call that failed has the reply %+v", err, w.Reply)
		}
		if err := do(NewDelete(key, 7)); !errors.Is(err, base.ErrVersionMismatch) || !errors.As(err, &v) || v.Actual != 42 {
			t.Error(err)
		}
		if err := do(NewTouch(key, 1)); !errors.Is(err, base.ErrNotFound) {
			t.Error(err)
		}
		if err := do(NewDelete(key, 0)); !errors.Is(err, base.ErrProtocol) {
			t.Errorf("a condition that was not made: %v", err)
		}
		var parts []byte
		parts = wire.AppendBatchPart(parts, wire.BatchPart{Key: []byte("a")})
		parts = wire.AppendBatchPart(parts, wire.BatchPart{Key: []byte("b"), If: wire.CondAbsent})
		r.reply.Number = 1
		if err := do(NewBatch(parts, 2), nil); !errors.Is(err, base.ErrExists) || !errors.As(err, &v) || v.Part != 1 || v.Actual != 42 {
			t.Error(err)
		}
		r.reply.Number = 2
		if err := do(NewBatch(parts, 2), nil); !errors.Is(err, base.ErrProtocol) {
			t.Errorf("a part that the batch does not have: %v", err)
		}
	})
}

// A write forgets where its keys were, also if its outcome is unknown: the place may hold the
// old value for as long as the server lets it.
func TestPlacesAreForgotten(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		s := r.c.Current()
		other := []byte("another key")
		remember := func() {
			for _, k := range [][]byte{key, other} {
				s.Cache.Put(layout.HashKey(42, k), layout.Loc{Place: 1000, Size: 64}, s.Lease.Grant().Retired)
			}
		}
		known := func(k []byte) bool {
			loc, _ := s.Cache.Find(layout.HashKey(42, k), s.Lease.Grant().Retired)
			return loc.Size != 0
		}
		remember()
		if err := r.put(nil); err != nil || known(key) || !known(other) {
			t.Errorf("after a put: %v, %v; %v", known(key), known(other), err)
		}
		var parts []byte
		for _, k := range [][]byte{key, other} {
			parts = wire.AppendBatchPart(parts, wire.BatchPart{Key: k, Delete: true})
		}
		for _, what := range []fate{answered, nonsense} {
			remember()
			r.draw(what)
			w := NewBatch(parts, 2)
			err := Do(t.Context(), r.router, "batch", &w)
			if known(key) || known(other) || (err != nil) != (what == nonsense) {
				t.Errorf("after a batch: %v, %v; %v", known(key), known(other), err)
			}
		}
	})
}

// Whether a write goes in its message or is READ by the server, by its size.
func TestWhatFitsAMessage(t *testing.T) {
	most := session.MessageSize
	for !wire.PutFits(session.MessageSize, len(key), most) {
		most--
	}
	inBubble(t, nil, func(t *testing.T, r *rig) {
		for _, n := range []int{0, most, most + 1} {
			if err := r.put(make([]byte, n)); err != nil {
				t.Fatal(err)
			}
		}
		var types []wire.Type
		for _, c := range r.sent() {
			types = append(types, c.typ)
		}
		if !slices.Equal(types, []wire.Type{wire.TypePut, wire.TypePut, wire.TypePutLarge}) {
			t.Errorf("%v", types)
		}
		r.draw()
		part := wire.AppendBatchPart(nil, wire.BatchPart{Key: key, Value: make([]byte, session.MessageSize)})
		w := NewBatch(part, 1)
		if err := Do(t.Context(), r.router, "batch", &w); err != nil || r.sent()[0].typ != wire.TypeBatchLarge {
			t.Errorf("%v, %v", r.sent(), err)
		}
		if n := r.c.Counters().LargePuts; n != 1 {
			t.Errorf("%d large puts", n)
		}
	})
}
