package client

import (
	"errors"
	"testing"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// A put that was sent has an unknown outcome unless its reply says otherwise: a
// reply that makes no sense does not.
func TestNonsenseForAPutIsUnknown(t *testing.T) {
	f, _, c := newOneSided(t)
	f.onRequest = func(h wire.Header, _ []byte) ([]byte, bool) {
		if h.Type != wire.TypePut {
			return nil, false
		}
		return wire.AppendPingReply(nil, h.ID, wire.PingReply{}), true
	}
	err := c.Put(t.Context(), fakeKey, []byte("two"))
	if !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, ErrProtocol) {
		t.Errorf("%v", err)
	}
}

// Nor does a completion queue that fails. It also ends the session, or no later
// call would ever work.
func TestBrokenCompletionQueue(t *testing.T) {
	f, _, c := newOneSided(t)
	q := f.lastQP()
	f.onRequest = func(h wire.Header, _ []byte) ([]byte, bool) {
		if h.Type != wire.TypePut {
			return nil, false
		}
		q.cq.mu.Lock()
		q.cq.fault = rdma.ErrCQOverrun
		q.cq.mu.Unlock()
		return nil, true // no reply
	}
	if err := c.Put(t.Context(), fakeKey, []byte("two")); !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("%v", err)
	}
	mustGet(t, c, "one")
}
