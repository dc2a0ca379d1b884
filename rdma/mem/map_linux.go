package mem

import (
	"bufio"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdmakv/rdmakv/rdma/internal/memfd"
)

func pageSize() int { return unix.Getpagesize() }

// hugePageSize is the size in bytes of the kernel's default huge page.
func hugePageSize() (int, error) {
	info, err := hugeInfo()
	if err != nil {
		return 0, err
	}
	return info.size, nil
}

// mapPages maps size bytes, a multiple of the kind's granule, and does to them
// what the options ask for.
func mapPages(size int, opt Options) ([]byte, error) {
	flags := unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	if opt.Kind == Huge {
		info, err := hugeInfo()
		if err != nil {
			return nil, err
		}
		// The size is said explicitly: without it the kernel would take its
		// default, which may have changed since the size was read.
		flags |= unix.MAP_HUGETLB | bits.Len(uint(info.size)-1)<<unix.MAP_HUGE_SHIFT
		raw, err := mapAdvised(size, flags, opt)
		if errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EINVAL) {
			return nil, hugeError(size, info)
		}
		return raw, err
	}
	raw, err := mapAdvised(size, flags, opt)
	if errors.Is(err, unix.ENOMEM) {
		return nil, fmt.Errorf("%w: mmap: %v (see ulimit -v, vm.max_map_count and vm.overcommit_memory)", ErrNoMemory, err)
	}
	return raw, err
}

// mapAdvised maps and keeps the pages out of children and core dumps.
func mapAdvised(size, flags int, opt Options) ([]byte, error) {
	raw, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		return nil, fmt.Errorf("mmap of %d bytes: %w", size, err)
	}
	for _, advice := range []struct {
		code int
		name string
	}{{unix.MADV_DONTFORK, "MADV_DONTFORK"}, {unix.MADV_DONTDUMP, "MADV_DONTDUMP"}} {
		if err := unix.Madvise(raw, advice.code); err != nil {
			return nil, errors.Join(fmt.Errorf("madvise %s of %d bytes: %w", advice.name, size, err), unix.Munmap(raw))
		}
	}
	if err := settle(raw, opt); err != nil {
		return nil, errors.Join(err, unix.Munmap(raw))
	}
	return raw, nil
}

func unmapPages(raw []byte) error { return unix.Munmap(raw) }

// mapShared maps size bytes, a multiple of the kind's granule, of a new memfd.
func mapShared(size int, opt Options) ([]byte, error) {
	flags := 0
	var info hugePages
	if opt.Kind == Huge {
		var err error
		if info, err = hugeInfo(); err != nil {
			return nil, err
		}
		flags |= unix.MFD_HUGETLB | bits.Len(uint(info.size)-1)<<unix.MFD_HUGE_SHIFT
	}
	newPages := memfd.New
	if opt.Kept && !opt.Shared {
		newPages = memfd.NewKept
	}
	raw, err := newPages(size, flags, func(raw []byte) error { return settle(raw, opt) })
	if errors.Is(err, unix.ENOMEM) && !errors.Is(err, ErrNoMemory) {
		if opt.Kind == Huge {
			return nil, hugeError(size, info)
		}
		return nil, fmt.Errorf("%w: %v", ErrNoMemory, err)
	}
	return raw, err
}

// adoptShared maps a memfd that another process has passed on.
func adoptShared(fd int) ([]byte, error) { return memfd.Adopt(fd) }

// leaveShared ends such a mapping, and leaves the descriptor open.
func leaveShared(raw []byte) error { return memfd.Leave(raw) }

// descriptorOf is the memfd behind memory of mapShared, or -1.
func descriptorOf(raw []byte) int {
	if at, ok := memfd.BackingOf(raw); ok {
		return at.FD
	}
	return -1
}

// takenOf is how many bytes of a mapping of mapShared have pages.
func takenOf(raw []byte) (bytes int64, ok bool) { return memfd.Taken(raw) }

// filledFrom is the first range of it, at or behind from, all of whose pages are there.
func filledFrom(raw []byte, from int64) (start, end int64, ok bool) { return memfd.Filled(raw, from) }

// unmapShared ends a mapping of mapShared.
func unmapShared(raw []byte) error { return memfd.Free(raw) }

// hugePages is what /proc/meminfo says about the default huge page.
type hugePages struct {
	size        int // bytes
	total, free int // pages
}

// hugeInfo reads in /proc/meminfo the size of a huge page and how many are free.
func hugeInfo() (hugePages, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return hugePages{}, fmt.Errorf("%w: %w", ErrNoHugePages, err)
	}
	defer f.Close()
	var info hugePages
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
		n, err := strconv.Atoi(number)
		if err != nil {
			continue
		}
		switch name {
		case "Hugepagesize":
			info.size = n << 10
		case "HugePages_Total":
			info.total = n
		case "HugePages_Free":
			info.free = n
		}
	}
	if err := lines.Err(); err != nil {
		return hugePages{}, fmt.Errorf("%w: reading /proc/meminfo: %w", ErrNoHugePages, err)
	}
	if info.size <= 0 || info.size&(info.size-1) != 0 {
		return hugePages{}, fmt.Errorf("%w: this kernel has none (no Hugepagesize in /proc/meminfo)", ErrNoHugePages)
	}
	return info, nil
}

// hugeError tells an operator what to type.
func hugeError(size int, info hugePages) error {
	need := (size + info.size - 1) / info.size
	missing := max(need-info.free, 1)
	return fmt.Errorf("%w: %d pages of %d KiB needed, %d of %d free: sysctl -w vm.nr_hugepages=%d",
		ErrNoHugePages, need, info.size>>10, info.free, info.total, info.total+missing)
}
