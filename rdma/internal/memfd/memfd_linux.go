package memfd

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// sealsOfOurs are the seals of a shared block, and sealsOfKept those of one that the next process of its owner maps to write.
const (
	sealsOfOurs = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL
	sealsOfKept = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
)

// A backing is the memfd behind the pages of a shared block.
type backing struct {
	base uintptr
	size int
	fd   int
}

// backings finds the memfd of an address. It is sorted by base; the pieces are disjoint.
var backings struct {
	mu   sync.RWMutex
	list []backing
}

// New maps size bytes, a multiple of the pages' size, of a new memfd, read-write, and seals it for readers. flags are
// those of memfd_create(2) that choose huge pages, or 0. settle is called once with the mapping, before any other
// code knows it; if settle fails there is no memfd, and New returns its error. Errors wrap ErrNoMemory or
// ErrNotSupported if the system has no memfds; unix.ENOMEM means that the kernel has no pages for it. The memory ends with
// Free.
func New(size, flags int, settle func(raw []byte) error) ([]byte, error) {
	return newSealed(size, flags, sealsOfOurs, settle)
}

// NewKept is New of memory whose descriptor goes to a process that keeps it for the next one of its owner (Adopt). MapSealed refuses it, since its
// holders may write it.
func NewKept(size, flags int, settle func(raw []byte) error) ([]byte, error) {
	return newSealed(size, flags, sealsOfKept, settle)
}

func newSealed(size, flags, seals int, settle func(raw []byte) error) ([]byte, error) {
	fd, err := newMemfd("rdmakv", flags)
	if err != nil {
		return nil, err
	}
	raw, err := mapNew(fd, size, seals, settle)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	note(raw, fd)
	return raw, nil
}

// note makes the memfd of a mapping known.
func note(raw []byte, fd int) {
	backings.mu.Lock()
	defer backings.mu.Unlock()
	i, _ := slices.BinarySearchFunc(backings.list, addrOf(raw), compareBase)
	backings.list = slices.Insert(backings.list, i, backing{base: addrOf(raw), size: len(raw), fd: fd})
}

// Adopt maps a memfd of NewKept, read-write, or of New, for reading alone, which another process has passed on: its size is that of the memfd. It ends with Free, as
// memory of New does, and with it the descriptor. After an error the descriptor stays the caller's. What cannot shrink is mapped, and nothing else, because
// reading behind the end of a file ends a process.
func Adopt(fd int) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("fstat of a passed descriptor: %w", err)
	}
	if st.Size <= 0 || st.Size > maxSize {
		return nil, fmt.Errorf("%w: a descriptor of %d bytes, allowed are 1 to %d", ErrSize, st.Size, int64(maxSize))
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&unix.F_SEAL_SHRINK == 0 {
		return nil, fmt.Errorf("%w: seals %#x lack F_SEAL_SHRINK (%v)", ErrUnsealed, seals, err)
	}
	prot := unix.PROT_READ | unix.PROT_WRITE
	if seals&(unix.F_SEAL_FUTURE_WRITE|unix.F_SEAL_WRITE) != 0 {
		prot = unix.PROT_READ
	}
	raw, err := mapAdvisedFD(fd, int(st.Size), prot)
	if err != nil {
		return nil, err
	}
	note(raw, fd)
	return raw, nil
}

// newMemfd makes a memfd that can be sealed and cannot be executed. Some machines are set to give no others
// (vm.memfd_noexec, Linux 6.3).
func newMemfd(name string, flags int) (int, error) {
	flags |= unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // an older kernel
		fd, err = unix.MemfdCreate(name, flags)
	}
	switch {
	case err == nil:
		return fd, nil
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
		return -1, fmt.Errorf("%w: memfd_create: %w (see ulimit -n)", ErrNoMemory, err)
	}
	return -1, fmt.Errorf("%w: memfd_create: %w", ErrNotSupported, err)
}

func compareBase(b backing, base uintptr) int {
	switch {
	case b.base < base:
		return -1
	case b.base > base:
		return 1
	}
	return 0
}

