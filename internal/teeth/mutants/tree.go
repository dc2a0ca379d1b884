package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// These are the places of things in the module.
const (
	patchDir   = "internal/teeth/mutants"
	pointsFile = "internal/teeth/points.patch"
	teethFile  = "internal/teeth/teeth.go"
)

// A tree is the module as it lies on the disk.
type tree struct {
	root    string // as the go command names it: overlays must name files likewise
	points  *patch
	mutants []*patch // by name
}

// openTree reads the patches of the module that the working directory is in.
func openTree() (*tree, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	return readTree(filepath.Dir(strings.TrimSpace(string(out))))
}

func readTree(root string) (*tree, error) {
	t := &tree{root: root}
	var err error
	if t.points, err = t.patch("points", pointsFile); err != nil {
		return nil, err
	}
	paths, err := filepath.Glob(filepath.Join(root, patchDir, "*.patch"))
	if err != nil {
		return nil, err
	}
	slices.Sort(paths)
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".patch")
		p, err := t.patch(name, filepath.Join(patchDir, name+".patch"))
		if err != nil {
			return nil, err
		}
		t.mutants = append(t.mutants, p)
	}
	return t, nil
}

// patch reads the patch in a file.
func (t *tree) patch(name, path string) (*patch, error) {
	text, err := t.read(path)
	if err != nil {
		return nil, err
	}
	return parse(name, text)
}

// named returns the mutant of a name.
func (t *tree) named(name string) (*patch, error) {
	for _, p := range t.mutants {
		if p.name == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no patch %s in %s", name, patchDir)
}

// read returns the text of a file.
func (t *tree) read(path string) (string, error) {
	data, err := os.ReadFile(filepath.Join(t.root, path))
	return string(data), err
}

// changed returns the files that differ with the patches in them, in their
// order, and with the points first if the caller asks for them.
func (t *tree) changed(points bool, patches ...*patch) (map[string]string, error) {
	files := map[string]string{}
	if points {
		patches = append([]*patch{t.points}, patches...)
	}
	var err error
	for _, p := range patches {
		if files, err = p.apply(files, t.read); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// says is a patch by which a program says what it is.
func says(mutant string, points bool) *patch {
	return &patch{name: "teeth", files: []filePatch{{path: teethFile, hunks: []hunk{
		{old: []string{"\tMutant = \"\""}, new: []string{fmt.Sprintf("\tMutant = %q", mutant)}},
		{old: []string{"\tPoints = false"}, new: []string{fmt.Sprintf("\tPoints = %v", points)}},
	}}}}
}

// overlay writes what go build -overlay takes below dir, an absolute path, and
// returns the path of its JSON file.
func (t *tree) overlay(dir string, points bool, patches ...*patch) (string, error) {
	files, err := t.changed(points, patches...)
	if err != nil {
		return "", err
	}
	var names []string
	for _, p := range patches {
		names = append(names, p.name)
	}
	if files, err = says(strings.Join(names, ","), points).apply(files, t.read); err != nil {
		return "", err
	}
	return t.write(dir, files)
}

// write writes an overlay of the texts of files below dir, an absolute path, and
// returns the path of its JSON file.
func (t *tree) write(dir string, files map[string]string) (string, error) {
	var o struct{ Replace map[string]string }
	o.Replace = map[string]string{}
	for path, text := range files {
		to := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			return "", err
		}
		o.Replace[filepath.Join(t.root, path)] = to
	}
	data, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, data, 0o644)
}
