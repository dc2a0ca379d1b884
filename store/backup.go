package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A backup is a directory like that of a store which was stopped: STORE, a
// ledger of all its files, and data. It is made while the store serves, by
// Pebble's checkpoint, which costs links and a copy of the logs, and is one
// state: all that was ordered before some moment, batches whole.
//
// What the checkpoint has may be ahead of what anybody was told. So it is not
// handed out before published has reached all that it can show (rule F5): a
// backup never holds a write that a crash could still take from the store.

// ErrBackupDir: a backup goes to a directory that does not exist yet, on the
// file system of the store.
var ErrBackupDir = errors.New("store: a backup is made in a new directory")

// Backup makes a backup in dir, which must not exist and lie on the file
// system of the store. After an error there may be a piece of one in dir.
// Errors: ErrUnsupported (a cache), ErrBackupDir, ErrClosed, ErrFatal, ctx's,
// the file system's.
func (s *Store) Backup(ctx context.Context, dir string) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	if s.db == nil {
		return ErrUnsupported
	}
	c := s.cfg
	c.Dir = dir
	if _, err := c.FS.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s is there already", ErrBackupDir, dir)
	}
	if err := makeDir(c.FS, dir); err != nil {
		return fmt.Errorf("%w: %w", ErrBackupDir, err)
	}
	if err := s.db.Checkpoint(c.FS.PathJoin(dir, dataDir), pebble.WithFlushedWAL()); err != nil {
		return fmt.Errorf("store: backup: %w", err)
	}
	// All that it can show was ordered before this moment.
	marks := make([]layout.Version, len(s.shards))
	for i, sh := range s.shards {
		sh.mu.Lock()
		marks[i] = sh.ordered
		sh.mu.Unlock()
	}
	for i, sh := range s.shards {
		if teeth.Off(teeth.F5Backup) {
			break
		}
		if err := s.waitPublished(ctx, sh, marks[i]); err != nil {
			return err
		}
	}
	if err := syncDir(c.FS, c.FS.PathJoin(dir, dataDir)); err != nil {
		return err
	}
	if err := writeWhole(c, 0); err != nil {
		return err
	}
	id := identity{format: formatVersion, reader: formatVersion, shards: uint32(len(s.shards)), id: s.facts.id}
	return writeFile(c.FS, c.FS.PathJoin(dir, identityFile), id.encode())
}

// epochsPerRestore is how many epochs a restored store leaves free, so that its
// versions are none that the store it was made from gave out since.
const epochsPerRestore = 64

// Adopt makes a store of its own out of a copy of a backup in dir: with a new
// id and a new epoch, and without the word that its last server ended cleanly,
// so that nothing that clients remember of the old one is believed of it. The
// copy must have no STORE file yet; Adopt writes it last, so that a copy that
// was cut short is never taken for a store. id is the content of the backup's
// STORE file.
func Adopt(dir string, opt InspectOptions, id []byte) (newID [16]byte, err error) {
	c := Config{Dir: dir, FS: opt.FS}.withDefaults()
	old, err := parseIdentity(id)
	if err != nil {
		return newID, &CorruptError{File: identityFile, Err: err}
	}
	if old.reader > formatVersion {
		return newID, facts{format: old.format, reader: old.reader}.check(c)
	}
	if _, _, err := compareLedger(c); err != nil {
		return newID, openFault(dir, err)
	}
	c.Shards = int(old.shards)
	s := &Store{cfg: c, fence: newFence(c.Logger, func(error) {})}
	s.fence.opening.Store(true)
	s.ledger = newLedger(c, ledgerText{})
	o := pebbleOptions(c, s.fence)
	o.FS = &stopFS{FS: &ledgerFS{FS: c.FS, ledger: s.ledger}, fence: s.fence}
	if s.db, s.stuck, err = openPebble(c.FS.PathJoin(dir, dataDir), o, s.fence); err != nil {
		return newID, openFault(dir, err)
	}
	err = s.fenceable(func() error { return s.adopt(old) })
	if err = errors.Join(err, s.fenceable(s.closePebble)); err != nil {
		return newID, openFault(dir, err)
	}
	if err := writeWhole(c, 0); err != nil {
		return newID, err
	}
	old.id = s.facts.id
	return old.id, writeFile(c.FS, c.FS.PathJoin(dir, identityFile), old.encode())
}

// adopt changes the facts.
func (s *Store) adopt(old identity) (err error) {
	if s.facts, err = readFacts(s.db); err != nil {
		return err
	}
	if err := s.facts.check(s.cfg); err != nil {
		return err
	}
	if s.facts.id != old.id {
		return &CorruptError{File: dataDir, Detail: fmt.Sprintf("it belongs to store %s, %s says %s",
			idString(s.facts.id), identityFile, idString(old.id))}
	}
	if int(s.facts.epoch)+epochsPerRestore > 1<<16-2 {
		return ErrEpochs
	}
	s.facts.id = newIdentity()
	s.facts.epoch += epochsPerRestore
	source := append(binary.LittleEndian.AppendUint16(nil, s.facts.epoch), old.id[:]...)
	b := s.db.NewBatch()
	defer b.Close()
	err = errors.Join(
		setMeta(b, metaID, s.facts.id[:]),
		setMeta(b, metaEpoch, []byte{byte(s.facts.epoch), byte(s.facts.epoch >> 8)}),
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
	return s.db.Flush()
}

// BackupFiles are the files that a backup consists of, STORE last, with their
// sizes: what a copy has to copy, in that order. dir is a backup or a stopped
// store that the caller has locked.
func BackupFiles(dir string, opt InspectOptions) (names []string, sizes []int64, err error) {
	c := Config{Dir: dir, FS: opt.FS}.withDefaults()
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
	c := Config{Dir: dir, FS: opt.FS}.withDefaults()
	lock, _, _, err := enterDir(c, false)
	if err != nil {
		return nil, err
	}
	return lock.Close, nil
}
