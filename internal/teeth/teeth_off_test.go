//go:build !teeth

package teeth

import "testing"

// In a shipped build no rule can be out, and passing a point costs nothing.
func TestShippedBuildObeys(t *testing.T) {
	if Enabled {
		t.Fatal("Enabled without the build tag")
	}
	for r := Rule(0); r < numRules; r++ {
		if Off(r) {
			t.Errorf("%v is off", r)
		}
	}
	if n := testing.AllocsPerRun(100, func() { At("point", 1, 2) }); n != 0 {
		t.Errorf("At allocates %v times", n)
	}
}
