package inspect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/store/region"
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

// A restore that is killed leaves no store behind that has the old id.
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
	if err := Backup(ctx, io.Discard, src, dest, Undecided); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dest); err == nil && len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	if err := Backup(t.Context(), io.Discard, src, dest, Undecided); err != nil {
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
		if err := Backup(t.Context(), io.Discard, src, dest, Undecided); err == nil || !strings.Contains(err.Error(), "inside the store") {
			t.Errorf("%s: %v", dest, err)
		}
	}
	if err := Check(t.Context(), io.Discard, io.Discard, src); err != nil {
		t.Error(err)
	}
}

// addSpace puts a store of a tenant below a node's.
func addSpace(t *testing.T, node, name string, keys ...string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(node, "tenants"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(makeStore(t, keys...), filepath.Join(node, "tenants", name)); err != nil {
		t.Fatal(err)
	}
}

// TestBackupOfSpaces: a backup of a node with tenants says which of its stores it
// is of, and is refused otherwise; one of all is restored as all.
func TestBackupOfSpaces(t *testing.T) {
	node := makeStore(t, "own")
	addSpace(t, node, "blue", "of blue")
	addSpace(t, node, "red", "of red", "of red too")
	out := t.TempDir()
	err := Backup(t.Context(), io.Discard, node, filepath.Join(out, "undecided"), Undecided)
	if err == nil || !strings.Contains(err.Error(), "2 tenant spaces") || !strings.Contains(err.Error(), "--all") {
		t.Errorf("undecided: %v", err)
	}
	if _, err := os.Stat(filepath.Join(out, "undecided")); err == nil {
		t.Error("a backup that was refused made a directory")
	}
	if err := Backup(t.Context(), io.Discard, node, filepath.Join(out, "main"), MainOnly); err != nil {
		t.Error(err)
	}
	if found := spacesIn(filepath.Join(out, "main")); len(found) > 0 {
		t.Errorf("--main-only copied %v", found)
	}
	if err := Backup(t.Context(), io.Discard, node, filepath.Join(out, "all"), All); err != nil {
		t.Fatal(err)
	}
	restored := filepath.Join(out, "restored")
	if err := Restore(t.Context(), io.Discard, filepath.Join(out, "all"), restored); err != nil {
		t.Fatal(err)
	}
	for dir, keys := range map[string]int{restored: 1, filepath.Join(restored, "tenants", "blue"): 1, filepath.Join(restored, "tenants", "red"): 2} {
		var text bytes.Buffer
		if err := Check(t.Context(), &text, io.Discard, dir); err != nil {
			t.Error(err)
		}
		if want := fmt.Sprintf("keys       %d\n", keys); !strings.Contains(text.String(), want) {
			t.Errorf("%s lacks %q:\n%s", dir, want, text.String())
		}
	}
	alone := makeStore(t, "own")
	if err := Backup(t.Context(), io.Discard, alone, filepath.Join(out, "alone"), Undecided); err != nil {
		t.Errorf("a node without tenants: %v", err)
	}
}

// TestRestoredStoreSaysSo: a store that was restored and never started is no
// store that was killed; once it has been started it is like any other.
func TestRestoredStoreSaysSo(t *testing.T) {
	src, dir := makeStore(t, "a"), filepath.Join(t.TempDir(), "restored")
	if err := Restore(t.Context(), io.Discard, src, dir); err != nil {
		t.Fatal(err)
	}
	id, err := store.Inspect(t.Context(), src, store.InspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	says := func(want string) {
		t.Helper()
		var text bytes.Buffer
		if err := Check(t.Context(), &text, io.Discard, dir); err != nil || !strings.Contains(text.String(), want) {
			t.Errorf("%v; want %q in:\n%s", err, want, text.String())
		}
	}
	says(fmt.Sprintf(", restored from a backup of store %x, never started\n", id.ID))
	s, err := store.Open(t.Context(), store.Config{
		Dir: dir, Shards: 4, Memory: new(region.HeapMemory), MemoryLimit: 32 << 20, RegionSize: 4 << 20, IndexRegionSize: 4 << 20,
		PredecessorGone: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	says(", ended cleanly\n")
}
