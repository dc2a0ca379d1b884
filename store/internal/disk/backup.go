package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/log"
)

// ErrBackupDir: a backup goes to a directory that does not exist yet, on the
// file system of the store.
var ErrBackupDir = errors.New("store: a backup is made in a new directory")

// Checkpoint makes the data of a backup in dir, which must not exist. The backup is
// none before SealBackup. It has what the base has: all that was published before a
// checkpoint of the log that has ended before.
func (d *Disk) Checkpoint(dir string) error {
	c := d.c
	c.Dir = dir
	if _, err := c.FS.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s is there already", ErrBackupDir, dir)
	}
	if err := makeDir(c.FS, dir); err != nil {
		return fmt.Errorf("%w: %w", ErrBackupDir, err)
	}
	if err := d.db.Checkpoint(c.FS.PathJoin(dir, dataDir)); err != nil {
		return fmt.Errorf("store: backup: %w", err)
	}
	return nil
}

// SealBackup makes a backup of what Checkpoint left in dir.
func (b *Base) SealBackup(dir string) error {
	d := b.d
	c := d.c
	c.Dir = dir
	if err := syncDir(c.FS, c.FS.PathJoin(dir, dataDir)); err != nil {
		return err
	}
	if err := writeWhole(c, 0); err != nil {
		return err
	}
	id := identity{format: formatVersion, reader: formatVersion, shards: uint32(c.Shards), id: d.facts.id, unlogged: true}
	return writeFile(c.FS, c.FS.PathJoin(dir, identityFile), id.encode())
}

// BackupFiles are the files that a backup consists of, STORE last, with their
// sizes: what a copy has to copy, in that order, into the same directories. dir is a
// backup or a stopped store that the caller has locked. Of a store with a log of its own
// that is copied, too, whether it stopped cleanly or not: the copy is the same store.
func BackupFiles(dir string, opt InspectOptions) (names []string, sizes []int64, err error) {
	c := Config{Dir: dir, FS: opt.FS}.WithDefaults()
	text, err := readFile(c.FS, c.FS.PathJoin(dir, identityFile))
	if err != nil {
		return nil, nil, openFault(dir, err)
	}
	id, err := parseIdentity(text)
	if err != nil {
		return nil, nil, openFault(dir, &base.CorruptError{File: identityFile, Err: err})
	}
	dirs := []string{dataDir}
	if id.format >= logFormat && !id.unlogged {
		dirs = append(dirs, logDir)
		if _, err := c.FS.Stat(c.FS.PathJoin(dir, valuesDir)); err == nil {
			dirs = append(dirs, valuesDir)
		}
	}
	for _, sub := range dirs {
		in, err := c.FS.List(c.FS.PathJoin(dir, sub))
		if err != nil {
			return nil, nil, openFault(dir, err)
		}
		for _, name := range in {
			if name == lockFile || strings.HasPrefix(name, "temporary.") || sub == logDir && !log.IsPart(name) {
				continue
			}
			names = append(names, c.FS.PathJoin(sub, name))
		}
	}
	if _, err := c.FS.Stat(c.FS.PathJoin(dir, ledgerFile)); err == nil {
		names = append(names, ledgerFile)
	}
	names = append(names, identityFile)
	for _, name := range names {
		info, err := c.FS.Stat(c.FS.PathJoin(dir, name))
		if err != nil {
			return nil, nil, openFault(dir, err)
		}
		sizes = append(sizes, info.Size())
	}
	return names, sizes, nil
}

// LockStopped locks the directory of a stopped store until release is called.
// Errors as Inspect.
func LockStopped(dir string, opt InspectOptions) (release func() error, err error) {
	c := Config{Dir: dir, FS: opt.FS}.WithDefaults()
	lock, _, _, err := enterDir(c, false)
	if err != nil {
		return nil, err
	}
	return lock.Close, nil
}
