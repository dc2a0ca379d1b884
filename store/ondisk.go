package store

import (
	"context"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/journal"
)

// A SyncPolicy says when a write may be acknowledged. The zero value is Always.
type SyncPolicy = disk.SyncPolicy

const (
	// Always acknowledges and publishes a write after its fsync. What anyone
	// has seen outlives a crash of process or machine.
	Always = disk.Always
	// Interval publishes when the operating system has a write, and syncs within
	// SyncInterval. A crash of the process loses nothing, one of the machine at most
	// that much of the tail.
	Interval = disk.Interval
	// Off publishes when the operating system has a write. A crash of the process
	// loses nothing, one of the machine what the operating system had not written
	// yet: what stands behind the newest checkpoint at most.
	Off = disk.Off
)

var (
	// ErrRefused: it was proved that this directory must not be served, because
	// another process is the node that it belongs to, or was, further on. Open refuses
	// it from then on, unless Config.EpochAbove accepts that.
	ErrRefused = disk.ErrRefused
	// ErrBackupDir: a backup goes to a directory that does not exist yet, on the
	// file system of the store.
	ErrBackupDir = disk.ErrBackupDir
	// ErrNoLog: the store is of an older format, which has no log of its own (EnterLog
	// only: Open makes one).
	ErrNoLog = disk.ErrNoLog
)

type (
	// A Refusal is why a directory must not be served; see Refuse.
	Refusal = disk.Refusal
	// PebbleStats are Pebble's numbers.
	PebbleStats = disk.Stats
	// InspectOptions say what Inspect looks at, an InspectEntry is one record that it
	// finds, and an Inspection what it has found in all.
	InspectOptions = disk.InspectOptions
	InspectEntry   = disk.InspectEntry
	Inspection     = disk.Inspection
)

// Inspect opens the stopped store in dir without changing it, and reads all of
// it: every record's checksum, every key's form. Damage of records and files
// is listed in the Inspection; the error says what kept Inspect from looking,
// as from Open (ErrNoStore, ErrLocked, ...), or what Each returned.
func Inspect(ctx context.Context, dir string, opt InspectOptions) (Inspection, error) {
	opt.Tail = journal.OpenTail
	return disk.Inspect(ctx, dir, opt)
}

// Check is Inspect for those who only want to know whether all is well: it
// returns the problems as the error, joined.
func Check(ctx context.Context, dir string, fs vfs.FS) (Inspection, error) {
	return disk.Check(ctx, dir, InspectOptions{FS: fs, Tail: journal.OpenTail})
}

// Adopt makes a store of its own out of a copy of a backup in dir: with a new
// id and a new epoch, so that nothing that clients remember of the old one is
// believed of it. The copy must have no STORE file yet; Adopt writes it last, so that
// a copy that was cut short is never taken for a store. id is the content of the
// backup's STORE file.
func Adopt(dir string, opt InspectOptions, id []byte) (newID [16]byte, err error) {
	opt.Tail = journal.OpenTail
	return disk.Adopt(dir, opt, id)
}

// BackupFiles are the files that a backup consists of, STORE last, with their
// sizes: what a copy has to copy, in that order. dir is a backup or a stopped
// store that the caller has locked.
func BackupFiles(dir string, opt InspectOptions) (names []string, sizes []int64, err error) {
	return disk.BackupFiles(dir, opt)
}

// LockStopped locks the directory of a stopped store until release is called.
// Errors as Inspect.
func LockStopped(dir string, opt InspectOptions) (release func() error, err error) {
	return disk.LockStopped(dir, opt)
}

// Refuse notes durably that the directory must not be served. It returns when that
// is on the disk; the caller ends the store. If this opening has given out no
// version until Close, that puts the epoch back, so that openings which are refused
// do not make an old copy look newer than what it was copied from. A cache keeps
// nothing, and nothing is noted. Safe for concurrent use.
//
// Errors: ErrClosed, or what fenced the store.
func (s *Store) Refuse(r Refusal) error {
	if !s.disk.Durable() {
		return nil
	}
	leave, err := s.door.Enter()
	if err != nil {
		return err
	}
	defer leave()
	s.refused.Store(true)
	return s.disk.Refuse(r)
}

// A backup is a directory like that of a store which was stopped: STORE, a
// ledger of all its files, and data. It is made while the store serves, out of the base alone:
// first a checkpoint brings all into it that is published, then Pebble's checkpoint links its
// files.
//
// The base is at every moment the state at one position of the log, batches whole, and has
// nothing that is not published. So a backup never holds a write that a crash could still take
// from the store, and it has all that was published when it was asked for
// (backup-has-what-is-published).

// Backup makes a backup in dir, which must not exist and lie on the file
// system of the store. After an error there may be a piece of one in dir.
// Errors: ErrUnsupported (a cache), ErrBackupDir, ErrClosed, ErrFatal, ctx's,
// the file system's.
func (s *Store) Backup(ctx context.Context, dir string) error {
	leave, err := s.door.Enter()
	if err != nil {
		return err
	}
	defer leave()
	if !s.disk.Durable() {
		return ErrUnsupported
	}
	if err := s.ckpt.Now(ctx); err != nil {
		return err
	}
	if err := s.disk.Checkpoint(dir); err != nil {
		return err
	}
	return s.disk.SealBackup(dir)
}

// EnterLog is the directory of the log of the stopped store in dir, to be looked at (log.Inspect).
// No server opens the store until lock is closed; it is nil if the store is so damaged that none
// would. Errors are those of Inspect, and ErrNoLog.
func EnterLog(dir string) (path string, lock io.Closer, err error) { return disk.EnterLog(dir, nil) }
