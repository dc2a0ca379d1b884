package disk

import (
	"strings"
	"testing"
)

// TestRefusalBytes: whatever stands in the directory is a refusal or damage.
func TestRefusalBytes(t *testing.T) {
	for _, n := range []int{0, 17, 18 + maxCause + 1} {
		if r, err := parseRefusal(make([]byte, n)); err == nil {
			t.Errorf("%d bytes are %+v", n, r)
		}
	}
	r := Refusal{Cause: strings.Repeat("x", maxCause), Other: 3, Epoch: 4}
	got, err := parseRefusal(r.encode())
	if err != nil || len(got.Cause) != maxCause || got.Other != 3 || got.Epoch != 4 {
		t.Errorf("%+v, %v", got, err)
	}
}
