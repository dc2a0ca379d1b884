//go:build !linux

package ibv

func memlockHint() string { return "out of memory, or of what may be locked" }
