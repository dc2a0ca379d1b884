package image

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// libDirs are where Debian keeps the shared libraries of this architecture.
var libDirs = []string{"/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib64", "/lib64", "/usr/lib", "/lib"}

// Libraries returns the shared libraries and the dynamic linker that the given
// programs and libraries need, directly or through others, as they would be
// found on this machine. The programs are read, not run as by ldd.
func Libraries(files ...string) ([]string, error) {
	var libs []string
	seen := map[string]bool{}
	queue := append([]string(nil), files...)
	for len(queue) > 0 {
		file := queue[0]
		queue = queue[1:]
		needed, err := needs(file)
		if err != nil {
			return nil, err
		}
		for _, name := range needed {
			lib := name
			if !filepath.IsAbs(name) {
				if lib = findLibrary(name); lib == "" {
					return nil, fmt.Errorf("%s needs %s, which is not here", file, name)
				}
			}
			if !seen[lib] {
				seen[lib] = true
				libs = append(libs, lib)
				queue = append(queue, lib)
			}
		}
	}
	return libs, nil
}

// needs returns the names in the dynamic section of an ELF file, and its
// interpreter. A script needs nothing.
func needs(file string) ([]string, error) {
	f, err := elf.Open(file)
	var format *elf.FormatError
	if errors.As(err, &format) || errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.ImportedLibraries()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP && p.Filesz > 1 && p.Filesz < 4096 {
			b := make([]byte, p.Filesz-1) // without the zero
			if _, err := p.ReadAt(b, 0); err != nil {
				return nil, err
			}
			names = append(names, string(b))
		}
	}
	return names, nil
}

func findLibrary(name string) string {
	for _, dir := range libDirs {
		if p := filepath.Join(dir, name); exists(p) {
			return p
		}
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
