package wholefile

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rdmakv/rdmakv/test/crashfs"
)

// TestPowerCut: whenever the power goes, a file that is replaced is there in its old form or in its new one, and one that is removed is whole or gone.
func TestPowerCut(t *testing.T) {
	disk := crashfs.New()
	if err := errors.Join(disk.MkdirAll("d", 0o700), SyncDir(disk, "/")); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	var clones []*crashfs.Disk
	hooked := errorfs.Wrap(disk, errorfs.InjectorFunc(func(errorfs.Op) error {
		for _, percent := range []int{0, 50, 100} {
			clones = append(clones, disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}))
		}
		return nil
	}))
	const none = "none"
	look := func(fsys vfs.FS) string {
		b, err := Read(fsys, fsys.PathJoin("d", "F"), 100)
		if errors.Is(err, fs.ErrNotExist) {
			return none
		} else if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, step := range []struct {
		do            func() error
		before, after string
	}{
		{func() error { return Replace(hooked, "d", "F", []byte("first")) }, none, "first"},
		{func() error { return Replace(hooked, "d", "F", []byte("second, which is longer")) }, "first", "second, which is longer"},
		{func() error { return Replace(hooked, "d", "F", nil) }, "second, which is longer", ""},
		{func() error { return Replace(hooked, "d", "F", []byte("last")) }, "", "last"},
		{func() error { return Remove(hooked, "d", "F") }, "last", none},
		{func() error { return Remove(hooked, "d", "F") }, none, none},
	} {
		clones = nil
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		for i, clone := range clones {
			if got := look(clone); got != step.before && got != step.after {
				t.Errorf("cut %d on the way from %q to %q: %q", i, step.before, step.after, got)
			}
		}
		if got := look(disk.CrashClone(vfs.CrashCloneCfg{})); got != step.after || len(clones) < 3 {
			t.Errorf("behind the way from %q to %q: %q; the power was cut %d times", step.before, step.after, got, len(clones))
		}
	}
}

// TestFails: what a call cannot do it says, and the file is as it was; the caller's bytes are, too.
func TestFails(t *testing.T) {
	disk := vfs.NewMem()
	content := []byte("content")
	if err := Replace(disk, "", "F", content); err != nil || string(content) != "content" {
		t.Fatal(err, content)
	}
	for _, kind := range []errorfs.OpKind{errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFileSync, errorfs.OpRename, errorfs.OpOpenDir} {
		broken := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == kind {
				return fs.ErrPermission
			}
			return nil
		}))
		err := Replace(broken, "", "F", []byte("other"))
		b, read := Read(disk, "F", 100)
		if !errors.Is(err, fs.ErrPermission) || read != nil || string(b) != "content" && kind != errorfs.OpOpenDir {
			t.Errorf("%v: %v; the file has %q, %v", kind, err, b, read)
		}
	}
	if b, err := Read(disk, "F", 3); err != nil || len(b) != 4 {
		t.Errorf("a file that is larger than 3 bytes: %q, %v", b, err)
	}
}
