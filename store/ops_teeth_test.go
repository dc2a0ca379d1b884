//go:build teeth

package store

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/teeth"
)

// TestF13BatchOrder puts and deletes keys in batches. Between any two steps of
// a batch clients read one key after another, in every order, one-sidedly, some
// of them at places that they remember: who has seen one key as the batch makes
// it sees no other as it was before.
func TestF13BatchOrder(t *testing.T) {
	bites(t, teeth.F13BatchOrder, func(t *testing.T, found *violations) {
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
							found.add("at %s: %s of round %d was read, after it %s of round %d", point, where, newest, key, at)
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
			w := Write{Op: OpBatch}
			for _, key := range keys {
				w.Parts = append(w.Parts, Part{Key: []byte(key), Value: fmt.Appendf(nil, "round %d", round)})
			}
			w.Parts[3].Delete = round == 4
			n.do(w)
		}
	})
}
