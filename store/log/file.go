package log

import "errors"

// A Dir is the directory in which a log stands. The log's own file system is so small that
// tests can put one under it that does what a disk does in a power cut (package logtest).
// A Dir is used by one log at a time, and by many goroutines.
//
// Names have no separators. An error that wraps fs.ErrNotExist, fs.ErrExist or
// syscall.ENOSPC means what it says; every other one is the disk's.
type Dir interface {
	// List returns the names of all files, in any order.
	List() ([]string, error)
	// Create makes a file of so many bytes, for which the file system has set room
	// aside, and opens it. The file must not exist. Prewritten says that the bytes have
	// been written, as zeros, and not only promised: then writing them later changes
	// nothing but the bytes, which takes a disk half the time.
	Create(name string, size int64, prewritten bool, a Access) (File, error)
	// Open opens a file that exists.
	Open(name string, a Access) (File, error)
	// Rename gives a file another name, which no file has. It is durable after Sync.
	Rename(from, to string) error
	// Remove takes a file away. It is durable after Sync.
	Remove(name string) error
	// Sync makes durable which files there are, under which names.
	Sync() error
}

// Access says how a file is opened.
type Access struct {
	Write bool // or else for reading alone
	// Direct goes past the page cache: a write that has returned is durable, and a read
	// sees what the disk has. Offsets, lengths and the addresses of buffers are
	// multiples of File.Block then. A Dir that cannot do so returns ErrNoDirect.
	Direct bool
}

// ErrNoDirect says that a file system does not go past the page cache. The log then writes
// through it and syncs.
var ErrNoDirect = errors.New("log: the file system refuses direct access")

// A File is an open file of a log. WriteAt and ReadAt may be called at the same time, for
// ranges that do not overlap.
type File interface {
	// ReadAt reads len(p) bytes, or returns an error: io.EOF if the file ends before.
	ReadAt(p []byte, off int64) (int, error)
	// WriteAt writes all of p, or returns an error. It never makes a file longer. The
	// bytes are p's again when it returns.
	WriteAt(p []byte, off int64) (int, error)
	// Sync returns when all that was written is durable. After an error nothing may be
	// believed: a second Sync that succeeds does not mean that the bytes are there.
	Sync() error
	// Truncate makes the file shorter, and gives the room back. It is durable after Sync.
	Truncate(size int64) error
	// Size is the length in bytes.
	Size() (int64, error)
	// Block is what a direct access must be aligned to, in bytes: a power of two, at
	// least 512. Without direct access it is what the file system writes as a whole.
	Block() int
	// Close closes the file. What was written and not synced stays in the kernel.
	Close() error
}
