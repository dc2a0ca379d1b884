package secret

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Protect is for a process that holds keys: the kernel writes no core dump of
// it, and no other process of the same user may look into its memory (ptrace,
// /proc/PID/mem). Blocks of rdma/mem are left out of dumps in any case; but keys, and what
// ciphers make of them, lie in the Go heap and on stacks, which cannot be left
// out apart. A resource limit would not do: where dumps are piped to a program
// the kernel takes no notice of it.
//
// It is called before the first key is read. prctl(2), PR_SET_DUMPABLE.
func Protect() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("secret: prctl PR_SET_DUMPABLE: %w", err)
	}
	return nil
}
