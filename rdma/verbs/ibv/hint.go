package ibv

import "syscall"

// hint says what usually makes call fail with errno, and what to do about it.
func hint(call string, errno syscall.Errno) string { return "" }
