//go:build !linux

package machine

// Pin changes nothing for an empty list, and cannot do anything else here.
func Pin(cpus []int) error {
	if len(cpus) == 0 {
		return nil
	}
	return ErrNotSupported
}

// OpenFiles cannot be had here.
func OpenFiles() (int, error) { return 0, ErrNotSupported }

// Nodes cannot be had here.
func Nodes() ([]int, error) { return nil, ErrNotSupported }

// CheckNode cannot be had here.
func CheckNode(int) error { return ErrNotSupported }
