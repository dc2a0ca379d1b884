package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rdmakv/rdmakv/lab/deb"
)

// Gather puts programs of Debian packages, which need not be installed, into
// to/bin and the libraries that they need into to/lib: run them with
// LD_LIBRARY_PATH=to/lib. Libraries are taken from this machine and, where it
// lacks one, from the packages that the given ones depend on. It returns the
// packages that it took something from.
func Gather(ctx context.Context, cache, to string, packages, programs []string) ([]deb.Package, error) {
	g := gathering{ctx: ctx, cache: cache, used: make(map[string]deb.Package)}
	for _, name := range packages {
		p, err := deb.Unpack(ctx, cache, name)
		if err != nil {
			return nil, err
		}
		g.roots = append(g.roots, p)
	}
	var queue []string
	for _, program := range programs {
		file := ""
		for _, p := range g.roots {
			for _, dir := range []string{"usr/bin", "usr/sbin", "bin"} {
				if f := filepath.Join(p.Dir, dir, program); file == "" && exists(f) {
					file = f
					g.used[p.Name] = p
				}
			}
		}
		if file == "" { // a link from one package into another is dangling where it was unpacked
			file = g.linked(program)
		}
		if file == "" {
			return nil, fmt.Errorf("%w: no program %s in %v", ErrMissing, program, packages)
		}
		if err := copyFile(filepath.Join(to, "bin", program), file, 0o755); err != nil {
			return nil, err
		}
		queue = append(queue, file)
	}
	seen := make(map[string]bool)
	for len(queue) > 0 {
		needed, err := needs(queue[0])
		if err != nil {
			return nil, err
		}
		for _, name := range needed {
			if filepath.IsAbs(name) || seen[name] {
				continue // the linker itself is the guest's
			}
			seen[name] = true
			lib, err := g.library(name)
			if err != nil {
				return nil, fmt.Errorf("%s needs %s: %w", queue[0], name, err)
			}
			if err := copyFile(filepath.Join(to, "lib", name), lib, 0o755); err != nil {
				return nil, err
			}
			queue = append(queue, lib)
		}
		queue = queue[1:]
	}
	var used []deb.Package
	for _, p := range g.used {
		used = append(used, p)
	}
	return used, nil
}

// A gathering is one call of Gather.
type gathering struct {
	ctx     context.Context
	cache   string
	roots   []deb.Package
	depends []deb.Package // unpacked when the first library is not here
	looked  bool
	used    map[string]deb.Package
}

// linked follows a link of one package to a program of another.
func (g *gathering) linked(program string) string {
	for _, p := range g.roots {
		target, err := os.Readlink(filepath.Join(p.Dir, "usr/bin", program))
		if err != nil {
			continue
		}
		for _, other := range g.roots {
			if f := filepath.Join(other.Dir, "usr/bin", filepath.Base(target)); exists(f) {
				g.used[other.Name] = other
				return f
			}
		}
	}
	return ""
}

// library finds a library by the name that programs have for it.
func (g *gathering) library(name string) (string, error) {
	if lib := findLibrary(name); lib != "" {
		return lib, nil
	}
	if !g.looked {
		g.looked = true
		for _, root := range g.roots {
			names, err := deb.Libraries(g.ctx, root.Name)
			if err != nil {
				return "", err
			}
			for _, n := range names {
				p, err := deb.Unpack(g.ctx, g.cache, n)
				if err != nil {
					return "", err
				}
				g.depends = append(g.depends, p)
			}
		}
	}
	for _, p := range g.depends {
		for _, dir := range libDirs {
			if f := filepath.Join(p.Dir, dir, name); exists(f) {
				g.used[p.Name] = p
				return f, nil
			}
		}
	}
	return "", fmt.Errorf("%w: it is neither here nor in a package that %s depends on", ErrMissing, g.roots[0].Name)
}

func copyFile(to, from string, perm os.FileMode) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := replace(to, data); err != nil {
		return err
	}
	return os.Chmod(to, perm)
}
