package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/teeth"
)

const root = "../../.."

// constant finds the rules in the source: one a line, after a tab.
var constant = regexp.MustCompile(`(?m)^\t([FD]\d+[A-Za-z]\w*)(?: Rule = iota \+ 1)?$`)

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

// TestEveryRuleHasAMutant: a rule that can be taken out is obeyed somewhere,
// and has a line in the table.
func TestEveryRuleHasAMutant(t *testing.T) {
	data, err := os.ReadFile("../rule.go")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range constant.FindAllSubmatch(data, -1) {
		names[string(m[1])] = true
	}
	if len(names) < 10 {
		t.Fatalf("found only %d rules", len(names))
	}
	table, err := os.ReadFile("table.go")
	if err != nil {
		t.Fatal(err)
	}
	obeyed := map[string]bool{}
	sources(t, func(path, text string) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		for name := range names {
			if strings.Contains(text, "teeth.Off(teeth."+name+")") {
				obeyed[name] = true
			}
		}
	})
	for name := range names {
		if !obeyed[name] {
			t.Errorf("no code asks teeth.Off(teeth.%s)", name)
		}
		if !strings.Contains(string(table), "\t{teeth."+name+", ") {
			t.Errorf("rule %s has no line in table.go: name the test that catches its break", name)
		}
	}
}

// TestTable: each line names a test that is there, and says what is broken.
func TestTable(t *testing.T) {
	seen, quick := map[string]bool{}, map[teeth.Rule]bool{}
	for _, m := range mutants {
		quick[m.rule] = quick[m.rule] || !slow[m.name]
		if _, err := pullsItselfIn(filepath.Join(root, m.dir), m.name); err != nil {
			t.Error(err)
		}
		key := m.rule.String() + m.dir + m.name
		if seen[key] {
			t.Errorf("%s stands in the table twice", m.name)
		}
		seen[key] = true
		if m.broken == "" {
			t.Errorf("%s: what is broken?", m.name)
		}
	}
	for rule, found := range quick {
		if !found {
			t.Errorf("%v has slow tests only: make test would not run them", rule)
		}
	}
}

// TestEveryTeethTestIsInTheTable: what pulls a rule is run by make mutants.
func TestEveryTeethTestIsInTheTable(t *testing.T) {
	listed := map[string]bool{}
	for _, m := range mutants {
		listed[m.dir+" "+m.name] = true
	}
	test := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	sources(t, func(path, text string) {
		if !strings.HasSuffix(path, "_test.go") || !strings.HasPrefix(text, "//go:build teeth\n") {
			return
		}
		for _, m := range test.FindAllStringSubmatch(text, -1) {
			if !listed[filepath.Dir(path)+" "+m[1]] {
				t.Errorf("%s: %s stands in no line of internal/teeth/mutants/table.go", path, m[1])
			}
		}
	})
}

// TestDocument: the table in docs/correctness.md is this one.
func TestDocument(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), begin+markdown()+end) {
		t.Errorf("%s has another table: go run ./internal/teeth/mutants -doc", document)
	}
}

// TestNamedTests: the tests that the document names are there.
func TestNamedTests(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]bool{}
	for _, m := range regexp.MustCompile("`((?:Test|Fuzz)\\w+)").FindAllSubmatch(data, -1) {
		missing[string(m[1])] = true
	}
	if len(missing) < 50 {
		t.Fatalf("found only %d names", len(missing))
	}
	test := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	sources(t, func(path, text string) {
		if strings.HasSuffix(path, "_test.go") {
			for _, m := range test.FindAllStringSubmatch(text, -1) {
				delete(missing, m[1])
			}
		}
	})
	for name := range missing {
		t.Errorf("%s names %s, which is not there", document, name)
	}
}
