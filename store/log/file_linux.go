package log

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A linuxFile is a File by system calls of its own: those of package os complete a short
// write by further ones, and after a short write nothing may be written.
type linuxFile struct {
	path   string
	direct bool
	write  bool
	block  int
	size   atomic.Int64
	whole  atomic.Bool // a sync must make the length durable too

	open sync.RWMutex // held shared during each call, so that no call meets another file's number
	fd   int          // -1: closed
}

// openFile opens a regular file that exists.
func openFile(path string, a Access) (File, error) {
	// Without O_NONBLOCK the open of a pipe would wait for its other end.
	flags := unix.O_CLOEXEC | unix.O_NOFOLLOW | unix.O_NONBLOCK
	if a.Write {
		flags |= unix.O_RDWR
	}
	if a.Direct {
		flags |= unix.O_DIRECT
		if a.Write {
			flags |= unix.O_DSYNC
		}
	}
	fd, err := openRegular(path, flags)
	if err != nil {
		return nil, err
	}
	f := &linuxFile{path: path, direct: a.Direct, write: a.Write, block: pageBlock, fd: fd}
	if a.Direct {
		if f.block, err = directBlock(fd, path); err != nil {
			return nil, errors.Join(err, unix.Close(fd))
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, errors.Join(&fs.PathError{Op: "stat", Path: path, Err: err}, unix.Close(fd))
	}
	f.size.Store(st.Size)
	return f, nil
}

// directBlock is the alignment of direct access to an open file, as the kernel tells it.
func directBlock(fd int, path string) (int, error) {
	var st unix.Statx_t
	err := again(func() error { return unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st) })
	if err != nil || st.Mask&unix.STATX_DIOALIGN == 0 {
		return pageBlock, nil // a kernel before 6.1, or a file system that does not tell
	}
	block := max(minSector, st.Dio_mem_align, st.Dio_offset_align)
	if st.Dio_offset_align == 0 || block&(block-1) != 0 || block > maxBlock {
		return 0, &fs.PathError{Op: "open", Path: path, Err: ErrNoDirect}
	}
	return int(block), nil
}

// begin is the start of each call on the file. If it returns nil, the file stays open until
// the caller gives f.open back.
func (f *linuxFile) begin(op string, p []byte, off int64) error {
	f.open.RLock()
	err := f.check(op, p, off)
	if err != nil {
		f.open.RUnlock()
	}
	return err
}

func (f *linuxFile) check(op string, p []byte, off int64) error {
	switch {
	case f.fd < 0:
		return &fs.PathError{Op: op, Path: f.path, Err: fs.ErrClosed}
	case op != "read" && !f.write:
		return &fs.PathError{Op: op, Path: f.path, Err: fs.ErrPermission}
	case off < 0:
		return outside(op, f.path, len(p), off, f.size.Load())
	case f.direct && (off&int64(f.block-1) != 0 || !isAligned(p, f.block)):
		return &fs.PathError{Op: op, Path: f.path, Err: fmt.Errorf("%d bytes at offset %d are not aligned to %d: %w", len(p), off, f.block, fs.ErrInvalid)}
	}
	return nil
}

// ReadAt reads all of p. Reading on after a part is safe: a part is all that a call gives
// at the end of a file, or beyond what a kernel takes at once.
func (f *linuxFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.begin("read", p, off); err != nil {
		return 0, err
	}
	defer f.open.RUnlock()
	for done := 0; ; {
		if done == len(p) {
			return done, nil
		}
		n, err := unix.Pread(f.fd, p[done:], off+int64(done))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return done, &fs.PathError{Op: "read", Path: f.path, Err: err}
		}
		done += n
		// A direct read ends within a block only where the file does.
		if n == 0 || f.direct && n&(f.block-1) != 0 && done < len(p) {
			return done, io.EOF
		}
	}
}

// WriteAt writes all of p by one call.
func (f *linuxFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.begin("write", p, off); err != nil {
		return 0, err
	}
	defer f.open.RUnlock()
	if size := f.size.Load(); off > size || int64(len(p)) > size-off {
		return 0, outside("write", f.path, len(p), off, size)
	}
	if err := pwrite(f.fd, f.path, p, off); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Sync makes durable what was written. The length of a file changes by Truncate alone, so
// only from then on it has to be a sync of the whole inode.
func (f *linuxFile) Sync() error {
	f.open.RLock()
	defer f.open.RUnlock()
	if f.fd < 0 {
		return &fs.PathError{Op: "sync", Path: f.path, Err: fs.ErrClosed}
	}
	sync := unix.Fdatasync
	if f.whole.Load() {
		sync = unix.Fsync
	}
	if err := again(func() error { return sync(f.fd) }); err != nil {
		return &fs.PathError{Op: "sync", Path: f.path, Err: err}
	}
	return nil
}

// Truncate makes the file shorter.
func (f *linuxFile) Truncate(size int64) error {
	if err := f.begin("truncate", nil, 0); err != nil {
		return err
	}
	defer f.open.RUnlock()
	if now := f.size.Load(); size < 0 || size > now {
		return outside("truncate", f.path, 0, size, now)
	}
	if err := again(func() error { return unix.Ftruncate(f.fd, size) }); err != nil {
		return &fs.PathError{Op: "truncate", Path: f.path, Err: err}
	}
	f.size.Store(size)
	f.whole.Store(true)
	return nil
}

// Size is the length of the file.
func (f *linuxFile) Size() (int64, error) { return f.size.Load(), nil }

// Block is the alignment of direct access.
func (f *linuxFile) Block() int { return f.block }

// Close closes the file once the calls on it have ended.
func (f *linuxFile) Close() error {
	f.open.Lock()
	defer f.open.Unlock()
	if f.fd < 0 {
		return &fs.PathError{Op: "close", Path: f.path, Err: fs.ErrClosed}
	}
	fd := f.fd
	f.fd = -1
	if err := unix.Close(fd); err != nil {
		return &fs.PathError{Op: "close", Path: f.path, Err: err}
	}
	return nil
}

// pwrite writes all of p by one call. A signal before the first byte is no failure.
func pwrite(fd int, path string, p []byte, off int64) error {
	for {
		n, err := unix.Pwrite(fd, p, off)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return &fs.PathError{Op: "write", Path: path, Err: err}
		case n != len(p):
			return shortWrite(path, n, len(p), off)
		default:
			return nil
		}
	}
}

// again repeats a call as long as a signal interrupts it before it has done anything.
func again(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
