package inspect

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A witness looks at a directory while a copy reports that it is done.
type witness struct {
	dir    string
	copied bool
	t      *testing.T
}

func (w *witness) Write(b []byte) (int, error) {
	if bytes.HasPrefix(b, []byte("copied ")) {
		w.copied = true
		if _, err := os.Stat(filepath.Join(w.dir, "STORE")); !errors.Is(err, fs.ErrNotExist) {
			w.t.Errorf("the copy is a store by the old id: %v", err)
		}
	}
	return len(b), nil
}

// A restore that is killed leaves no store behind that goes by the old id.
func TestRestoreIsNoStoreBeforeItHasItsOwnID(t *testing.T) {
	src := makeStore(t, "a", "b")
	dir := filepath.Join(t.TempDir(), "new")
	w := &witness{dir: dir, t: t}
	if err := Restore(t.Context(), w, src, dir); err != nil || !w.copied {
		t.Fatal(err, w.copied)
	}
	old, err := os.ReadFile(filepath.Join(src, "STORE"))
	if err != nil {
		t.Fatal(err)
	}
	if id, err := os.ReadFile(filepath.Join(dir, "STORE")); err != nil || bytes.Equal(id, old) {
		t.Error("the same id", err)
	}
}

// A backup that fails leaves nothing behind, and can be made again.
func TestBackupThatFailsLeavesNothing(t *testing.T) {
	src := makeStore(t, "a", "b")
	dest := filepath.Join(t.TempDir(), "backup")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Backup(ctx, io.Discard, src, dest); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dest); err == nil && len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	if err := Backup(t.Context(), io.Discard, src, dest); err != nil {
		t.Error(err)
	}
}

// A backup does not go into the store itself, by whatever name.
func TestBackupInsideTheStore(t *testing.T) {
	src := makeStore(t, "a")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(src, link); err != nil {
		t.Fatal(err)
	}
	for _, dest := range []string{src, filepath.Join(src, "backup"), filepath.Join(src, "data", "x", "y"), filepath.Join(link, "backup")} {
		if err := Backup(t.Context(), io.Discard, src, dest); err == nil || !strings.Contains(err.Error(), "inside the store") {
			t.Errorf("%s: %v", dest, err)
		}
	}
	if err := Check(t.Context(), io.Discard, io.Discard, src); err != nil {
		t.Error(err)
	}
}
