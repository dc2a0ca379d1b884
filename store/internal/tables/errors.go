package tables

import (
	"errors"
	"fmt"
)

// ErrFence is what an error Is after which nobody knows what the base has: it
// must not be used on, and is what it is at the next start.
var ErrFence = errors.New("the base is in no known state: restart the node")

// ErrOver is returned by calls after Commit or Abort.
var ErrOver = errors.New("the batch of tables is over: begin another")

// errDown is the fence of a base whose Pebble has called Fatalf.
var errDown = &FenceError{Cause: "pebble has given up"}

// down reports whether Pebble has called Fatalf.
func down(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// A FenceError says why a base must not be used on. It Is ErrFence.
type FenceError struct{ Cause string }

func (e *FenceError) Error() string        { return e.Cause + ": " + ErrFence.Error() }
func (e *FenceError) Is(target error) bool { return target == ErrFence }

// An OrderError is a key that does not come after the one before it. It is the
// caller's fault: the base has nothing of the batch.
type OrderError struct{ Last, Key []byte }

func (e *OrderError) Error() string {
	return fmt.Sprintf("key %.64q does not come after key %.64q: sort the keys of a batch", e.Key, e.Last)
}

// A FileError is what the file system, or Pebble about a file, said. The base
// has nothing of the batch, which can be made again: at once, or when there is
// room (errors.Is ENOSPC).
type FileError struct {
	Op   string
	File string // the path of the table; of the directory where it is about more than one
	Err  error
}

func (e *FileError) Error() string {
	return fmt.Sprintf("%v: %s %s: the base is as it was, try again", e.Err, e.Op, e.File)
}
func (e *FileError) Unwrap() error { return e.Err }

// A WaitError is a context that ended before L0 was low enough. The base has
// nothing of the batch.
type WaitError struct {
	Sublevels int // of L0
	Err       error
}

func (e *WaitError) Error() string {
	return fmt.Sprintf("%v: L0 of the base still has %d sublevels: wait for compactions and try again", e.Err, e.Sublevels)
}
func (e *WaitError) Unwrap() error { return e.Err }

// A ValuesError is what the file system said about a table of values, or their directory.
type ValuesError struct {
	Op   string
	File string
	Err  error
}

func (e *ValuesError) Error() string {
	return fmt.Sprintf("%v: %s %s, which has values of puts: check the disk", e.Err, e.Op, e.File)
}
func (e *ValuesError) Unwrap() error { return e.Err }
