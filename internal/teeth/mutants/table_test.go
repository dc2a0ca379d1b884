package main

import (
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

func thisTree(t *testing.T) *tree {
	t.Helper()
	abs, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := readTree(abs)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// sources calls f for every Go file of the module outside internal/teeth.
func sources(t *testing.T, f func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(path, root+"/")
		if d.IsDir() && (rel == "internal/teeth" || path != root && strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		data, err := os.ReadFile(path)
		f(rel, string(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestPatchesApply: each patch finds its places in the program of today, and
// makes another program of it: one that parses, and differs in more than
// comments. That it builds is found when make mutants builds it.
func TestPatchesApply(t *testing.T) {
	tree := thisTree(t)
	if len(tree.mutants) == 0 {
		t.Fatal("no patches")
	}
	check := func(points bool, p *patch) {
		t.Helper()
		before, err := tree.changed(points)
		if err != nil {
			t.Error(err)
			return
		}
		after, err := p.apply(before, tree.read)
		if err != nil {
			t.Errorf("%v (with the points: %v)", err, points)
			return
		}
		for _, f := range p.files {
			text, found := before[f.path]
			if !found {
				if text, err = tree.read(f.path); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := parser.ParseFile(token.NewFileSet(), f.path, after[f.path], parser.SkipObjectResolution); err != nil {
				t.Errorf("%s: %v", p.name, err)
			}
			if slices.Equal(tokens(text), tokens(after[f.path])) {
				t.Errorf("%s changes nothing in %s", p.name, f.path)
			}
			if strings.HasSuffix(f.path, "_test.go") || strings.HasPrefix(f.path, "internal/teeth/") {
				t.Errorf("%s changes %s, which is no part of the program", p.name, f.path)
			}
		}
	}
	check(false, tree.points)
	for _, p := range tree.mutants {
		both := map[bool]bool{p.points: true}
		for _, of := range p.tests {
			points, err := line{patch: p, test: of}.points(tree)
			if err != nil {
				t.Error(err)
				continue
			}
			both[points] = true
		}
		for points := range both {
			check(points, p)
		}
	}
}

// tokens is a file without comments and spaces.
func tokens(text string) (list []string) {
	var s scanner.Scanner
	fset := token.NewFileSet()
	s.Init(fset.AddFile("", -1, len(text)), []byte(text), nil, 0)
	for {
		_, tok, lit := s.Scan()
		switch tok {
		case token.EOF:
			return list
		case token.SEMICOLON:
			lit = ";"
		}
		list = append(list, tok.String()+" "+lit)
	}
}

var properName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// TestHeads: a patch says what the rule is and what is broken, and names tests
// that are there, one of them quick.
func TestHeads(t *testing.T) {
	tree := thisTree(t)
	for _, p := range tree.mutants {
		if !properName.MatchString(p.name) {
			t.Errorf("%s.patch: a name is lower-case words with hyphens between them", p.name)
		}
		if !strings.HasSuffix(p.says, ".") || p.says[:1] != strings.ToUpper(p.says[:1]) {
			t.Errorf("%s: says is a sentence, the rule: %q", p.name, p.says)
		}
		if p.broken == "" || strings.HasSuffix(p.broken, ".") {
			t.Errorf("%s: broken is what the program does instead, in a few words: %q", p.name, p.broken)
		}
		quick, seen := false, map[test]bool{}
		for _, of := range p.tests {
			quick = quick || !of.slow
			if _, err := tree.source(of); err != nil {
				t.Errorf("%s: %v", p.name, err)
			}
			key := test{dir: of.dir, name: of.name}
			if seen[key] {
				t.Errorf("%s names %s twice", p.name, of.name)
			}
			seen[key] = true
			if strings.Contains(p.says+p.broken+of.note, "|") {
				t.Errorf("%s: a | would break the table of %s", p.name, document)
			}
		}
		if !quick {
			t.Errorf("%s has slow tests only: make test would not run them", p.name)
		}
	}
}

// listed are the tests of the table, "DIR NAME".
func listed(t *testing.T) map[string]bool {
	is := map[string]bool{}
	for _, l := range thisTree(t).lines("", true) {
		is[l.test.dir+" "+l.test.name] = true
	}
	return is
}

// TestEveryPointsTestIsListed: what needs the points is run by make mutants, and
// by nothing else.
func TestEveryPointsTestIsListed(t *testing.T) {
	is := listed(t)
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	sources(t, func(path, text string) {
		if !strings.HasSuffix(path, "_test.go") || !strings.HasPrefix(text, "//go:build points\n") {
			return
		}
		for _, m := range function.FindAllStringSubmatch(text, -1) {
			if !is[filepath.Dir(path)+" "+m[1]] {
				t.Errorf("%s: no patch in internal/teeth/mutants names %s", path, m[1])
			}
		}
	})
}

// TestDocument: the table in docs/correctness.md is this one.
func TestDocument(t *testing.T) {
	tree := thisTree(t)
	text, err := tree.read(document)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, begin+tree.markdown()+end) {
		t.Errorf("%s has another table: go run ./internal/teeth/mutants -doc", document)
	}
}

// TestNamedTests: the tests that the document names are there.
func TestNamedTests(t *testing.T) {
	text, err := thisTree(t).read(document)
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]bool{}
	for _, m := range regexp.MustCompile("`((?:Test|Fuzz)\\w+)").FindAllStringSubmatch(text, -1) {
		missing[m[1]] = true
	}
	if len(missing) < 50 {
		t.Fatalf("found only %d names", len(missing))
	}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	sources(t, func(path, text string) {
		if strings.HasSuffix(path, "_test.go") {
			for _, m := range function.FindAllStringSubmatch(text, -1) {
				delete(missing, m[1])
			}
		}
	})
	for name := range missing {
		t.Errorf("%s names %s, which is not there", document, name)
	}
}
