//go:build !linux

package memory

// mapShared: only Linux has memfds.
func mapShared(int, Kind) ([]byte, error) { return nil, ErrNotSupported }

func unmapShared([]byte) error { return ErrNotSupported }
