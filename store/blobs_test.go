package store

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestBlobFilesAfterACrash: a blob file that is missing, or has not the size that
// the manifest says, is named by the next start and by Check after a crash too,
// when the ledger does not know it.
func TestBlobFilesAfterACrash(t *testing.T) {
	disk := vfs.NewCrashableMem()
	c := testConfig(disk)
	c.noKeeper = true
	n := open(t, c)
	for i := range 2 { // a flush makes a file, and so does a checkpoint
		n.put(1, fmt.Sprint("key-", i), pattern(5000, fmt.Sprint(i)))
		n.checkpoint()
		if err := n.disk.ForTests().DB().Flush(); err != nil {
			t.Fatal(err)
		}
	}
	n.disk.Heartbeat()
	crashed := disk.CrashClone(vfs.CrashCloneCfg{})
	names, err := crashed.List("/store/data")
	if err != nil {
		t.Fatal(err)
	}
	blobs := slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, ".blob") })
	slices.Sort(blobs)
	if len(blobs) != 2 {
		t.Fatalf("blob files: %q, want 2", blobs)
	}
	remove := func(fs vfs.FS, name string) error { return fs.Remove(name) }
	resize := func(by int) func(vfs.FS, string) error {
		return func(fs vfs.FS, name string) error {
			b := readText(t, fs, name)
			return createText(fs, name, (b + strings.Repeat("\x00", max(by, 0)))[:len(b)+by])
		}
	}
	for _, tt := range []struct {
		name   string
		files  []string
		damage func(fs vfs.FS, name string) error
		want   string
	}{
		{"missing", blobs[:1], remove, "missing; the manifest has it with "},
		{"longer", blobs[1:], resize(1), "longer than the "},
		{"shorter", blobs[1:], resize(-1), "shorter than the "},
		{"two missing", blobs, remove, "; 1 more blob files are damaged, kvserver check names them"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fs := vfs.NewMem()
			if ok, err := vfs.Clone(crashed, fs, "/store", "/store"); err != nil || !ok {
				t.Fatal(ok, err)
			}
			for _, name := range tt.files {
				if err := tt.damage(fs, path.Join("/store/data", name)); err != nil {
					t.Fatal(err)
				}
			}
			c := testConfig(fs)
			c.PredecessorGone, c.noKeeper = true, true
			_, err := tryOpen(t, c)
			var open *OpenError
			var corrupt *CorruptError
			if !errors.As(err, &open) || !errors.As(err, &corrupt) || corrupt.File != tt.files[0] ||
				!strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "restore a backup") || strings.Contains(err.Error(), "\n") {
				t.Errorf("Open: %v; want the file %s, %q and what to do", err, tt.files[0], tt.want)
			}
			in, err := Inspect(context.Background(), "/store", InspectOptions{FS: fs})
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range tt.files {
				if !slices.ContainsFunc(in.Problems, func(err error) bool { return errors.As(err, &corrupt) && corrupt.File == name }) {
					t.Errorf("Inspect: %v; want %s among them", in.Problems, name)
				}
			}
		})
	}
	n, err = tryOpen(t, func() Config { c := testConfig(crashed); c.PredecessorGone = true; return c }())
	if err != nil {
		t.Fatal("undamaged: ", err)
	}
	n.want(1, "key-0", pattern(5000, "0"))
}
