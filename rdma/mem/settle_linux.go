package mem

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// prefaultStep is what one thread takes at a time, bytes: a multiple of
	// every huge page up to it, and small enough that threads end together.
	prefaultStep = 32 << 20
	// prefaultThreads bounds the threads: beyond a few, memory bandwidth is
	// what they wait for.
	prefaultThreads = 8
)

// settle does to pages that were just mapped what the options ask for: it says
// first where they are to come from, then their size, and at last takes them. If
// an optimisation (transparent huge pages) is unavailable, that is no error.
func settle(raw []byte, opt Options) error {
	if opt.Node != nil {
		if err := preferNode(raw, *opt.Node); err != nil {
			return err
		}
	}
	if opt.Transparent {
		// EINVAL: this kernel has none.
		if err := unix.Madvise(raw, unix.MADV_HUGEPAGE); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("madvise MADV_HUGEPAGE of %d bytes: %w", len(raw), err)
		}
	}
	if !opt.Prefault {
		return nil
	}
	var mu sync.Mutex
	taken := 0
	return inParallel(raw, prefaultStep, func(part []byte) error {
		if opt.Transparent && opt.Shared && opt.Kind != Huge {
			// Pages of a memfd become huge only by this call, and in a third of
			// the time; for anonymous memory the faults do it. One call does all,
			// because each call waits for every processor.
			for i := 0; i < len(part); i += hugeStep {
				part[i] = 0 // where there is nothing there is nothing to collapse
			}
			_ = collapse(part)
		}
		if err := populate(part); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if taken += len(part); opt.OnPrefault != nil {
			opt.OnPrefault(taken)
		}
		return nil
	})
}

// collapse puts pages that are there into transparent huge ones, now. For
// anonymous memory the faults have done it; pages of files in memory get none by
// faults unless the machine is set so. It is best effort: there may be no room in
// one piece, or the kernel is older than 6.1. It reports whether they are in huge ones now.
func collapse(part []byte) bool { return unix.Madvise(part, unix.MADV_COLLAPSE) == nil }

// populate takes the pages of a part that nothing has been written to yet.
// MADV_POPULATE_WRITE is of Linux 5.14.
func populate(part []byte) error {
	err := unix.Madvise(part, unix.MADV_POPULATE_WRITE)
	switch {
	case errors.Is(err, unix.EINVAL):
		// This is for an older kernel. The memory is zeroed, and only this code
		// knows it.
		for i := 0; i < len(part); i += unix.Getpagesize() {
			part[i] = 0
		}
		return nil
	case errors.Is(err, unix.ENOMEM), errors.Is(err, unix.EFAULT), errors.Is(err, unix.EHWPOISON):
		return fmt.Errorf("%w: taking %d bytes at once: %v", ErrNoMemory, len(part), err)
	case err != nil:
		return fmt.Errorf("madvise MADV_POPULATE_WRITE of %d bytes: %w", len(part), err)
	}
	return nil
}

// inParallel calls f for steps of raw on as many threads as may run, and waits
// for all. It returns the first error.
func inParallel(raw []byte, step int, f func([]byte) error) error {
	parts := make(chan []byte)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first error
	for range min(runtime.GOMAXPROCS(0), prefaultThreads, (len(raw)+step-1)/step) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for part := range parts {
				if err := f(part); err != nil {
					mu.Lock()
					if first == nil {
						first = err
					}
					mu.Unlock()
				}
			}
		}()
	}
	for i := 0; i < len(raw); i += step {
		parts <- raw[i:min(i+step, len(raw))]
	}
	close(parts)
	wg.Wait()
	return first
}
