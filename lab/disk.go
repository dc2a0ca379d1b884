package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/rdmakv/rdmakv/lab/image"
)

// NewDisk makes a file with an empty ext4 file system for Config.Disk, size in
// MiB. It outlives its guests: after Kill it holds what a disk holds after a
// power cut: the data that was synced and perhaps some of the rest.
func NewDisk(file string, size int) error {
	if size < 16 || size > 64<<10 {
		return fmt.Errorf("a disk of %d MiB: from 16 to %d", size, 64<<10)
	}
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(int64(size)<<20), f.Close()); err != nil {
		return err
	}
	mkfs := image.Find("mkfs.ext4")
	if mkfs == "" {
		return fmt.Errorf("%w: no mkfs.ext4 (package e2fsprogs)", image.ErrMissing)
	}
	if out, err := exec.Command(mkfs, "-q", "-F", file).CombinedOutput(); err != nil {
		return fmt.Errorf("mkfs.ext4: %w: %s", err, out)
	}
	return nil
}
