//go:build !unix

package main

// neverOpen: this is not known here.
func neverOpen(any) bool { return false }
