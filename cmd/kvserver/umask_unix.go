//go:build unix

package main

import "syscall"

// hideFiles makes every file of this process readable by its user alone: the store's
// files hold every value, and the directory that they are in may be open to others.
func hideFiles() { syscall.Umask(0o077) }
