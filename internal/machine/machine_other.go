//go:build !linux

package machine

// Pin changes nothing for an empty list, and cannot do anything else here.
func Pin(cpus []int) error {
	if len(cpus) == 0 {
		return nil
	}
	return ErrNotSupported
}

// OpenFiles is not available here.
func OpenFiles() (int, error) { return 0, ErrNotSupported }

// Nodes is not available here.
func Nodes() ([]int, error) { return nil, ErrNotSupported }

// CheckNode is not available here.
func CheckNode(int) error { return ErrNotSupported }

// DeviceNode cannot be had here.
func DeviceNode(...string) (int, bool) { return 0, false }

// Placed is not known here.
func Placed() bool { return false }

// Memory is how much memory this process may use in all, bytes; 0: unknown.
func Memory() int64 { return 0 }
