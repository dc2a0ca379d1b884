//go:build !linux

package main

import (
	"errors"
	"os"
	"time"
)

// Elsewhere there is no direct I/O of this kind: the tables that need it end with an
// error that says so.

const (
	openDirect = 0
	openSync   = 0
)

var errOnlyLinux = errors.New("direct I/O is measured on Linux only: choose other tables by -only")

func datasync(f *os.File) error                { return f.Sync() }
func reserve(*os.File, int) error              { return errOnlyLinux }
func forget(*os.File) error                    { return errOnlyLinux }
func aligned(size int) ([]byte, func(), error) { return make([]byte, size), func() {}, nil }
func alignments(string) string                 { return "what only Linux tells" }
func processorTime() time.Duration             { return 0 }
func threadTime() time.Duration                { return 0 }
