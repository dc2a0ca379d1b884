package read

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store/layout"
)

// small is the ith of many keys, whose item has its place to itself.
func small(i int) ([]byte, layout.Place) {
	return fmt.Appendf(nil, "small%d", i), itemB + layout.PlaceOfByte(uint64(i)*256)
}

// withMany stores n small keys of which no two have the same first slot, and returns them.
func (r *rig) withMany(n int) (keys [][]byte) {
	taken := map[uint64]bool{clienttest.SlotAt(seg, key): true}
	for i := 0; len(keys) < n && i < 1000; i++ {
		k, at := small(i)
		if slot := clienttest.SlotAt(seg, k); !taken[slot] {
			taken[slot] = true
			r.Change(func(mem []byte) { r.PutItem(mem, seg, at, k, append([]byte("value of "), k...), 1) })
			keys = append(keys, k)
		}
	}
	return keys
}

// many gets keys, each of which must have the value that withMany gave it.
func (r *rig) many(keys [][]byte) {
	r.t.Helper()
	results := make([]base.Result, len(keys))
	if err := Many(r.t.Context(), r.router, keys, results); err != nil {
		r.t.Error(err)
	}
	for i, k := range keys {
		if string(results[i].Value) != "value of "+string(k) || results[i].Err != nil {
			r.t.Errorf("%q: %q, %v", k, results[i].Value, results[i].Err)
		}
	}
}

// Keys that are got together share their batches: of remembered places there is one batch.
func TestGroupSharesBatches(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		keys := r.withMany(6)
		if len(keys) != 6 {
			t.Fatalf("room for %d keys in the index of the fake", len(keys))
		}
		for _, want := range []uint64{4, 1} { // root, directory, buckets, items; then the items
			before := r.counters().ReadBatches
			r.many(keys)
			if n := r.counters().ReadBatches - before; n != want {
				t.Errorf("%d batches, want %d", n, want)
			}
		}
		if k := r.counters(); k.OneSidedHits != 12 || k.OneReadHits != 6 || k.Gets != 12 || k.SendGets != 0 {
			t.Errorf("%+v", k)
		}
	})
}

// Each key of a group has the answer that it would have alone.
func TestGroupAnswersAsGetsDo(t *testing.T) {
	for _, direct := range []bool{false, true} {
		inBubble(t, func(r *rig) { r.Direct = direct }, func(t *testing.T, r *rig) {
			keys := r.withMany(4)
			r.many(keys)
			large := r.withLarge(mib, 5) // of key
			stale, at := small(0)
			r.Change(func(mem []byte) { // keys[0] has moved
				layout.SetState(mem[at.Byte():], 1, layout.Dead)
				r.PutItem(mem, seg, itemA, stale, append([]byte("value of "), stale...), 2)
			})
			r.Change(func(mem []byte) { // keys[1] is damaged
				for i := range 1000 {
					if k, at := small(i); string(k) == string(keys[1]) {
						mem[at.Byte()+layout.ItemHeaderSize] ^= 1
					}
				}
			})
			r.on(wire.TypeGet, func(h wire.Header, body []byte) []byte {
				m, err := wire.ParseGet(body)
				if err != nil || string(m.Key) != string(keys[1]) {
					t.Errorf("asked for %q, %v", m.Key, err)
				}
				return saying("value of "+string(keys[1]))(h, body)
			})
			asked := append(append([][]byte{}, keys...), key, []byte("absent"), nil)
			results := make([]base.Result, len(asked))
			err := Many(t.Context(), r.router, asked, results)
			part := (*base.PartialError)(nil)
			if !errors.As(err, &part) || len(part.Failures) != 1 || part.Failures[0].Index != len(asked)-1 || !errors.Is(err, base.ErrKeyEmpty) {
				t.Errorf("only the key that is none should fail: %v", err)
			}
			for i, k := range keys {
				if string(results[i].Value) != "value of "+string(k) {
					t.Errorf("%q: %q, %v", k, results[i].Value, results[i].Err)
				}
			}
			if got := results[len(keys)]; string(got.Value) != large {
				t.Errorf("the large value: %d bytes, %v", len(got.Value), got.Err)
			}
			if got := results[len(keys)+1]; !errors.Is(got.Err, base.ErrNotFound) {
				t.Errorf("the absent key: %q, %v", got.Value, got.Err)
			}
			if n := r.counters().SendGets; n != 1 {
				t.Errorf("%d asked by SEND", n)
			}
		})
	}
}

// What a group has READ counts under the lease that was in force before, as in a get.
func TestGroupNeedsALease(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		keys := r.withMany(3)
		r.many(keys)
		r.reset()
		r.on(wire.TypeGet, func(h wire.Header, body []byte) []byte {
			m, _ := wire.ParseGet(body)
			return saying("value of "+string(m.Key))(h, body)
		})
		r.hook(func(layout.Place, []byte) { r.clock.Advance(10 * time.Second) })
		hits := r.counters().OneSidedHits
		r.many(keys)
		k := r.counters()
		if k.SendGets != 3 || k.OneSidedHits != hits || k.LeaseExpired < 3 {
			t.Errorf("%+v", k)
		}
		// A lease that is known to be over: nothing is READ.
		r.hook(nil)
		r.s.Lease.Lapse(r.s.Lease.Grant())
		r.reset()
		r.many(keys)
		r.expectBeside("", wire.TypeGet, wire.TypeGet, wire.TypeGet)
	})
}

// A group that loses its connection is got singly, on the next one. If there is none each key
// fails, without a wait for each.
func TestGroupLosesItsConnection(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		keys := r.withMany(5)
		r.many(keys)
		for _, away := range []bool{false, true} {
			q := r.LastQP()
			q.HoldReads()
			results := make([]base.Result, len(keys))
			done := make(chan error)
			begun := time.Now()
			go func() { done <- Many(t.Context(), r.router, keys, results) }()
			time.Sleep(time.Millisecond)
			if away {
				r.Reject = wire.AppendReject(nil, wire.Reject{Status: wire.StatusAuth})
			}
			q.Die(rdma.ErrPeerGone)
			err := <-done
			if !away {
				if err != nil {
					t.Error(err)
				}
				continue
			}
			part := (*base.PartialError)(nil)
			if !errors.As(err, &part) || len(part.Failures) != len(keys) || !errors.Is(err, base.ErrAuth) {
				t.Error(err)
			}
			if took := time.Since(begun); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
		}
	})
}
