package ibv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

// A notifier waits in Go's netpoller until a descriptor of rdma-core is
// readable: an idle waiter costs a goroutine and no thread. It owns a
// duplicate of the descriptor, since rdma-core closes its own; O_NONBLOCK is a
// property of the open file that both share.
type notifier struct {
	file *os.File
	raw  syscall.RawConn
	// turn has a place for the one goroutine that may wait in the netpoller,
	// which knows one reader and one deadline. Others queue up for it here,
	// where the end of their contexts ends their wait.
	turn   chan struct{}
	closed chan struct{}
	once   sync.Once
}

// newNotifier makes a notifier for a descriptor of rdma-core, of which it takes a
// duplicate.
func newNotifier(fd int, name string) (*notifier, error) {
	dup, err := dupNonblock(fd)
	if err != nil {
		return nil, fmt.Errorf("ibv: %s: %w", name, err)
	}
	file := os.NewFile(uintptr(dup), name)
	raw, err := file.SyscallConn()
	if err == nil {
		// It fails if the kernel cannot poll the descriptor.
		err = file.SetReadDeadline(time.Time{})
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("ibv: %s: %w", name, err)
	}
	return &notifier{file: file, raw: raw, turn: make(chan struct{}, 1), closed: make(chan struct{})}, nil
}

// wait calls try, which must not block, now and whenever the descriptor turned
// readable, until it says that it is done. It fails with ctx's error or with
// ErrClosed. Calls of try never overlap.
func (n *notifier) wait(ctx context.Context, try func() (done bool)) error {
	select {
	case n.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-n.closed:
		return ErrClosed
	}
	defer func() { <-n.turn }()
	if err := ctx.Err(); err != nil {
		return err
	}
	if try() {
		return nil
	}
	defer n.interrupt(ctx)()
	for {
		err := n.raw.Read(func(uintptr) bool { return try() })
		select {
		case <-n.closed: // err is one of package poll's own then
			return ErrClosed
		default:
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return cmp.Or(ctx.Err(), err) // only interrupt sets a deadline
		case !errors.Is(err, syscall.EINTR):
			return fmt.Errorf("ibv: %s: %w", n.file.Name(), err)
		}
	}
}

// interrupt makes the end of ctx end the wait of the goroutine that has the
// turn, by a read deadline in the past. The function that it returns undoes
// that, before the turn passes on.
func (n *notifier) interrupt(ctx context.Context) (undo func()) {
	if ctx.Done() == nil {
		return func() {}
	}
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(fired)
		// An error means that the file is closed: the wait is over anyway.
		_ = n.file.SetReadDeadline(time.Unix(1, 0))
	})
	return func() {
		if !stop() {
			<-fired
			_ = n.file.SetReadDeadline(time.Time{})
		}
	}
}

// close wakes all waiters. It does not wait for them.
func (n *notifier) close() {
	n.once.Do(func() {
		close(n.closed)
		n.file.Close()
	})
}
