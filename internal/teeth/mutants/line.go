package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A line is one row of the table: a patch and a test.
type line struct {
	patch *patch
	test  test
}

// lines returns the rows of the table whose patch or test contains one of the
// texts in a list with commas. Slow tests are left out unless they are asked for.
func (t *tree) lines(only string, slow bool) []line {
	var lines []line
	for _, p := range t.mutants {
		for _, test := range p.tests {
			asked := slices.ContainsFunc(strings.Split(only, ","), func(text string) bool {
				return strings.Contains(p.name, text) || strings.Contains(test.name, text)
			})
			if asked && (slow || only != "" || !test.slow) {
				lines = append(lines, line{p, test})
			}
		}
	}
	return lines
}

// points reports whether the test needs the points of points.patch, or the patch
// stands on them.
func (l line) points(t *tree) (bool, error) {
	head, err := t.source(l.test)
	return l.patch.points || strings.HasPrefix(head, "//go:build points\n"), err
}

// source returns the file in which a test stands. The test must be there.
func (t *tree) source(of test) (string, error) {
	files, err := filepath.Glob(filepath.Join(t.root, of.dir, "*_test.go"))
	if err != nil {
		return "", err
	}
	fn := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(of.name) + `\(t \*testing\.T\)`)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		if fn.Match(data) {
			return string(data), nil
		}
	}
	return "", fmt.Errorf("%s has no %s", of.dir, of.name)
}

// markdown returns the table for docs/correctness.md.
func (t *tree) markdown() string {
	var b strings.Builder
	b.WriteString("| mutant | the rule | the break | caught by |\n|---|---|---|---|\n")
	for _, p := range t.mutants {
		var tests []string
		for _, t := range p.tests {
			text := fmt.Sprintf("`%s` %s", t.dir, t.name)
			if t.note != "" {
				text += " (" + t.note + ")"
			}
			tests = append(tests, text)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", p.name, p.says, p.broken, strings.Join(tests, ", "))
	}
	return b.String()
}

// document holds the table for readers, between two marks.
const (
	document = "docs/correctness.md"
	begin    = "<!-- mutants: go run ./internal/teeth/mutants -doc -->\n"
	end      = "<!-- end of mutants -->\n"
)

// writeTable replaces the table in the document.
func (t *tree) writeTable() error {
	text, err := t.read(document)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(text, begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s has no marks for the table of mutants", document)
	}
	return os.WriteFile(filepath.Join(t.root, document), []byte(before+begin+t.markdown()+end+after), 0o644)
}
