package client

import (
	"errors"
	"testing"

	"github.com/rdmakv/rdmakv/internal/wire"
)

// A large put waits for a slot; a MultiPut must not hold all of them meanwhile.
func TestMultiPutSmallThenLarge(t *testing.T) {
	f, _, c := newOneSided(t)
	f.onRequest = func(h wire.Header, _ []byte) ([]byte, bool) {
		if h.Type != wire.TypePutLarge {
			return nil, false
		}
		out := wire.AppendWriteReply(nil, wire.TypePutLarge, h.ID, wire.WriteReply{Version: 2, Applied: true})
		wire.SetCredits(out, 1)
		return out, true
	}
	var pairs []Pair
	for range 2 * c.solo.cfg.MaxInflight {
		pairs = append(pairs, Pair{Key: fakeKey, Value: []byte("small")})
	}
	pairs = append(pairs, Pair{Key: fakeKey, Value: make([]byte, 2*messageSize)}, Pair{Key: fakeKey}, Pair{})
	err := c.MultiPut(t.Context(), pairs)
	var multi *MultiError
	if !errors.As(err, &multi) || multi.Failed != 1 || !errors.Is(multi.Errs[len(pairs)-1], ErrKeyEmpty) {
		t.Errorf("only the pair without a key should fail: %v", err)
	}
	settled(t, c)
}
