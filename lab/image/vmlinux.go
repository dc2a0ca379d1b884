package image

import (
	"bytes"
	"compress/gzip"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// A bzImage unpacks itself when it starts, which an emulated processor takes
// seconds for, at every boot. So it is unpacked here, once, and QEMU starts the
// ELF file inside by the PVH entry.

// maxKernel bounds what is unpacked.
const maxKernel = 512 << 20

// Offsets in a bzImage (Documentation/x86/boot.rst, "The Real-Mode Kernel
// Header"; the payload's since protocol 2.08).
const (
	offSetupSects    = 0x1f1 // 1 byte, sectors of 512 bytes after the first
	offMagic         = 0x202 // "HdrS"
	offVersion       = 0x206 // 2 bytes
	offPayload       = 0x248 // 4 bytes, from the end of the setup sectors
	offPayloadLength = 0x24c // 4 bytes
	headerEnd        = 0x250
)

// payload returns the packed kernel in a bzImage.
func payload(image []byte) ([]byte, error) {
	if len(image) < headerEnd || string(image[offMagic:offMagic+4]) != "HdrS" {
		return nil, errors.New("not a bzImage")
	}
	if v := binary.LittleEndian.Uint16(image[offVersion:]); v < 0x208 {
		return nil, fmt.Errorf("boot protocol %#x says nothing of a payload", v)
	}
	sectors := uint64(image[offSetupSects])
	if sectors == 0 {
		sectors = 4
	}
	from := (sectors+1)*512 + uint64(binary.LittleEndian.Uint32(image[offPayload:]))
	length := uint64(binary.LittleEndian.Uint32(image[offPayloadLength:]))
	if from+length > uint64(len(image)) {
		return nil, fmt.Errorf("payload of %d bytes at %d in %d", length, from, len(image))
	}
	return image[from : from+length], nil
}

// unpack undoes the compressions that Debian has used for kernels.
func unpack(ctx context.Context, packed []byte) ([]byte, error) {
	switch {
	case bytes.HasPrefix(packed, []byte("\xfd7zXZ\x00")):
		return filter(ctx, packed, "xz", "-dc", "--single-stream")
	case bytes.HasPrefix(packed, []byte("\x28\xb5\x2f\xfd")):
		return filter(ctx, packed, "zstd", "-dcq")
	case bytes.HasPrefix(packed, []byte("\x1f\x8b")):
		z, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			return nil, err
		}
		return io.ReadAll(io.LimitReader(z, maxKernel))
	}
	return nil, fmt.Errorf("unknown compression % x", packed[:min(len(packed), 6)])
}

// filter runs a program on data. The payload has its length behind it, at
// which unpackers complain after they did their work: what counts is whether
// the result is a kernel.
func filter(ctx context.Context, data []byte, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin = bytes.NewReader(data)
	out, err := cmd.Output()
	if len(out) == 0 && err != nil {
		return nil, fmt.Errorf("%s: %w", args[0], err)
	}
	return out, nil
}

// pvhNote is XEN_ELFNOTE_PHYS32_ENTRY (include/xen/interface/elfnote.h): the
// address where QEMU enters a kernel without a boot loader.
const pvhNote = 18

// startable says whether an ELF file is whole and has that note.
func startable(kernel []byte) error {
	f, err := elf.NewFile(bytes.NewReader(kernel))
	if err != nil {
		return err
	}
	var notes []byte
	for _, p := range f.Progs {
		if p.Off+p.Filesz > uint64(len(kernel)) {
			return io.ErrUnexpectedEOF
		}
		if p.Type == elf.PT_NOTE {
			notes = kernel[p.Off : p.Off+p.Filesz]
		}
	}
	round := func(n uint32) uint64 { return (uint64(n) + 3) &^ 3 }
	for len(notes) >= 12 {
		name, desc := binary.LittleEndian.Uint32(notes), binary.LittleEndian.Uint32(notes[4:])
		if binary.LittleEndian.Uint32(notes[8:]) == pvhNote {
			return nil
		}
		size := 12 + round(name) + round(desc)
		if size > uint64(len(notes)) {
			break
		}
		notes = notes[size:]
	}
	return errors.New("no PVH entry")
}

// unpacked writes the kernel in a bzImage to a file that QEMU can start, unless
// that file is there. Where that is not possible, because of a missing xz say,
// the bzImage itself is returned: it boots too, only later.
func unpacked(ctx context.Context, bzImage, file string) string {
	if exists(file) {
		return file
	}
	data, err := os.ReadFile(bzImage)
	if err != nil {
		return bzImage
	}
	packed, err := payload(data)
	if err != nil {
		return bzImage
	}
	kernel, err := unpack(ctx, packed)
	if err != nil || startable(kernel) != nil || replace(file, kernel) != nil {
		return bzImage
	}
	return file
}
