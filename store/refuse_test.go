package store

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/test/crashfs"
)

// TestRefused: a directory that must not be served says so from then on, across a
// crash at once, until an epoch is accepted that is not below the one named; an
// opening that gave out no version leaves the epoch as it was.
func TestRefused(t *testing.T) {
	fsys := crashfs.New()
	epoch := func(fs vfs.FS) uint16 {
		t.Helper()
		in, err := Inspect(context.Background(), testConfig(fs).Dir, InspectOptions{FS: fs})
		if err != nil {
			t.Fatal(err)
		}
		return in.Epoch
	}
	isRefused := func(fs vfs.FS, above uint16) {
		t.Helper()
		c := testConfig(fs)
		c.EpochAbove = above
		s, err := Open(context.Background(), c)
		if err == nil {
			_ = s.Close()
			t.Fatal("it is served")
		}
		for _, part := range []string{"somebody else is this node", "delete it", "--accept-rollback 40)"} {
			if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), part) {
				t.Errorf("%v; want ErrRefused with %q", err, part)
			}
		}
	}
	n := open(t, testConfig(fsys))
	n.put(0, "key", "value")
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	before := epoch(fsys)

	n = open(t, testConfig(fsys))
	if err := n.Refuse(Refusal{Cause: "somebody else is this node" + strings.Repeat(", really", 100), Other: 7, Epoch: 40}); err != nil {
		t.Fatal(err)
	}
	isRefused(fsys.CrashClone(vfs.CrashCloneCfg{}), 0)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	for _, above := range []uint16{0, 39} {
		isRefused(fsys, above)
	}
	if got := epoch(fsys); got != before {
		t.Errorf("epoch %d after refused openings, %d before", got, before)
	}
	c := testConfig(fsys)
	c.EpochAbove = 40
	n = open(t, c)
	if got := n.Epoch(); got <= 40 {
		t.Errorf("it begins at epoch %d, and 40 has been", got)
	}
	last := n.Epoch()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	n = open(t, testConfig(fsys)) // once is enough
	version := n.put(0, "key", "other")
	if err := n.Refuse(Refusal{Cause: "too late", Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if got := epoch(fsys); got != last+1 {
		t.Errorf("epoch %d, although versions of %d were given out", got, last+1)
	}
	c.EpochAbove = last + 1
	if other := open(t, c).put(0, "key", "more"); other <= version {
		t.Errorf("version %v after %v", other, version)
	}
}
