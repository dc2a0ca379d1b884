//go:build !linux

package log

import (
	"os"
	"syscall"
)

// onDisk: elsewhere the tests' directory is on a disk.
func onDisk(string) bool { return true }

func directExpected(string) bool { return false }

// allocatedBytes: elsewhere files are written when they are made.
func allocatedBytes(st os.FileInfo) int64 { return st.Size() }

func mkfifo(path string) error { return syscall.Mkfifo(path, fileMode) }
