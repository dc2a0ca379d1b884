//go:build !unix

package cli

// NeverOpen is always false here: only UNIX has flags that tell.
func NeverOpen(any) bool { return false }
