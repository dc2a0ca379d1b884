//go:build !linux

package fabric

import "errors"

// memlockLimit: RDMA devices need Linux, and so does their limit.
func memlockLimit() (soft, hard int64, err error) {
	return 0, 0, errors.New("the limit of locked memory is known on Linux only")
}
