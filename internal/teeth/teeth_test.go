package teeth

import "testing"

func TestHook(t *testing.T) {
	var got []uint64
	SetHook(func(point string, args ...uint64) {
		if point == "here" {
			got = append(got, args...)
		}
	})
	At("here", 7, 8)
	SetHook(nil)
	At("here", 9)
	if len(got) != 2 || got[0] != 7 || got[1] != 8 {
		t.Errorf("hook saw %v, want [7 8]", got)
	}
}
