//go:build !linux

package clients

import (
	"errors"
	"os"
)

func directFile(string, string, bool) (*os.File, error) { return nil, errors.ErrUnsupported }

func pace(uintptr, string) error { return errors.ErrUnsupported }

func aligned(n int) ([]byte, error) { return make([]byte, n), nil }
