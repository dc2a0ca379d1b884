package store

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

// TestBlobFilesAfterACrash: a blob file that is missing, or has not the size that
// the manifest says, is named by the next start and by Check after a crash too,
// when the ledger does not know it.
func TestBlobFilesAfterACrash(t *testing.T) {
	mem := crashfs.New()
	c := testConfig(mem)
	c.noKeeper, c.bytesFrom = true, 0
	n := open(t, c)
	n.blobFiles(1, []string{"key-0", "key-1"}, []string{pattern(5000, "0"), pattern(5000, "1")})
	n.disk.Heartbeat()
	// blobs are those that the manifest of the crashed disk has: others may wait for their removal.
	blobs := n.blobNames()
	var crashed *crashfs.Disk
	for {
		crashed = mem.CrashClone(vfs.CrashCloneCfg{})
		after := n.blobNames()
		if slices.Equal(blobs, after) {
			break
		}
		blobs = after // a compaction ended meanwhile
	}
	if len(blobs) < 2 {
		t.Fatalf("blob files: %q, want two", blobs)
	}
	blobs = blobs[:2]
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
	n, err := tryOpen(t, func() Config { c := testConfig(crashed); c.PredecessorGone = true; return c }())
	if err != nil {
		t.Fatal("undamaged: ", err)
	}
	n.want(1, "key-0", pattern(5000, "0"))
}

// blobNames returns the names of the blob files that the manifest has now, sorted.
func (n *node) blobNames() []string {
	n.t.Helper()
	names, err := n.disk.ForTests().BlobFiles()
	if err != nil {
		n.t.Fatal(err)
	}
	return names
}

// blobFiles puts values and has Pebble make a blob file with each, by flushes. The tables of a
// checkpoint have their values inside, so records of a base are written again for that.
func (n *node) blobFiles(shard int, keys, values []string) {
	n.t.Helper()
	db := n.disk.ForTests().DB()
	if n.ckpt != nil {
		for i, key := range keys {
			n.put(shard, key, values[i])
		}
		n.checkpoint()
	}
	for i, key := range keys {
		if n.ckpt == nil {
			n.put(shard, key, values[i])
		} else {
			pkey := disk.AppendKey(nil, uint16(shard), disk.KindValue, []byte(key))
			record, closer, err := db.Get(pkey)
			if err != nil {
				n.t.Fatal(err)
			}
			err = db.Set(pkey, record, pebble.NoSync)
			if err := errors.Join(err, closer.Close()); err != nil {
				n.t.Fatal(err)
			}
		}
		if err := db.Flush(); err != nil {
			n.t.Fatal(err)
		}
	}
}
