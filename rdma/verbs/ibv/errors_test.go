package ibv

import (
	"errors"
	"syscall"
)

func isInval(err error) bool {
	var call *CallError
	return errors.As(err, &call) && call.Errno == syscall.EINVAL
}
