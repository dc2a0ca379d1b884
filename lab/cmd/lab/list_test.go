package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestReadLists(t *testing.T) {
	short, long, err := readLists([]byte("# a comment\n\n./a/...\n ./b -x 1 # why\nlong: # more\n./c\n"))
	if err != nil || len(short) != 2 || !slices.Equal(short[0], []string{"./a/..."}) || !slices.Equal(short[1], []string{"./b", "-x", "1"}) ||
		len(long) != 1 || !slices.Equal(long[0], []string{"./c"}) {
		t.Errorf("short %q, long %q, %v", short, long, err)
	}
	for _, bad := range []string{"long:\n./a\nlong:\n", "long: ./a\n"} {
		if _, _, err := readLists([]byte(bad)); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}

// TestLists: in lab/tests.list each package and each pattern names something that
// there is, and whatever runs at each change is a part of what the long list runs,
// with the same flags but for those that scale it.
func TestLists(t *testing.T) {
	data, err := os.ReadFile("../../tests.list")
	if err != nil {
		t.Fatal(err)
	}
	short, long, err := readLists(data)
	if err != nil || len(short) == 0 || len(long) == 0 {
		t.Fatalf("%d short, %d long, %v", len(short), len(long), err)
	}
	all := map[string]chosen{}
	for _, words := range long {
		maps.Copy(all, choose(t, words))
	}
	for _, words := range short {
		for name, here := range choose(t, words) {
			there, ok := all[name]
			if !ok {
				t.Errorf("%s runs at each change, and not with the long list", name)
			}
			if ok && !maps.Equal(here, there) {
				t.Errorf("%s runs with %v at each change, and with %v in the long list", name, here, there)
			}
		}
	}
}

// TestChoose: what of a package a line of the list runs.
func TestChoose(t *testing.T) {
	const pkg = "./lab/cmd/lab "
	all := len(choose(t, strings.Fields(pkg)))
	for flags, want := range map[string]int{"-test.run ^TestChoose$ -x 1": 1, "-test.skip Choose": all - 1, "-test.skip Choose/(a|b)": all} {
		if got := choose(t, strings.Fields(pkg+flags)); len(got) != want {
			t.Errorf("%q chooses %d of %d tests, not %d: %v", flags, len(got), all, want, got)
		}
	}
	if p := absent("A|B(x|y)/c|^TestC$", []string{"TestAll", "TestCell"}); !slices.Equal(p, []string{"B(x|y)/c", "^TestC$"}) {
		t.Errorf("absent: %q", p)
	}
}

// chosen are flags of a test that do not choose or scale it.
type chosen map[string]string

// scaling flags may differ between the lists.
var scaling = []string{"-test.run", "-test.skip", "-test.short", "-seconds", "-largest-value"}

// choose returns what a line of the list runs, as "package TestName", and reports
// what of it names nothing.
func choose(t *testing.T, words []string) map[string]chosen {
	t.Helper()
	flags, race := chosen{}, ""
	if words[0] == "-race" {
		race, words = "-race ", words[1:]
	}
	run, skip := "", ""
	for rest := words[1:]; len(rest) > 0; {
		name, value := rest[0], ""
		if rest = rest[1:]; len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
			value, rest = rest[0], rest[1:]
		}
		switch name {
		case "-test.run":
			run = value
		case "-test.skip":
			skip = value
		}
		if !slices.Contains(scaling, name) {
			flags[name] = value
		}
	}
	out := map[string]chosen{}
	var names []string
	for pkg, tests := range testsOf(t, words[0]) {
		names = append(names, tests...)
		for _, test := range tests {
			if (run == "" || matches(run, test, false)) && (skip == "" || !matches(skip, test, true)) {
				out[race+pkg+" "+test] = flags
			}
		}
	}
	for _, pattern := range append(absent(run, names), absent(skip, names)...) {
		t.Errorf("lab/tests.list: %s has no test %s", words[0], pattern)
	}
	if len(out) == 0 {
		t.Errorf("lab/tests.list: no test is chosen by %q", words)
	}
	return out
}

// testsOf returns the tests of a package, or with /... of all below it.
func testsOf(t *testing.T, pattern string) map[string][]string {
	t.Helper()
	tests := map[string][]string{}
	const root = "../../.."
	top, below := strings.CutSuffix(pattern, "/...")
	top = filepath.Join(root, top)
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != top && !below {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && f.Name.Name != "TestMain" {
				tests[filepath.Dir(path)] = append(tests[filepath.Dir(path)], f.Name.Name)
			}
		}
		return nil
	})
	if err != nil || len(tests) == 0 {
		t.Errorf("lab/tests.list names %s: %d packages with tests, %v", pattern, len(tests), err)
	}
	return tests
}

// matches says whether a pattern of -test.run or -test.skip matches a test, or with
// whole all of it: a pattern with a slash leaves out subtests.
func matches(pattern, test string, whole bool) bool {
	for _, one := range split(pattern, '|') {
		parts := split(one, '/')
		if (!whole || len(parts) == 1) && regexp.MustCompile(parts[0]).MatchString(test) {
			return true
		}
	}
	return false
}

// absent returns the alternatives of a pattern that match none of the tests.
func absent(pattern string, tests []string) (none []string) {
	if pattern == "" {
		return nil
	}
	for _, one := range split(pattern, '|') {
		if !slices.ContainsFunc(tests, func(test string) bool { return matches(one, test, false) }) {
			none = append(none, one)
		}
	}
	return none
}

// split splits at a separator that stands in no bracket, as package testing does.
func split(s string, sep byte) (parts []string) {
	depth, from := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		case sep:
			if depth == 0 {
				parts = append(parts, s[from:i])
				from = i + 1
			}
		}
	}
	return append(parts, s[from:])
}
