//go:build !linux

package hosts

import "errors"

// Namespaces is for Linux.
func Namespaces(...string) (Net, error) { return nil, errors.ErrUnsupported }

// Enter is for Linux.
func Enter() error { return errors.ErrUnsupported }
