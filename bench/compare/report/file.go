package report

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// WriteFile has write make a file, whole or not at all, with the directories above it.
func WriteFile(path string, write func(io.Writer) error) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(0o644))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tmp.Cleanup()) }()
	if err := write(tmp); err != nil {
		return err
	}
	return tmp.CloseAtomicallyReplace()
}
