package client_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// A put that was sent has an unknown outcome unless its reply says otherwise: a
// reply that makes no sense does not.
func TestNonsenseForAPutIsUnknown(t *testing.T) {
	f, _, c := newOneSided(t)
	f.OnRequest = func(h wire.Header, _ []byte) ([]byte, bool) {
		if h.Type != wire.TypePut {
			return nil, false
		}
		return wire.AppendPingReply(nil, h.ID, wire.PingReply{}), true
	}
	err := c.Put(t.Context(), fakeKey, []byte("two"))
	if !errors.Is(err, client.ErrOutcomeUnknown) || !errors.Is(err, client.ErrProtocol) {
		t.Errorf("%v", err)
	}
}

// Nor does a completion queue that fails. It also ends the session, or no later
// call would ever work.
func TestBrokenCompletionQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, c := newOneSided(t)
		q := f.LastQP()
		f.OnRequest = func(h wire.Header, _ []byte) ([]byte, bool) {
			if h.Type != wire.TypePut {
				return nil, false
			}
			q.CQ.Mu.Lock()
			q.CQ.Fault = rdma.ErrCQOverrun
			q.CQ.Mu.Unlock()
			return nil, true // no reply
		}
		if err := c.Put(t.Context(), fakeKey, []byte("two")); !errors.Is(err, client.ErrOutcomeUnknown) {
			t.Errorf("%v", err)
		}
		mustGet(t, c, "one")
	})
}