// mapNew sizes a new memfd, maps it and seals it.
func mapNew(fd, size, seals int, settle func([]byte) error) ([]byte, error) {
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, fmt.Errorf("ftruncate of a memfd to %d bytes: %w", size, err)
	}
	raw, err := mapAdvisedFD(fd, size, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return nil, err
	}
	if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		err = fmt.Errorf("%w: sealing a memfd for readers (F_SEAL_FUTURE_WRITE, Linux 5.1): %w", ErrNotSupported, err)
	} else {
		err = settle(raw)
	}
	if err != nil {
		return nil, errors.Join(err, unmapFile(raw))
	}
	return raw, nil
}

// mapAdvisedFD maps a memfd and keeps it out of children and core dumps.
func mapAdvisedFD(fd, size, prot int) ([]byte, error) {
	raw, err := mapFile(fd, size, prot)
	if err != nil {
		return nil, err
	}
	for _, advice := range []int{unix.MADV_DONTFORK, unix.MADV_DONTDUMP} {
		if err := unix.Madvise(raw, advice); err != nil {
			return nil, errors.Join(fmt.Errorf("madvise %d of %d bytes of a memfd: %w", advice, size, err), unmapFile(raw))
		}
	}
	return raw, nil
}

// Free unmaps memory of New, drops its entry and closes the descriptor. Readers that have mapped the memory keep
// its pages until they unmap it. raw is the whole slice that New returned.
func Free(raw []byte) error {
	fd, err := forget(raw)
	if err != nil {
		return err
	}
	return errors.Join(unmapFile(raw), unix.Close(fd))
}

// Leave is Free that leaves the descriptor open, for the caller.
func Leave(raw []byte) error {
	if _, err := forget(raw); err != nil {
		return err
	}
	return unmapFile(raw)
}

// forget takes a mapping out of what is known.
func forget(raw []byte) (fd int, err error) {
	backings.mu.Lock()
	defer backings.mu.Unlock()
	i, ok := slices.BinarySearchFunc(backings.list, addrOf(raw), compareBase)
	if !ok {
		return -1, fmt.Errorf("memory: no memfd stands behind a shared block of %d bytes", len(raw))
	}
	fd = backings.list[i].fd
	backings.list = slices.Delete(backings.list, i, i+1)
	return fd, nil
}

// A Backing says where in which memfd some bytes lie.
type Backing struct {
	FD     int   // open for as long as the block is not freed; not to be closed
	Offset int64 // of the first byte
	Size   int64 // of the whole memfd
}

// BackingOf finds the memfd behind bytes of New; it returns false if b is other memory. It is safe for concurrent
// use; b must not be freed meanwhile.
func BackingOf(b []byte) (Backing, bool) {
	if len(b) == 0 {
		return Backing{}, false
	}
	at := addrOf(b)
	backings.mu.RLock()
	defer backings.mu.RUnlock()
	i, exact := slices.BinarySearchFunc(backings.list, at, compareBase)
	if !exact {
		i--
	}
	if i < 0 {
		return Backing{}, false
	}
	e := &backings.list[i]
	off := at - e.base
	if off >= uintptr(e.size) || uintptr(len(b)) > uintptr(e.size)-off {
		return Backing{}, false
	}
	return Backing{FD: e.fd, Offset: int64(off), Size: int64(e.size)}, true
}

// MapSealed maps a memfd from another process for reading, once the kernel has said that nothing can be cut off it or
// out of it. Without that check the other process could kill this one by SIGBUS. The descriptor must be a memfd (or a
// file of the same kind) of size bytes, with F_SEAL_SHRINK and F_SEAL_FUTURE_WRITE or F_SEAL_WRITE, which forbid
// holes, because holes in huge pages are not always filled again. Else MapSealed fails with ErrUnsealed or ErrSize;
// any other error is about this process. The descriptor stays the caller's; the mapping ends with UnmapSealed.
func MapSealed(fd int, size int64) ([]byte, error) {
	if size <= 0 || size > maxSize {
		return nil, fmt.Errorf("%w: a descriptor of %d bytes, allowed are 1 to %d", ErrSize, size, int64(maxSize))
	}
	if err := checkSealed(fd, size, unix.F_SEAL_FUTURE_WRITE|unix.F_SEAL_WRITE); err != nil {
		return nil, err
	}
	return mapAdvisedFD(fd, int(size), unix.PROT_READ)
}

