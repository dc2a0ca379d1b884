//go:build !linux

package memory

// mapShared: only Linux has memfds.
func mapShared(int, Options) ([]byte, error) { return nil, ErrNotSupported }

func unmapShared([]byte) error { return ErrNotSupported }
