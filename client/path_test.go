package client_test

import (
	"errors"
	"testing"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/internal/read"
	"github.com/rdmakv/rdmakv/store/layout"
)

// TestGetPath: a get tells how it was answered, and the counters of READs and
// messages agree.
func TestGetPath(t *testing.T) {
	f, _, c := newOneSided(t)
	get := func(key string, want admin.Path, reads uint64) {
		t.Helper()
		before := c.Counters()
		_, path, err := admin.Of(c).GetPath(t.Context(), []byte(key), nil, 0)
		if err != nil && !errors.Is(err, client.ErrNotFound) {
			t.Fatal(err)
		}
		after := c.Counters()
		if n := after.Reads - before.Reads; path != want || n != reads {
			t.Errorf("%q went by %v and %d READs, want %v and %d", key, path, n, want, reads)
		}
	}
	cold := c.Counters().Reads
	_, path, err := admin.Of(c).GetPath(t.Context(), fakeKey, nil, 0)
	if n := c.Counters().Reads - cold; err != nil || path != read.PathOf(uint32(n)) {
		t.Errorf("the first get went by %v and %d READs, %v", path, n, err)
	}
	get(string(fakeKey), admin.PathOneRead, 1)
	f.Change(func(mem []byte) { layout.SetState(mem[placeA.Byte():], 1, layout.Dead) })
	f.Change(func(mem []byte) { f.PutItem(mem, oldSeg, placeB, fakeKey, []byte("two"), 2) })
	_, path, err = admin.Of(c).GetPath(t.Context(), fakeKey, nil, 0)
	if err != nil || path != admin.PathMoreReads {
		t.Errorf("a get that went to a dead item went by %v, %v", path, err)
	}
	for p, name := range map[admin.Path]string{admin.PathUnknown: "unknown", admin.PathOneRead: "read_1", admin.PathTwoReads: "read_2", admin.PathMoreReads: "read_more", admin.PathLarge: "read_large", admin.PathSend: "send"} {
		if p.String() != name {
			t.Errorf("path %d is %q, want %q", p, p, name)
		}
	}
}
