package tables

import (
	"errors"
	"io/fs"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// A buffer has a share of the bytes that are set aside for the file, within bounds. There
	// are two: while one is written the next values are copied into the other.
	bufferShare = 16
	leastBuffer = 256 << 10
	mostBuffer  = 4 << 20
	// directBlock is what offsets and lengths of direct writes are multiples of: what file
	// systems write as a whole, and a multiple of what disks do.
	directBlock = 4096
)

// A directFile is an appendFile past the page cache, whose writes are durable when they return.
// What does not fill a block is written with zeros behind it, and again with what comes next:
// the bytes of an earlier Flush are the same in both.
type directFile struct {
	path  string
	fd    int
	room  int64
	pages []byte // both buffers

	flushing sync.Mutex // one Flush at a time; taken before mu
	spare    []byte
	err      error // of a write: nothing is believed behind it

	mu     sync.Mutex
	buffer []byte // of whole pages, because it is a mapping of its own
	used   int    // bytes of it
	kept   int    // of them were flushed
	offset int64  // of the buffer in the file
}

// createDirect makes a file for which so many bytes are set aside, if the file system does that;
// nil: it refuses direct access.
func createDirect(path string, size int64) (appendFile, error) {
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
	f := &directFile{path: path, fd: fd}
	for range maxInterrupts {
		if err = unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, size); err != unix.EINTR {
			break
		}
	}
	switch err {
	case nil:
		f.room = size
	case unix.EOPNOTSUPP, unix.ENOSYS, unix.EINTR:
	default:
		return nil, errors.Join(&fs.PathError{Op: "allocate", Path: path, Err: err}, unix.Close(fd))
	}
	one := int(min(max(size/bufferShare, leastBuffer), mostBuffer)) &^ (directBlock - 1)
	both, err := unix.Mmap(-1, 0, 2*one, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, errors.Join(&fs.PathError{Op: "map a buffer for", Path: path, Err: err}, unix.Close(fd))
	}
	f.pages, f.buffer, f.spare = both, both[:one:one], both[one:]
	return f, nil
}

// maxInterrupts bounds how often a call is begun again after a signal.
const maxInterrupts = 64

func (f *directFile) Room() int64 { return f.room }

func (f *directFile) Append(p []byte) error {
	for len(p) > 0 {
		f.mu.Lock()
		n := copy(f.buffer[f.used:], p)
		f.used += n
		full := f.used == len(f.buffer)
		f.mu.Unlock()
		p = p[n:]
		if full {
			if _, err := f.Flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *directFile) Flush() (int64, error) {
	f.flushing.Lock()
	defer f.flushing.Unlock()
	if f.err != nil {
		return 0, f.err
	}
	f.mu.Lock()
	durable, full, used, offset := f.offset+int64(f.used), f.buffer, f.used, f.offset
	if used == f.kept {
		f.mu.Unlock()
		return durable, nil
	}
	whole := used &^ (directBlock - 1)
	f.buffer, f.spare = f.spare, f.buffer
	f.used = copy(f.buffer, full[whole:used])
	f.kept = f.used
	f.offset += int64(whole)
	f.mu.Unlock()
	end := whole
	if used > whole {
		end += directBlock
		for i := used; i < end; i++ {
			full[i] = 0
		}
	}
	f.err = f.write(full[:end], offset)
	return durable, f.err
}

// write writes whole blocks, by one call.
func (f *directFile) write(p []byte, offset int64) error {
	for range maxInterrupts {
		got, err := unix.Pwrite(f.fd, p, offset)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return &fs.PathError{Op: "write", Path: f.path, Err: err}
		case got != len(p):
			// The disk is full, or worse: a table is never completed behind that.
			return &fs.PathError{Op: "write", Path: f.path, Err: unix.ENOSPC}
		}
		return nil
	}
	return &fs.PathError{Op: "write", Path: f.path, Err: unix.EINTR}
}

func (f *directFile) Finish() error {
	size, err := f.Flush()
	if err == nil {
		for range maxInterrupts {
			if err = unix.Ftruncate(f.fd, size); err != unix.EINTR {
				break
			}
		}
		if err == nil {
			for range maxInterrupts {
				if err = unix.Fsync(f.fd); err != unix.EINTR {
					break
				}
			}
		}
		if err != nil {
			err = &fs.PathError{Op: "finish", Path: f.path, Err: err}
		}
	}
	return errors.Join(err, f.Close())
}

func (f *directFile) Close() error {
	f.flushing.Lock()
	defer f.flushing.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fd < 0 {
		return &fs.PathError{Op: "close", Path: f.path, Err: fs.ErrClosed}
	}
	if f.err == nil {
		f.err = &fs.PathError{Op: "write", Path: f.path, Err: fs.ErrClosed}
	}
	fd, pages := f.fd, f.pages
	f.fd, f.pages, f.buffer, f.spare = -1, nil, nil, nil
	return errors.Join(unix.Munmap(pages), unix.Close(fd))
}
