package main

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// What the disk and the processor are asked here, by the system's own calls.

const (
	openDirect = unix.O_DIRECT
	openSync   = unix.O_DSYNC
)

func datasync(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

// reserve gives a file its blocks without writing them.
func reserve(f *os.File, size int) error { return unix.Fallocate(int(f.Fd()), 0, 0, int64(size)) }

// forget drops a file's pages from the page cache: what is read next comes from
// the disk. Pages that are not written yet stay, so f is synced before.
func forget(f *os.File) error {
	if err := f.Sync(); err != nil {
		return err
	}
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// aligned returns memory on a page boundary, as direct I/O wants it, and how to give it
// back.
func aligned(size int) ([]byte, func(), error) {
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, fmt.Errorf("memory for direct I/O: %w", err)
	}
	return b, func() { _ = unix.Munmap(b) }, nil
}

// alignments is what statx says of direct I/O in a directory's file system.
func alignments(dir string) string {
	f, err := os.CreateTemp(dir, "align-")
	if err != nil {
		return err.Error()
	}
	defer os.Remove(f.Name())
	defer f.Close()
	var st unix.Statx_t
	switch err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st); {
	case err != nil:
		return "what statx does not tell (" + err.Error() + ")"
	case st.Mask&unix.STATX_DIOALIGN == 0:
		return "what statx does not tell (no DIO_ALIGN)"
	}
	return fmt.Sprintf("memory at multiples of %d B, offsets of %d B", st.Dio_mem_align, st.Dio_offset_align)
}

// processorTime is what this process has used on all cores, in the kernel too.
func processorTime() time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// threadTime is what the calling thread has used. The caller has locked itself to
// it.
func threadTime() time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
