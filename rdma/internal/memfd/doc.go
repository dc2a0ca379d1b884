// Package memfd makes and maps memory that two processes share. Package mem puts blocks
// into it that other processes may read; fabric shm passes the descriptors on, and maps
// those that other processes pass to it.
//
// The pages of shared memory belong to a memfd, so that another process can map them.
// Seals keep that process to reading:
//
//	memfd_create ─ ftruncate ─ mmap read-write ─ seal ─▶ descriptor may be passed on
//	                           (this process only)        │
//	                                                      └─ a process that gets it can map it
//	                                                         for reading, and nothing else
//
// The seals, fcntl(2): F_SEAL_SHRINK, so that no reader ever meets a page that is gone
// (SIGBUS); F_SEAL_GROW; F_SEAL_FUTURE_WRITE, which refuses every writable mapping,
// write(2) and hole that comes after our own mapping; F_SEAL_SEAL.
//
// A process that maps a descriptor from another process must not trust what that
// process says about it: MapSealed asks the kernel for the seals and the size.
package memfd

import "errors"

// Errors that are wrapped; the text around them has the numbers. Package mem passes
// all but ErrUnsealed on, under the same names.
var (
	// ErrSize: the size is not positive or beyond what can be mapped.
	ErrSize = errors.New("memory: bad size")
	// ErrNoMemory: the kernel refused.
	ErrNoMemory = errors.New("memory: the kernel gave none")
	// ErrUnsealed: a descriptor from another process could be cut off under a reader,
	// or is shorter than that process said.
	ErrUnsealed = errors.New("memory: descriptor refused")
	// ErrNotSupported: this operating system cannot do it.
	ErrNotSupported = errors.New("memory: not supported here")
)

// maxSize bounds what is mapped, bytes (1 TiB).
const maxSize = 1 << 40
