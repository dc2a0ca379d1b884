package tables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// How the file of a table of values is written: by appending alone, and durable after Flush.

// An appendFile is a file that becomes longer. Append is called by one goroutine, Flush by any,
// also meanwhile; Finish and Close when no other call is under way. Behind an error nothing but
// Close is good for anything.
type appendFile interface {
	// Append adds bytes, which are the caller's again when it returns.
	Append(p []byte) error
	// Flush returns when all bytes are durable that were appended before, and how many they are.
	Flush() (durable int64, err error)
	// Finish is Flush and Close, behind which the file is exactly as long as was appended.
	Finish() error
	// Close closes the file, which may have zeros behind its bytes.
	Close() error
	// Room is how many bytes are set aside for the file, so that a Flush within it does not meet
	// a full disk; 0: nobody knows.
	Room() int64
}

// A valueWriter is the file of a table under Pebble's writer.
type valueWriter struct {
	file  appendFile
	size  int64
	over  bool   // nothing is written any more, and the file is closed
	value []byte // that is expected in the next block; nil: none
	found int64  // the offset at which it stands; -1: it has not come
}

// expect says which value comes next.
func (w *valueWriter) expect(value []byte) { w.value, w.found = value, -1 }

// Write takes a block. One of rows ends with its restarts, 4 bytes each, and their number;
// directly before them stands the value of its last key. That is compared, so that nobody
// relies on it.
func (w *valueWriter) Write(p []byte) error {
	if n := len(w.value); n > 0 && len(p) > n {
		rest := 4 * (uint64(binary.LittleEndian.Uint32(p[len(p)-4:])) + 1)
		if rest <= uint64(len(p)-n) {
			end := len(p) - int(rest)
			if bytes.Equal(p[end-n:end], w.value) {
				w.found, w.value = w.size+int64(end-n), nil
			}
		}
	}
	if w.over {
		return errCut
	}
	w.size += int64(len(p))
	return w.file.Append(p)
}

// errCut is what Pebble's writer is told when its table is given up.
var errCut = errors.New("the table is cut")

// cut closes the file, to which nothing is written any more.
func (w *valueWriter) cut() {
	if !w.over {
		w.over = true
		_ = w.file.Close()
	}
}

// Finish is that of Pebble's Writable.
func (w *valueWriter) Finish() error {
	if w.over {
		return errCut
	}
	w.over = true
	return w.file.Finish()
}

// Abort is that of Pebble's Writable.
func (w *valueWriter) Abort() { w.cut() }

// createAppend makes a file to append to: past the page cache where that can be had, because
// a write through it takes a disk several times as long.
func createAppend(fsys vfs.FS, path string, size int64) (appendFile, error) {
	if fsys == vfs.Default {
		if f, err := createDirect(path, size); f != nil || err != nil {
			return f, err
		}
	}
	f, err := fsys.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	return &cachedFile{file: f}, nil
}

// A cachedFile is an appendFile through the page cache.
type cachedFile struct {
	file vfs.File
	size atomic.Int64
}

func (f *cachedFile) Append(p []byte) error {
	n := len(p) // the file may change the bytes that it is given
	if _, err := f.file.Write(p); err != nil {
		return err
	}
	f.size.Add(int64(n))
	return nil
}

func (f *cachedFile) Flush() (int64, error) {
	n := f.size.Load()
	return n, f.file.Sync()
}

func (f *cachedFile) Finish() error {
	if err := f.file.Sync(); err != nil {
		_ = f.file.Close()
		return err
	}
	return f.file.Close()
}

func (f *cachedFile) Close() error { return f.file.Close() }

func (f *cachedFile) Room() int64 { return 0 }
