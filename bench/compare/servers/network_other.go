//go:build !linux

package servers

import (
	"errors"
	"os/exec"
)

// OwnNetwork fails: there are no network namespaces here.
func OwnNetwork(*exec.Cmd) error { return errors.ErrUnsupported }

// Network fails.
func Network() (string, error) { return "", errors.ErrUnsupported }

// SetUpNetwork fails.
func SetUpNetwork(string, string) error { return errors.ErrUnsupported }
