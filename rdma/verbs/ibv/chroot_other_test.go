//go:build !linux

package ibv

import "os/exec"

func inChroot(*exec.Cmd, string) bool { return false }
