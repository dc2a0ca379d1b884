package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
)

// A cache knows the lines that were caught. A line's key covers what the verdict
// depends on: the patch, the test, and every file of the module that the test
// binary is made of. It is safe for concurrent use.
type cache struct {
	tree *tree
	dir  string // where it lies
	read bool   // else it is only written

	mu  sync.Mutex
	was map[string]*inputs // by directory and whether it has the points
}

// inputs is the sum over what a test binary is made of.
type inputs struct {
	once sync.Once
	sum  []byte
	err  error
}

func newCache(t *tree, read bool) *cache {
	return &cache{tree: t, dir: filepath.Join(t.root, ".cache", "mutants"), read: read, was: map[string]*inputs{}}
}

// has reports whether the line with this key was caught before.
func (c *cache) has(key string) bool {
	_, err := os.Stat(filepath.Join(c.dir, key))
	return c.read && err == nil
}

// add notes that the line with this key was caught.
func (c *cache) add(key string) error {
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(c.dir, key), nil, 0o644)
}

// key names a line of the table.
func (c *cache) key(ctx context.Context, l line, points bool) (string, error) {
	c.mu.Lock()
	name := fmt.Sprint(l.test.dir, points)
	in := c.was[name]
	if in == nil {
		in = &inputs{}
		c.was[name] = in
	}
	c.mu.Unlock()
	in.once.Do(func() { in.sum, in.err = c.inputs(ctx, l.test.dir, points) })
	if in.err != nil {
		return "", in.err
	}
	files, err := c.tree.changed(points, l.patch)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s %q %s %s %v\n%x\n", runtime.Version(), os.Getenv("GOFLAGS"), l.patch.name, l.test.name, points, in.sum)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(h, "%q %q\n", path, files[path])
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// inputs sums up the files of the module that the test binary of dir is made of,
// the testdata, and go.sum, which stands for other modules.
func (c *cache) inputs(ctx context.Context, dir string, points bool) ([]byte, error) {
	out, err := command(ctx, c.tree.root, nil, "go", "list", "-deps", "-test", "-tags="+tags(points),
		"-json=Dir,Module,GoFiles,CgoFiles,HFiles,SFiles,EmbedFiles,TestGoFiles,XTestGoFiles", "./"+dir)
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, out)
	}
	files := []string{filepath.Join(c.tree.root, "go.mod"), filepath.Join(c.tree.root, "go.sum")}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir                                                                      string
			Module                                                                   *struct{ Main bool }
			GoFiles, CgoFiles, HFiles, SFiles, EmbedFiles, TestGoFiles, XTestGoFiles []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if p.Module == nil || !p.Module.Main {
			continue
		}
		for _, name := range slices.Concat(p.GoFiles, p.CgoFiles, p.HFiles, p.SFiles, p.EmbedFiles, p.TestGoFiles, p.XTestGoFiles) {
			if !filepath.IsAbs(name) { // a generated one
				files = append(files, filepath.Join(p.Dir, name))
			}
		}
	}
	err = filepath.WalkDir(filepath.Join(c.tree.root, dir, "testdata"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	slices.Sort(files)
	h := sha256.New()
	for _, path := range slices.Compact(files) {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(h, "%q %x\n", path, sha256.Sum256(data))
	}
	return h.Sum(nil), nil
}
