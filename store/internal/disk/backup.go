package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/store/internal/base"
)

// ErrBackupDir: a backup goes to a directory that does not exist yet, on the
// file system of the store.
var ErrBackupDir = errors.New("store: a backup is made in a new directory")

// Checkpoint makes the data of a backup in dir, which must not exist. The backup is
// none before SealBackup.
func (d *Disk) Checkpoint(dir string) error {
	c := d.c
	c.Dir = dir
	if _, err := c.FS.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s is there already", ErrBackupDir, dir)
	}
	if err := makeDir(c.FS, dir); err != nil {
		return fmt.Errorf("%w: %w", ErrBackupDir, err)
	}
	if err := d.db.Checkpoint(c.FS.PathJoin(dir, dataDir), pebble.WithFlushedWAL()); err != nil {
		return fmt.Errorf("store: backup: %w", err)
	}
	return nil
}

// SealBackup makes a backup of what Checkpoint left in dir.
func (d *Disk) SealBackup(dir string) error {
	c := d.c
	c.Dir = dir
	if err := syncDir(c.FS, c.FS.PathJoin(dir, dataDir)); err != nil {
		return err
	}
	if err := writeWhole(c, 0); err != nil {
		return err
	}
	id := identity{format: formatVersion, reader: formatVersion, shards: uint32(c.Shards), id: d.facts.id}
	return writeFile(c.FS, c.FS.PathJoin(dir, identityFile), id.encode())
}

// epochsPerRestore is how many epochs a restored store leaves free, so that its
// versions are none that the store it was made from gave out since.
const EpochsPerRestore = 64

// Adopt makes a store of its own out of a copy of a backup in dir: with a new
// id and a new epoch, and without the word that its last server ended cleanly,
// so that nothing that clients remember of the old one is believed of it. The
// copy must have no STORE file yet; Adopt writes it last, so that a copy that
// was cut short is never taken for a store. id is the content of the backup's
// STORE file.
func Adopt(dir string, opt InspectOptions, id []byte) (newID [16]byte, err error) {
	c := Config{Dir: dir, FS: opt.FS}.WithDefaults()
	old, err := parseIdentity(id)
	if err != nil {
		return newID, &base.CorruptError{File: identityFile, Err: err}
	}
	if old.reader > formatVersion {
		return newID, facts{format: old.format, reader: old.reader}.check(c)
	}
	if _, _, err := compareLedger(c); err != nil {
		return newID, openFault(dir, err)
	}
	c.Shards = int(old.shards)
	d := New(c, base.NewFence(c.Logger, func(error) {}), &base.Counters{})
	d.fence.Opening.Store(true)
	d.ledger = newLedger(c, ledgerText{})
	o := pebbleOptions(c, d.events)
	o.FS = &stopFS{FS: &ledgerFS{FS: c.FS, ledger: d.ledger}, events: d.events}
	if d.db, d.stuck, err = openPebble(c.FS.PathJoin(dir, dataDir), o, d.fence); err != nil {
		return newID, openFault(dir, err)
	}
	err = d.fenceable(func() error { return d.adopt(old) })
	if err = errors.Join(err, d.fenceable(func() error { return closePebble(d.db) })); err != nil {
		return newID, openFault(dir, err)
	}
	if err := writeWhole(c, 0); err != nil {
		return newID, err
	}
	old.id = d.facts.id
	return old.id, writeFile(c.FS, c.FS.PathJoin(dir, identityFile), old.encode())
}

// adopt changes the facts.
func (d *Disk) adopt(old identity) (err error) {
	if d.facts, err = readFacts(d.db); err != nil {
		return err
	}
	if err := d.facts.check(d.c); err != nil {
		return err
	}
	if d.facts.id != old.id {
		return &base.CorruptError{File: dataDir, Detail: fmt.Sprintf("it belongs to store %s, %s says %s",
			idString(d.facts.id), identityFile, idString(old.id))}
	}
	if int(d.facts.epoch)+EpochsPerRestore > 1<<16-2 {
		return base.ErrEpochs
	}
	d.facts.id = newIdentity()
	d.facts.epoch += EpochsPerRestore
	source := append(binary.LittleEndian.AppendUint16(nil, d.facts.epoch), old.id[:]...)
	b := d.db.NewBatch()
	defer b.Close()
	err = errors.Join(
		setMeta(b, metaID, d.facts.id[:]),
		setMeta(b, metaEpoch, []byte{byte(d.facts.epoch), byte(d.facts.epoch >> 8)}),
		setMeta(b, metaRestored, source),
		b.Delete(metaKey(metaClean), nil),
		b.Delete(metaKey(metaRefused), nil), // a new store, which is nobody's copy
	)
	if err != nil {
		return err
	}
	if err := b.Commit(pebble.Sync); err != nil {
		return err
	}
	return d.db.Flush()
}

// BackupFiles are the files that a backup consists of, STORE last, with their
// sizes: what a copy has to copy, in that order. dir is a backup or a stopped
// store that the caller has locked.
func BackupFiles(dir string, opt InspectOptions) (names []string, sizes []int64, err error) {
	c := Config{Dir: dir, FS: opt.FS}.WithDefaults()
	in, err := c.FS.List(c.FS.PathJoin(dir, dataDir))
	if err != nil {
		return nil, nil, openFault(dir, err)
	}
	for _, name := range in {
		if name != lockFile && !strings.HasPrefix(name, "temporary.") {
			names = append(names, c.FS.PathJoin(dataDir, name))
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
