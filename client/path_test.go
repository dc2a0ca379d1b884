package client

import (
	"errors"
	"testing"

	"github.com/rdmakv/rdmakv/store/layout"
)

// TestGetPath: a get tells how it was answered, and the counters of READs and
// messages agree.
func TestGetPath(t *testing.T) {
	f, _, c := newOneSided(t)
	get := func(key string, want Path, reads uint64) {
		t.Helper()
		before := c.Counters()
		_, path, err := c.GetPath(t.Context(), []byte(key), nil)
		if err != nil && !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
		after := c.Counters()
		if n := after.Reads - before.Reads; path != want || n != reads {
			t.Errorf("%q went by %v and %d READs, want %v and %d", key, path, n, want, reads)
		}
	}
	cold := c.Counters().Reads
	_, path, err := c.GetPath(t.Context(), fakeKey, nil)
	if n := c.Counters().Reads - cold; err != nil || path != readPath(uint32(n)) {
		t.Errorf("the first get went by %v and %d READs, %v", path, n, err)
	}
	get(string(fakeKey), PathOneRead, 1)
	f.change(func(mem []byte) { layout.SetState(mem[placeA.Byte():], 1, layout.Dead) })
	f.change(func(mem []byte) { f.putItem(mem, oldSeg, placeB, fakeKey, []byte("two"), 2) })
	_, path, err = c.GetPath(t.Context(), fakeKey, nil)
	if err != nil || path != PathMoreReads {
		t.Errorf("a get that went to a dead item went by %v, %v", path, err)
	}
	for p, name := range map[Path]string{PathUnknown: "unknown", PathOneRead: "read_1", PathTwoReads: "read_2", PathMoreReads: "read_more", PathLarge: "read_large", PathSend: "send"} {
		if p.String() != name {
			t.Errorf("path %d is %q, want %q", p, p, name)
		}
	}
}
