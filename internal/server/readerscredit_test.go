package server

import (
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
)

// TestReaderThatCannotBeTold: a client that may READ, and has given no credit for what it does not ask for, does not stay when the cluster gets
// replicas: what it READs at a deposed leader would be old.
func TestReaderThatCannotBeTold(t *testing.T) {
	r := startUnmapped(t)
	p := dial(t, r.nodes[0], peerOptions{noHello: true})
	msg := wire.AppendHello(nil, p.id(), wire.Hello{ReplySize: peerSize, Name: []byte("test")}) // no credits
	wire.SignHello(msg, r.nodes[0].cfg.Secret, p.connect, p.accept)
	p.send(msg)
	list := r.nodes[0].main.Sessions.List
	eventually(t, "it is there", func() bool { return r.nodes[0].main.Sessions.Opened() == 1 })
	s := list()[0]
	if !s.OneSided {
		t.Error("it may not READ before there is a map")
	}
	r.agree()
	for limit := time.Now().Add(3 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		stays := false
		for _, o := range list() {
			stays = stays || o == s
		}
		if !stays {
			return
		}
		if time.Now().After(limit) {
			t.Fatal("it may READ still, and was not told")
		}
	}
}
