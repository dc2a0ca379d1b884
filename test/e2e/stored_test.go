package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/test/node"
)

// verifyStored reads every key of the stored data directories, one by one and by a scan.
func verifyStored(t *testing.T, n *node.Node, what string) {
	t.Helper()
	c := dial(t, n)
	want := make(map[string]client.Item)
	for _, k := range storedKeys() {
		item, err := c.GetItem(t.Context(), k.key)
		switch {
		case k.value == nil && errors.Is(err, client.ErrNotFound):
		case k.value == nil:
			t.Fatalf("%s: key %q was gone, and has %d bytes, %v", what, k.key, len(item.Value), err)
		case err != nil || !bytes.Equal(item.Value, k.value):
			t.Fatalf("%s: key %q has %d bytes, want %d, %v", what, k.key, len(item.Value), len(k.value), err)
		case k.lasts == item.Expiry.IsZero():
			t.Fatalf("%s: key %q expires at %v", what, k.key, item.Expiry)
		default:
			want[string(k.key)] = item
		}
	}
	for e, err := range c.Scan(t.Context(), client.ScanOptions{}) {
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if w, ok := want[string(e.Key)]; !ok || e.Version != w.Version || !bytes.Equal(e.Value, w.Value) {
			t.Fatalf("%s: a scan shows key %q with version %#x, a get version %#x", what, e.Key, e.Version, w.Version)
		}
		delete(want, string(e.Key))
	}
	for key := range want {
		t.Fatalf("%s: a scan leaves out key %q", what, key)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// storeText is the text that says what a data directory is.
func storeText(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "STORE"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// packDir is the regular files of a directory as a compressed archive, without owners and times.
func packDir(t *testing.T, dir string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		name, relErr := filepath.Rel(dir, path)
		if err = errors.Join(err, relErr); err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(data))}); err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	if err := errors.Join(err, w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// unpackDir makes a directory of an archive.
func unpackDir(t *testing.T, archive, dir string) {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		data, err := io.ReadAll(r)
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}
