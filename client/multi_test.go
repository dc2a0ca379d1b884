package client_test

import (
	"errors"
	"testing"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A large put waits for a slot; a MultiPut must not hold all of them meanwhile.
func TestMultiPutSmallThenLarge(t *testing.T) {
	f, _, c := newOneSided(t)
	f.OnRequest = func(h wire.Header, _ []byte) ([]byte, bool) {
		if h.Type != wire.TypePutLarge {
			return nil, false
		}
		out := wire.AppendWriteReply(nil, wire.TypePutLarge, h.ID, wire.WriteReply{Version: 2, Applied: true})
		wire.SetCredits(out, 1)
		return out, true
	}
	var pairs []client.Pair
	for range 2 * rt(c).Only().Config().MaxInflight {
		pairs = append(pairs, client.Pair{Key: fakeKey, Value: []byte("small")})
	}
	pairs = append(pairs, client.Pair{Key: fakeKey, Value: make([]byte, 2*session.MessageSize)}, client.Pair{Key: fakeKey}, client.Pair{})
	err := c.MultiPut(t.Context(), pairs)
	var part *client.PartialError
	if !errors.As(err, &part) || len(part.Failures) != 1 || part.Failures[0].Index != len(pairs)-1 || !errors.Is(err, client.ErrKeyEmpty) {
		t.Errorf("only the pair without a key should fail: %v", err)
	}
	settled(t, c)
}
