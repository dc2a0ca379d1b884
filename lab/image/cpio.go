package image

import (
	"fmt"
	"io"
	"io/fs"
)

// An archive is written in the "new ASCII" format of cpio, the one that the
// kernel unpacks at its start (Documentation/driver-api/early-userspace/
// buffer-format.rst): a header of 110 hexadecimal characters, the name with a
// zero, the contents, each padded to 4 bytes.
type archive struct {
	w     io.Writer
	inode uint32
	err   error // sticky
}

// Modes of entries, as in inode(7).
const (
	modeDir  = 0o040000
	modeFile = 0o100000
	modeLink = 0o120000
)

// entry writes one entry. A link's contents are its target.
func (a *archive) entry(name string, mode uint32, contents []byte) {
	if a.err != nil {
		return
	}
	if len(contents) > 1<<31 {
		a.err = fmt.Errorf("%s is too large for an initramfs", name)
		return
	}
	a.inode++
	//                  magic ino mode uid gid nlink mtime size devmaj devmin rdevmaj rdevmin namesize check
	_, a.err = fmt.Fprintf(a.w, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.inode, mode, 0, 0, 1, 0, len(contents), 0, 0, 0, 0, len(name)+1, 0, name)
	a.pad(110 + len(name) + 1)
	if a.err == nil {
		_, a.err = a.w.Write(contents)
	}
	a.pad(len(contents))
}

func (a *archive) pad(n int) {
	if a.err == nil && n%4 != 0 {
		_, a.err = a.w.Write(make([]byte, 4-n%4))
	}
}

func (a *archive) dir(name string)          { a.entry(name, modeDir|0o755, nil) }
func (a *archive) link(name, target string) { a.entry(name, modeLink|0o777, []byte(target)) }
func (a *archive) file(name string, perm fs.FileMode, contents []byte) {
	a.entry(name, modeFile|uint32(perm.Perm()), contents)
}

// close writes the trailer.
func (a *archive) close() error {
	a.entry("TRAILER!!!", 0, nil)
	return a.err
}
