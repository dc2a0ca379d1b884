//go:build teeth

package slab

import (
	"testing"

	"github.com/rdmakv/rdmakv/internal/teeth"
)

// Without list, destroyed checksums and lease both scenarios end in a forged
// item that is believed: the test that guards the rule would notice.
func TestF9HasTeeth(t *testing.T) {
	TestReuseIsNeverBelieved(t)
	defer teeth.Pull(teeth.F9ReclaimList)()
	if !hourLater(t) {
		t.Error("rule F9 pulled, and no forged item was believed at a remembered place")
	}
	if !inFlight(t) {
		t.Error("rule F9 pulled, and no READ in flight believed a forged item")
	}
}
