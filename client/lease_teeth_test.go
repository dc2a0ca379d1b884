//go:build teeth

package client

import (
	"errors"
	"testing"

	"github.com/rdmakv/rdmakv/internal/teeth"
)

// With the rule pulled, the lie of the trace is told: a renewal that arrived
// during the get makes its mixed sample pass for proof of absence.
func TestTeethF4NoRenewal(t *testing.T) {
	defer teeth.Pull(teeth.F4NoRenewal)()
	if err := slowAbsent(t); !errors.Is(err, ErrNotFound) {
		t.Fatalf("F4 pulled, and yet no false absence: %v", err)
	}
}

// With the rule pulled, a hostile value in a reused page is returned.
func TestTeethF9ReclaimList(t *testing.T) {
	defer teeth.Pull(teeth.F9ReclaimList)()
	for _, direct := range []bool{false, true} {
		if got := reusedPage(t, direct); got != "666" {
			t.Fatalf("F9 pulled, and yet the hostile value was not believed: %q", got)
		}
	}
}
