package server

import (
	"context"
	"github.com/rdmakv/rdmakv/internal/wire"
	"testing"
	"time"
)

// TestStopWithoutMajority: a leader that has lost its majority with a write under way is stopped within the time that the caller gives it.
func TestStopWithoutMajority(t *testing.T) {
	r := startReplicas(t)
	r.put(keyOf(0), "old")
	lead := r.leader(0)
	old := r.nodes[lead]
	p := dial(t, old, peerOptions{})
	old.groups.Cut()
	key, value := []byte(keyOf(0)), []byte("lost")
	p.send(wire.AppendPut(nil, p.id(), wire.Put{Key: key, Value: value}))
	time.Sleep(800 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- old.Shutdown(ctx) }()
	select {
	case err := <-done:
		t.Log(err)
		r.nodes[lead] = nil
		r.put(keyOf(0), "new")
	case <-time.After(15 * time.Second):
		t.Error("it has not ended after 15 s, and was given 3")
	}
}
