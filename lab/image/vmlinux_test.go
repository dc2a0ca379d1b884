package image

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
)

// bzImage makes one with the given payload.
func bzImage(packed []byte) []byte {
	const sectors, at = 2, 32
	b := make([]byte, 512*(sectors+1)+at)
	b[offSetupSects] = sectors
	copy(b[offMagic:], "HdrS")
	binary.LittleEndian.PutUint16(b[offVersion:], 0x20f)
	binary.LittleEndian.PutUint32(b[offPayload:], at)
	binary.LittleEndian.PutUint32(b[offPayloadLength:], uint32(len(packed)))
	return append(append(b, packed...), "trailer"...)
}

// elfWith makes an ELF file with one segment of notes.
func elfWith(noteType uint32) []byte {
	note := make([]byte, 12)
	binary.LittleEndian.PutUint32(note, 4)
	binary.LittleEndian.PutUint32(note[4:], 8)
	binary.LittleEndian.PutUint32(note[8:], noteType)
	note = append(append(note, "Xen\x00"...), make([]byte, 8)...)
	var b bytes.Buffer
	h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: 1, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1}
	copy(h.Ident[:], "\x7fELF\x02\x01\x01")
	p := elf.Prog64{Type: uint32(elf.PT_NOTE), Off: 120, Filesz: uint64(2 * len(note))}
	_ = binary.Write(&b, binary.LittleEndian, h)
	_ = binary.Write(&b, binary.LittleEndian, p)
	other := bytes.Clone(note)
	binary.LittleEndian.PutUint32(other[8:], 6)
	b.Write(other)
	b.Write(note)
	return b.Bytes()
}

func packed(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestUnpacked(t *testing.T) {
	dir := t.TempDir()
	file, out := filepath.Join(dir, "vmlinuz"), filepath.Join(dir, "vmlinux")
	kernel := elfWith(pvhNote)
	write := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, b := range map[string][]byte{
		"no bzImage":          []byte("hello"),
		"unknown packing":     bzImage([]byte("what is this")),
		"payload too long":    bzImage(packed(t, kernel))[:1600],
		"no kernel in it":     bzImage(packed(t, []byte("hello"))),
		"no PVH entry":        bzImage(packed(t, elfWith(7))),
		"kernel not complete": bzImage(packed(t, kernel[:len(kernel)-4])),
	} {
		write(b)
		if got := unpacked(t.Context(), file, out); got != file {
			t.Errorf("%s: boots %s", name, got)
		}
	}
	write(bzImage(packed(t, kernel)))
	for range 2 { // made, then found
		if got := unpacked(t.Context(), file, out); got != out {
			t.Errorf("boots %s", got)
		}
		if data, err := os.ReadFile(out); err != nil || !bytes.Equal(data, kernel) {
			t.Errorf("kernel of %d bytes, %v", len(data), err)
		}
	}
}

// FuzzKernel: no bytes of a package make the host stumble.
func FuzzKernel(f *testing.F) {
	f.Add(bzImage([]byte("x")), elfWith(pvhNote))
	f.Fuzz(func(t *testing.T, image, kernel []byte) {
		if p, err := payload(image); err == nil && len(p) > len(image) {
			t.Errorf("payload of %d bytes in %d", len(p), len(image))
		}
		_ = startable(kernel)
	})
}
