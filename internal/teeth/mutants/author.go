package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// patches returns the patches of a list of names, and whether it asks for the
// points, by name or because a patch stands on them.
func (t *tree) patches(names string) (list []*patch, points bool, err error) {
	for _, name := range strings.Split(names, ",") {
		if name == "points" {
			points = true
			continue
		}
		p, err := t.named(name)
		if err != nil {
			return nil, false, err
		}
		points = points || p.points
		list = append(list, p)
	}
	return list, points, nil
}

// put writes patches into the work tree.
func (t *tree) put(names string) error {
	list, points, err := t.patches(names)
	if err != nil {
		return err
	}
	files, err := t.changed(points, list...)
	if err != nil {
		return err
	}
	for path, text := range files {
		if err := os.WriteFile(filepath.Join(t.root, path), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// with runs the go command on the program with patches in it.
func (t *tree) with(ctx context.Context, names string, args []string) error {
	list, points, err := t.patches(names)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	overlay, err := t.overlay(dir, points, list...)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = t.root
	cmd.Env = append(os.Environ(), "PWD="+t.root, goflags(overlay, points))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

// writePoints makes file an overlay with the points, for go build -overlay. What
// it names lies beside it.
func (t *tree) writePoints(file string) error {
	file, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	path, err := t.overlay(strings.TrimSuffix(file, filepath.Ext(file))+".files", true)
	if err != nil {
		return err
	}
	return os.Rename(path, file)
}

// atHunk is the first line of a hunk, as git prints it.
var atHunk = regexp.MustCompile(`(?m)^@@ [^@]* @@`)

// take makes the patch of a name from the changes in the work tree that are not
// yet in git's index: files of the program, not of tests. For "NAME,points" the
// work tree has the points in it, from -apply points. The head of a patch that
// is there stays.
func (t *tree) take(ctx context.Context, names string) error {
	name, rest, _ := strings.Cut(names, ",")
	points := rest == "points"
	if rest != "" && !points || name == "" || strings.ContainsAny(name, "/. ") {
		return fmt.Errorf("want NAME or NAME,points, not %q", names)
	}
	file := filepath.Join(t.root, patchDir, name+".patch")
	head := "says: \nbroken: \ntest: DIRECTORY NAME\n"
	if points {
		head = "says: \nbroken: \non: points\ntest: DIRECTORY NAME\n"
	}
	if data, err := os.ReadFile(file); err == nil {
		head, _, _ = strings.Cut(string(data), "\n\n")
		head += "\n"
	}
	out, err := command(ctx, t.root, nil, "git", "diff", "--name-only", "--relative", "--", "*.go", ":!*_test.go")
	if err != nil {
		return fmt.Errorf("git diff: %w\n%s", err, out)
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	indexed := func(path string) (string, error) {
		text, err := exec.CommandContext(ctx, "git", "-C", t.root, "show", ":./"+path).Output()
		return string(text), err
	}
	before := map[string]string{}
	if points {
		if before, err = t.points.apply(before, indexed); err != nil {
			return err
		}
	}
	after := map[string]string{}
	for path := range strings.FieldsSeq(string(out)) {
		if _, found := before[path]; !found {
			if before[path], err = indexed(path); err != nil {
				return err
			}
		}
	}
	for path, text := range before {
		if after[path], err = t.read(path); err != nil {
			return err
		}
		for side, text := range map[string]string{"a": text, "b": after[path]} {
			to := filepath.Join(dir, side, path)
			if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, []byte(text), 0o644)); err != nil {
				return err
			}
		}
	}
	for context := 1; ; context++ {
		diff, err := command(ctx, dir, nil, "git", "diff", "--no-index", "--no-color", "--no-prefix", fmt.Sprint("-U", context), "a", "b")
		if err == nil {
			return errors.New("nothing is changed")
		}
		var lines []string
		for line := range strings.Lines(atHunk.ReplaceAllString(string(diff), "@@")) {
			if !strings.HasPrefix(line, "diff ") && !strings.HasPrefix(line, "index ") {
				lines = append(lines, line)
			}
		}
		text := head + "\n" + strings.Join(lines, "")
		p, err := parse(name, text)
		if err == nil {
			_, err = p.apply(before, nil)
		}
		if err == nil {
			fmt.Println(file)
			return os.WriteFile(file, []byte(text), 0o644)
		}
		if context == 10 {
			return err
		}
	}
}
