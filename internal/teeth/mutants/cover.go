package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// why runs the tests of a patch with coverage, and prints which blocks of the
// files that it changes they ran.
func (t *tree) why(ctx context.Context, name string) error {
	p, err := t.named(name)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	for _, test := range p.tests {
		points, err := line{patch: p, test: test}.points(t)
		if err != nil {
			return err
		}
		overlay, err := t.overlay(filepath.Join(tmp, "overlay"), points, p)
		if err != nil {
			return err
		}
		var dirs []string
		for _, f := range p.files {
			dirs = append(dirs, "./"+filepath.Dir(f.path))
		}
		profile := filepath.Join(tmp, "profile")
		out, _ := command(ctx, t.root, nil, "go", "test", "-overlay", overlay, "-vet=off", "-tags="+tags(points), "-count=1",
			"-coverpkg="+strings.Join(dirs, ","), "-coverprofile="+profile, "-run", "^"+test.name+"$", "./"+test.dir)
		fmt.Printf("%s %s:\n%s\n", test.dir, test.name, tail(string(out), 10))
		data, err := os.ReadFile(profile)
		if err != nil {
			return err
		}
		for _, f := range p.files {
			if err := f.printCovered(filepath.Join(tmp, "overlay", f.path), string(data)); err != nil {
				return err
			}
		}
	}
	return nil
}

// printCovered prints the new lines of each hunk, with whether the coverage
// profile says that they were run. changed is the file with the patch in it.
func (f *filePatch) printCovered(changed, profile string) error {
	data, err := os.ReadFile(changed)
	if err != nil {
		return err
	}
	lines := strings.Split(string(data), "\n")
	ran := map[int]string{}
	for block := range strings.Lines(profile) {
		place, rest, found := strings.Cut(strings.TrimSpace(block), ":")
		var fromLine, fromColumn, toLine, toColumn, statements, count int
		if n, _ := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d", &fromLine, &fromColumn, &toLine, &toColumn, &statements, &count); !found || n < 6 || !strings.HasSuffix(place, "/"+f.path) {
			continue
		}
		mark := "not run"
		if count > 0 {
			mark = "run"
		}
		for i := fromLine; i <= toLine; i++ {
			if ran[i] != "run" {
				ran[i] = mark
			}
		}
	}
	for _, h := range f.hunks {
		h.old = h.new
		for _, at := range h.find(lines) {
			for i, text := range h.new {
				fmt.Printf("  %-8s %s:%d: %s\n", ran[at+i+1], f.path, at+i+1, text)
			}
		}
	}
	return nil
}
