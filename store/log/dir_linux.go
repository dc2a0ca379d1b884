package log

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// maxInterrupts bounds how often an allocation is begun again after a signal. The runtime
// sends signals to its own threads, and an allocation that begins anew each time might
// never end.
const maxInterrupts = 64

// makeFile makes a file of size bytes, for which there is room, and makes it durable.
func makeFile(path string, size int64, prewritten, direct bool) error {
	fd, err := openRegular(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	zeros := func() error {
		return writeZeros(func(p []byte, off int64) error { return pwrite(fd, path, p, off) }, size)
	}
	switch err = allocate(fd, size); err {
	case nil:
	case unix.EOPNOTSUPP, unix.ENOSYS, unix.EINTR:
		err, prewritten = zeros(), false
	default:
		err = &fs.PathError{Op: "allocate", Path: path, Err: err}
	}
	if err == nil && prewritten {
		if direct {
			// Past the page cache: a segment of zeros would push out what is of use.
			err = setDirect(fd, path)
		}
		if err == nil {
			err = zeros()
		}
	}
	if err == nil {
		if err = again(func() error { return unix.Fsync(fd) }); err != nil {
			err = &fs.PathError{Op: "sync", Path: path, Err: err}
		}
	}
	return errors.Join(err, unix.Close(fd))
}

// allocate sets room aside for a file, and gives it its length.
func allocate(fd int, size int64) (err error) {
	for range maxInterrupts {
		if err = unix.Fallocate(fd, 0, 0, size); err != unix.EINTR {
			break
		}
	}
	return err
}

// setDirect makes an open file one that goes past the page cache.
func setDirect(fd int, path string) error {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags|unix.O_DIRECT)
	}
	if err == unix.EINVAL {
		err = ErrNoDirect
	}
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return nil
}

// openRegular opens a path and refuses what is no regular file. A file system that has no
// direct access refuses the open with EINVAL.
func openRegular(path string, flags int) (int, error) {
	var fd int
	err := again(func() (err error) {
		fd, err = unix.Open(path, flags, fileMode)
		return err
	})
	if err == unix.EINVAL && flags&unix.O_DIRECT != 0 {
		return -1, &fs.PathError{Op: "open", Path: path, Err: ErrNoDirect}
	}
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = fmt.Errorf("no regular file: %w", fs.ErrInvalid)
	}
	if err != nil {
		return -1, errors.Join(&fs.PathError{Op: "open", Path: path, Err: err}, unix.Close(fd))
	}
	return fd, nil
}

// renameNew renames a file to a name that no file has.
func renameNew(from, to string) error {
	err := again(func() error {
		return unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	})
	if err == unix.ENOSYS || err == unix.EINVAL { // the kernel, or the file system, has no such rename
		return checkedRename(from, to)
	}
	return err
}

// The numbers by which the kernel names file systems that write elsewhere what is
// overwritten, beside those that package unix has.
const (
	zfsMagic      = 0x2fc12fc1
	bcachefsMagic = 0xca451a4e
	nilfsMagic    = 0x3434
)

// CopiesOnWrite reports whether the file system of a path needs new room for bytes that are
// written over others. There a segment that is used again gains nothing, and can meet a
// full disk. XFS is none: it copies only what two files share.
func CopiesOnWrite(path string) bool {
	var st unix.Statfs_t
	if err := again(func() error { return unix.Statfs(path, &st) }); err != nil {
		return false
	}
	switch uint32(st.Type) {
	case unix.BTRFS_SUPER_MAGIC, zfsMagic, bcachefsMagic, nilfsMagic:
		return true
	}
	return false
}
