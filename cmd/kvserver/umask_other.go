//go:build !unix

package main

// hideFiles does nothing here: there is no umask.
func hideFiles() {}
