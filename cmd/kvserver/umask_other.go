//go:build !unix

package main

// closeFiles does nothing here.
func closeFiles() {}