// MapChannel is MapSealed for memory that both ends write: normal pages, whose holes
// are filled by the kernel.
func MapChannel(fd int, size int64) ([]byte, error) {
	if err := checkSealed(fd, size, unix.F_SEAL_SHRINK); err != nil {
		return nil, err
	}
	return mapAdvisedFD(fd, int(size), unix.PROT_READ|unix.PROT_WRITE)
}

// checkSealed demands F_SEAL_SHRINK, one of some more seals, and exactly that size: a mapping of huge pages can be
// ended only as a whole.
func checkSealed(fd int, size int64, one int) error {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return fmt.Errorf("%w: a descriptor that can have no seals: %w", ErrUnsealed, err)
	}
	if seals&unix.F_SEAL_SHRINK == 0 || seals&one == 0 {
		return fmt.Errorf("%w: seals %#x lack F_SEAL_SHRINK, or what keeps holes out", ErrUnsealed, seals)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("fstat of a passed descriptor: %w", err)
	}
	if st.Size != size {
		return fmt.Errorf("%w: %d bytes, %d were promised", ErrUnsealed, st.Size, size)
	}
	return nil
}

// Backed reports whether every byte of a memfd has a page already, so that reading a mapping of it takes no memory. A
// read of a hole makes the kernel allocate a page, which it charges to the reader. The answer holds for as long as
// the memfd has the seals that MapSealed demands, because they forbid new holes. It is false for huge pages, where
// the kernel does not tell.
func Backed(fd int, size int64) bool {
	var fs unix.Statfs_t
	if unix.Fstatfs(fd, &fs) != nil || fs.Type != unix.TMPFS_MAGIC {
		return false
	}
	// The number of blocks would not do: blocks may lie behind the end.
	hole, err := unix.Seek(fd, 0, unix.SEEK_HOLE)
	return err == nil && hole >= size
}

// Taken is how many bytes of memory of New have pages, and false if there is no such memory (any more).
func Taken(raw []byte) (bytes int64, ok bool) {
	fd, ok := fdOf(raw)
	if !ok {
		return 0, false
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return 0, false
	}
	return st.Blocks * 512, true
}

// Filled is the first range at or behind from of memory of New in which every page is there. ok is
// false if there is none. It moves the offset of the descriptor, which nobody reads or writes by.
func Filled(raw []byte, from int64) (start, end int64, ok bool) {
	fd, ok := fdOf(raw)
	if !ok {
		return 0, 0, false
	}
	start, err := unix.Seek(fd, from, unix.SEEK_DATA)
	if err != nil {
		return 0, 0, false // ENXIO: none
	}
	end, err = unix.Seek(fd, start, unix.SEEK_HOLE)
	return start, min(end, int64(len(raw))), err == nil && start < int64(len(raw))
}

// fdOf is the descriptor of memory of New. The caller sees to it that it is not freed meanwhile.
func fdOf(raw []byte) (fd int, ok bool) {
	backings.mu.RLock()
	defer backings.mu.RUnlock()
	i, ok := slices.BinarySearchFunc(backings.list, addrOf(raw), compareBase)
	if !ok {
		return -1, false
	}
	return backings.list[i].fd, true
}

// UnmapSealed ends a mapping of MapSealed or MapChannel.
func UnmapSealed(raw []byte) error { return unmapFile(raw) }

// NewChannel makes a memfd of size bytes that can neither shrink nor grow, for
// two processes that both write it, and maps it. The descriptor is the caller's
// to pass on and to close.
func NewChannel(size int) (raw []byte, fd int, err error) {
	if fd, err = newMemfd("rdmakv-channel", 0); err != nil {
		return nil, -1, err
	}
	if err = unix.Ftruncate(fd, int64(size)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err == nil {
		raw, err = mapAdvisedFD(fd, size, unix.PROT_READ|unix.PROT_WRITE)
	}
	if err != nil {
		return nil, -1, errors.Join(fmt.Errorf("a memfd of %d bytes: %w", size, err), unix.Close(fd))
	}
	return raw, fd, nil
}
