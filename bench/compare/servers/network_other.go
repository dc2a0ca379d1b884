//go:build !linux

package servers

import (
	"errors"
	"os/exec"
)

// OwnNetwork changes nothing: there are no network namespaces here.
func OwnNetwork(*exec.Cmd) {}

// SetUpNetwork fails.
func SetUpNetwork(string) error { return errors.ErrUnsupported }
