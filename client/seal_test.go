package client_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// TestAlteredReply: a message that was changed, repeated or left out on its way
// costs the connection, and its content is not believed; the call is answered
// over the next one.
func TestAlteredReply(t *testing.T) {
	for name, harm := range map[string]func(q *clienttest.QP, honest, msg []byte){
		"altered":  func(q *clienttest.QP, honest, msg []byte) { msg[len(msg)-1] ^= 1; q.Land(msg) },
		"repeated": func(q *clienttest.QP, honest, msg []byte) { q.Land(honest); q.Land(honest) },
		"left out": func(q *clienttest.QP, honest, msg []byte) { q.Out.Seal(msg); q.Land(msg) },
		"unsigned": func(q *clienttest.QP, honest, msg []byte) { clear(msg[32:48]); q.Land(msg) },
		"cut off":  func(q *clienttest.QP, honest, msg []byte) { q.Land(msg[:len(msg)-1]) },
	} {
		t.Run(name, func(t *testing.T) {
			f := clienttest.NewServer(9)
			f.Secret = []byte("s")
			var once sync.Once
			f.OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
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
				q := f.LastQP()
				q.Out.Seal(reply)
				harm(q, reply, append([]byte(nil), reply...))
				return nil, true
			}
			c := dialFake(t, f, nil, nil)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			for range 2 { // the second call finds the new session if the first did not
				if got, err := c.Get(ctx, []byte("k")); err != nil || string(got) != "true" {
					t.Fatalf("%q, %v", got, err)
				}
			}
			if n := f.Dials.Load(); n < 2 {
				t.Errorf("%d connections made: the altered message was believed", n)
			}
		})
	}
}
