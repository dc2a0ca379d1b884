package client

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
)

// TestAlteredReply: a message that was changed, repeated or left out on its way
// costs the connection, and its content is not believed; the call is answered
// over the next one.
func TestAlteredReply(t *testing.T) {
	for name, harm := range map[string]func(q *fakeQP, honest, msg []byte){
		"altered":  func(q *fakeQP, honest, msg []byte) { msg[len(msg)-1] ^= 1; q.land(msg) },
		"repeated": func(q *fakeQP, honest, msg []byte) { q.land(honest); q.land(honest) },
		"left out": func(q *fakeQP, honest, msg []byte) { q.out.Seal(msg); q.land(msg) },
		"unsigned": func(q *fakeQP, honest, msg []byte) { clear(msg[32:48]); q.land(msg) },
		"cut off":  func(q *fakeQP, honest, msg []byte) { q.land(msg[:len(msg)-1]) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeServer(9)
			f.secret = []byte("s")
			var once sync.Once
			f.onRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
				if h.Type != wire.TypeGet {
					return nil, false
				}
				reply := wire.AppendGetReply(nil, h.ID, wire.GetReply{Kind: wire.GetInline, Version: 9, Value: []byte("true")})
				wire.SetCredits(reply, 1)
				first := false
				once.Do(func() { first = true })
				if !first {
					return reply, true
				}
				q := f.lastQP()
				q.out.Seal(reply)
				harm(q, reply, append([]byte(nil), reply...))
				return nil, true
			}
			c := f.dial(t, nil, nil)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			for range 2 { // the second call finds the new session if the first did not
				if got, err := c.Get(ctx, []byte("k")); err != nil || string(got) != "true" {
					t.Fatalf("%q, %v", got, err)
				}
			}
			if n := f.dials.Load(); n < 2 {
				t.Errorf("%d connections made: the altered message was believed", n)
			}
		})
	}
}
