package server

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestOpenToAll(t *testing.T) {
	dir := t.TempDir()
	var want []string
	for name, mode := range map[string]os.FileMode{
		"uverbs0": 0o600, "uverbs1": 0o660, "uverbs2": 0o666, "uverbs3": 0o604, "uverbs4": 0o602, "rdma_cm": 0o666,
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil { // past the umask
			t.Fatal(err)
		}
		if name != "rdma_cm" && mode&0o006 != 0 {
			want = append(want, path)
		}
	}
	slices.Sort(want)
	if got := openToAll(filepath.Join(dir, "uverbs*")); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := openToAll(filepath.Join(dir, "none*")); got != nil {
		t.Errorf("%v", got)
	}
}
