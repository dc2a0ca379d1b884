package tables

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

const (
	// directBuffer is how much is written at once. A larger write takes no less time for each
	// byte.
	directBuffer = 1 << 20
	// directBlock is what offsets and lengths of direct writes are multiples of: what file
	// systems write as a whole, and a multiple of what disks do.
	directBlock = 4096
)

// A directFile is an appendFile past the page cache, whose writes are durable when they return.
// What does not fill a block is written with zeros behind it, and again with what comes next:
// the bytes of an earlier Flush are the same in both.
type directFile struct {
	path   string
	fd     int
	buffer []byte // of whole pages, because it is a mapping of its own
	used   int    // bytes of it
	kept   int    // of them were flushed
	offset int64  // of the buffer in the file
}

// createDirect makes a file; nil: the file system refuses direct access.
func createDirect(path string) (appendFile, error) {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_DIRECT|unix.O_DSYNC, 0o600)
	if err == unix.EINVAL {
		// Some file systems make the file and refuse the access.
		if err := unix.Unlink(path); err != nil && err != unix.ENOENT {
			return nil, &fs.PathError{Op: "remove", Path: path, Err: err}
		}
		return nil, nil
	}
	if err != nil {
		return nil, &fs.PathError{Op: "create", Path: path, Err: err}
	}
	buffer, err := unix.Mmap(-1, 0, directBuffer, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, errors.Join(&fs.PathError{Op: "map a buffer for", Path: path, Err: err}, unix.Close(fd))
	}
	return &directFile{path: path, fd: fd, buffer: buffer}, nil
}

func (f *directFile) Append(p []byte) error {
	for len(p) > 0 {
		n := copy(f.buffer[f.used:], p)
		f.used += n
		p = p[n:]
		if f.used == len(f.buffer) {
			if err := f.write(f.used); err != nil {
				return err
			}
			f.offset += int64(f.used)
			f.used, f.kept = 0, 0
		}
	}
	return nil
}

func (f *directFile) Flush() error {
	if f.used == f.kept {
		return nil
	}
	whole := f.used &^ (directBlock - 1)
	end := whole
	if f.used > whole {
		end += directBlock
		for i := f.used; i < end; i++ {
			f.buffer[i] = 0
		}
	}
	if err := f.write(end); err != nil {
		return err
	}
	copy(f.buffer, f.buffer[whole:f.used])
	f.offset += int64(whole)
	f.used -= whole
	f.kept = f.used
	return nil
}

// write writes the first bytes of the buffer, whole blocks, by one call.
func (f *directFile) write(n int) error {
	for {
		got, err := unix.Pwrite(f.fd, f.buffer[:n], f.offset)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return &fs.PathError{Op: "write", Path: f.path, Err: err}
		case got != n:
			// The disk is full, or worse: a table is never completed behind that.
			return &fs.PathError{Op: "write", Path: f.path, Err: unix.ENOSPC}
		default:
			return nil
		}
	}
}

func (f *directFile) Finish() error {
	size := f.offset + int64(f.used)
	err := f.Flush()
	for err == nil {
		if err = unix.Ftruncate(f.fd, size); err == nil {
			if err = unix.Fsync(f.fd); err == nil {
				break
			}
		}
		if err == unix.EINTR {
			err = nil
			continue
		}
		err = &fs.PathError{Op: "finish", Path: f.path, Err: err}
	}
	return errors.Join(err, f.Close())
}

func (f *directFile) Close() error {
	if f.fd < 0 {
		return &fs.PathError{Op: "close", Path: f.path, Err: fs.ErrClosed}
	}
	fd := f.fd
	f.fd = -1
	return errors.Join(unix.Munmap(f.buffer), unix.Close(fd))
}
