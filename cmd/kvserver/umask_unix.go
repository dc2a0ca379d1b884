//go:build unix

package main

import "syscall"

// closeFiles has every file that this process makes belong to its user alone: the
// store's have every value in them, and a directory may have been made by somebody
// who lets others in.
func closeFiles() { syscall.Umask(0o077) }
