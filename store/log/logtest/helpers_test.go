package logtest

import (
	"bytes"
	"testing"

	"github.com/rdmakv/rdmakv/store/log"
)

var (
	buffered = log.Access{Write: true}
	direct   = log.Access{Write: true, Direct: true}
)

// aligned returns a buffer for direct access, filled with c.
func aligned(n int, c byte) []byte {
	b := make([]byte, n+pageSize)
	b = b[(pageSize-int(address(b)%pageSize))%pageSize:][:n:n]
	for i := range b {
		b[i] = c
	}
	return b
}

// made returns a disk with one durable file of zeros, opened.
func made(t *testing.T, o Options, size int64, a log.Access) (*Disk, log.File) {
	t.Helper()
	d := New(o)
	f, err := d.Create("f", size, true, a)
	must(t, err)
	must(t, f.Sync())
	must(t, d.Sync())
	return d, f
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, f log.File, b []byte, off int64) {
	t.Helper()
	if n, err := f.WriteAt(b, off); n != len(b) || err != nil {
		t.Fatalf("WriteAt: %d, %v", n, err)
	}
}

// get reads a file as a new process does.
func get(t *testing.T, d *Disk, a log.Access, n int, off int64) []byte {
	t.Helper()
	f, err := d.Open("f", a)
	must(t, err)
	defer f.Close()
	b := aligned(n, 0xee)
	_, err = f.ReadAt(b, off)
	must(t, err)
	return b
}

func contents(t *testing.T, d *Disk, name string) []byte {
	t.Helper()
	b, err := d.Contents(name)
	must(t, err)
	return b
}

// runs returns the bytes of b in which each sector is of one byte, one letter a sector, or
// '?' for a sector that is mixed.
func runs(b []byte) string {
	var s []byte
	for ; len(b) > 0; b = b[sectorSize:] {
		c := b[0]
		if !bytes.Equal(b[:sectorSize], bytes.Repeat([]byte{c}, sectorSize)) {
			c = '?'
		}
		if c == 0 {
			c = '.'
		}
		s = append(s, c)
	}
	return string(s)
}
