package control

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// A nodeOf makes "backups" with one file in them.
type nodeOf struct{}

func (nodeOf) Backup(_ context.Context, dir string) error {
	return errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "STORE"), nil, 0o600))
}

// A start removes what a killed server was handing out, and nothing that its
// operator has put there.
func TestServeRemovesItsOwnAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a[bc]") // no pattern
	mine, others := filepath.Join(dir, backupPrefix+"1"), filepath.Join(dir, "backup-20261120")
	for _, path := range []string{mine, others} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Serve(dir, nodeOf{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := os.Stat(mine); !os.IsNotExist(err) {
		t.Error("a backup that nobody fetches is still there", err)
	}
	if _, err := os.Stat(others); err != nil {
		t.Error(err)
	}
	path, release, err := Backup(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(path, "STORE")); err != nil {
		t.Error(err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
}
