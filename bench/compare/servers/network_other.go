//go:build !linux

package servers

import (
	"errors"
	"os/exec"
)

// OwnNetwork changes nothing: there are no network namespaces here.
func OwnNetwork(*exec.Cmd) {}

// Network fails.
func Network() (string, error) { return "", errors.ErrUnsupported }

// SetUpNetwork fails.
func SetUpNetwork(string, string) error { return errors.ErrUnsupported }
