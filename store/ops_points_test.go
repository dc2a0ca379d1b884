//go:build points

package store

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/store/index"
	"github.com/rdmakv/rdmakv/store/layout"
)

// TestBatchOrder puts and deletes keys in batches. Between any two steps of
// a batch clients read one key after another, in every order, one-sidedly, some
// of them at places that they remember: who has seen one key as the batch makes
// it sees no other as it was before.
func TestBatchOrder(t *testing.T) {
	n := open(t, testConfig(memFS()))
	n.fill()
	keys := []string{"a", "b", "c", "d"}
	round := 0
	// of returns the round that a reader sees a key in; -1: he must ask.
	of := func(r *reader, key string) int {
		_, value, ok, ask := r.get(0, key)
		switch {
		case ask:
			return -1
		case !ok:
			return round // d: deleted in this round
		}
		var at int
		if _, err := fmt.Sscanf(value, "round %d", &at); err != nil {
			t.Errorf("value %q", value)
		}
		return at
	}
	readers := []*reader{n.reader(), n.reader()}
	looking := false
	hook(t, func(point string, args ...uint64) {
		if !looking || !strings.HasPrefix(point, "batch.") {
			return
		}
		for _, r := range readers {
			for i := range keys {
				newest, where := 0, ""
				for j := range keys {
					key := keys[(i+j)%len(keys)]
					at := of(r, key)
					if at >= 0 && at < newest {
						t.Errorf("at %s: %s of round %d was read, after it %s of round %d", point, where, newest, key, at)
					}
					if at > newest {
						newest, where = at, key
					}
				}
			}
		}
	})
	for round = 1; round <= 4; round++ {
		looking = round > 1
		w := Write{Op: Op{Kind: OpBatch}}
		for _, key := range keys {
			w.Parts = append(w.Parts, Part{Key: []byte(key), Value: fmt.Appendf(nil, "round %d", round)})
		}
		w.Parts[3].Delete = round == 4
		n.do(w)
	}
}

// TestBatchOrderOfSlotlessDelete: a batch deletes a key that has no slot, and so is counted,
// and puts another one. Were the count lowered with the delete, readers would
// believe that the one is absent while the old item of the other still is live:
// they would see one part of the batch beside a state from before it.
func TestBatchOrderOfSlotlessDelete(t *testing.T) {
	n := open(t, testConfig(memFS()))
	n.fill()
	n.put(0, "counted", "old")
	n.put(0, "live", "old")
	n.evictKey(0, "counted")
	// As if it had found no room in the index.
	sh, h := n.shard(0), n.hash("counted")
	sh.Mu.Lock()
	sh.Index.AddSlotless(h)
	sh.Index.Near(h, func(r index.Ref) bool {
		if r.Slot() == layout.PebbleSlot(h) {
			sh.Index.Clear(r)
		}
		return true
	})
	sh.Mu.Unlock()
	r := n.reader()
	r.want(0, "live", "old")
	r.wantAsk(0, "counted")
	hook(t, func(point string, _ ...uint64) {
		_, value, there, ask := r.get(0, "counted")
		if ask {
			return
		}
		if there {
			t.Errorf("at %s: a reader finds %q", point, value)
		}
		if _, value, there, ask := r.get(0, "live"); !ask && there && value == "old" {
			t.Errorf("at %s: the deleted key is absent, and after it the other key is %q", point, value)
		}
	})
	n.do(Write{Op: Op{Kind: OpBatch, Parts: []Part{
		{Key: []byte("counted"), Delete: true},
		{Key: []byte("live"), Value: []byte("new")},
	}}})
	teeth.SetHook(nil)
	r.want(0, "live", "new")
	n.wantAbsent(0, "counted")
}
