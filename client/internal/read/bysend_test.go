package read

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A server that has no room for a read is asked again, after a rest that grows, until the
// call's time is over; then the refusal is what the error tells.
func TestRefusedReads(t *testing.T) {
	for _, info := range []bool{false, true} {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			var at []time.Time
			refuse := 5
			answer := func(h wire.Header, body []byte) []byte {
				at = append(at, time.Now())
				if len(at) <= refuse {
					return refusing(wire.StatusOverloaded)(h, body)
				}
				if info {
					return wire.AppendExistsReply(nil, h.ID, wire.ExistsReply{Version: 9, ValueLen: 7})
				}
				return saying("by SEND")(h, body)
			}
			r.on(wire.TypeGet, answer)
			r.on(wire.TypeExists, answer)
			w := &Query{N: -1, InfoOnly: info}
			if err := r.ask(w); err != nil || w.Info.Size != 7 || w.Info.Version != 9 || (string(w.Dst) != "by SEND") != info {
				t.Errorf("%+v, %v", w, err)
			}
			pause := base.RetryFirst
			for i := range refuse {
				if rest := at[i+1].Sub(at[i]); rest < pause/2 || rest > pause {
					t.Errorf("rest %d is %v, want up to %v", i, rest, pause)
				}
				pause *= 2
			}
			if n := r.counters().Retries.Refused; n != 5 {
				t.Errorf("refused %d times", n)
			}

			at, refuse = nil, 1<<30
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			p := r.c.Begin(ctx)
			begun := time.Now()
			if err := BySend(r.s, &p, key, w); !errors.Is(err, base.ErrOverloaded) || !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second {
				t.Errorf("after %v: %v", time.Since(begun), err)
			}
		})
	}
}

// Which answers end a read by SEND at once.
func TestAnswersBySend(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(wire.Header, []byte) []byte
		want   error
		down   bool // the session is given up
	}{
		"no such key":   {refusing(wire.StatusNotFound), base.ErrNotFound, false},
		"damaged":       {refusing(wire.StatusCorrupt), base.ErrCorrupt, false},
		"denied":        {refusing(wire.StatusDenied), base.ErrDenied, false},
		"a wrong reply": {func(h wire.Header, _ []byte) []byte { return wire.AppendPingReply(nil, h.ID, wire.PingReply{}) }, base.ErrProtocol, true},
		"a reply cut off": {func(h wire.Header, _ []byte) []byte {
			out := wire.AppendGetReply(nil, h.ID, wire.GetReply{Kind: wire.GetInline, Value: []byte("by SEND")})
			out[wire.HeaderSize] = 77 // no kind of answer
			return out
		}, base.ErrProtocol, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, r *rig) {
				r.on(wire.TypeGet, c.answer)
				w := &Query{N: -1, Dst: []byte("x")}
				if err := r.ask(w); !errors.Is(err, c.want) || string(w.Dst) != "x" || r.s.IsDown() != c.down {
					t.Errorf("%v, %q, session down: %v", err, w.Dst, r.s.IsDown())
				}
				r.expect("", wire.TypeGet)
			})
		})
	}
}
