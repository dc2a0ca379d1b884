package house

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// maxLines bounds a source file. Files should have 150 to 350 lines; a file beyond
// this bound holds more than one idea. Suites of tests, which are lists, may be
// longer.
const (
	maxLines      = 500
	maxSuiteLines = 750
)

// goFiles calls f for every Go file of the module.
func goFiles(t *testing.T, f func(path string, data []byte)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		data, err := os.ReadFile(path)
		if err == nil {
			f(strings.TrimPrefix(path, root+"/"), data)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// initAllowed are the files that may have an init function, with the reason.
var initAllowed = map[string]string{
	"client/fabrics/fabrics.go": "what a program links follows from its imports, so the choice of all fabrics is an import, which can speak by an init alone",
}

// TestFiles holds source files to the rules that a parser can see.
func TestFiles(t *testing.T) {
	goFiles(t, func(path string, data []byte) {
		test := strings.HasSuffix(path, "_test.go")
		most := maxLines
		if test || matchAny(forTests, filepath.Dir(path)) {
			most = maxSuiteLines
		}
		if n := bytes.Count(data, []byte("\n")); n > most {
			t.Errorf("%s has %d lines, at most %d: split it", path, n, most)
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, data, parser.ParseComments)
		if err != nil {
			t.Error(err)
			return
		}
		for _, imp := range file.Imports {
			if imp.Path.Value == `"unsafe"` && !strings.HasSuffix(path, "_unsafe.go") && !strings.HasSuffix(path, "_unsafe_test.go") {
				t.Errorf("%s imports unsafe: only *_unsafe.go files may, so that a reader knows where to look", path)
			}
			if imp.Path.Value == `"C"` && !strings.HasPrefix(path, "rdma/verbs/") {
				t.Errorf("%s uses cgo: only rdma/verbs may, so that everything else builds anywhere", path)
			}
		}
		if test {
			return
		}
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" && initAllowed[path] == "" {
				t.Errorf("%s has an init function: what depends on the order of packages is found by nobody; pass values", path)
			}
		}
		for _, mark := range []string{"TODO", "FIXME", "XXX"} {
			if bytes.Contains(data, []byte(mark+":")) || bytes.Contains(data, []byte("// "+mark)) {
				t.Errorf("%s has a %s: do it, or say in an issue why not", path, mark)
			}
		}
	})
}

// TestPowerIsCutOnCrashfs: whoever cuts the power of a disk in memory takes test/crashfs.
// Pebble's own disk for that deadlocks, once in some ten thousand cuts, and copies whole files.
func TestPowerIsCutOnCrashfs(t *testing.T) {
	const call = "vfs.NewCrashableMem" + "("
	found := 0
	goFiles(t, func(path string, data []byte) {
		switch {
		case !bytes.Contains(data, []byte(call)):
		case path == "test/crashfs/crashfs_test.go": // which compares the two
			found++
		default:
			t.Errorf("%s: %s...): take crashfs.New() of test/crashfs", path, call)
		}
	})
	if found != 1 {
		t.Error("test/crashfs is not looked at")
	}
}

// TestPackageComments: every package begins with what it is for.
func TestPackageComments(t *testing.T) {
	has := map[string]bool{}
	goFiles(t, func(path string, data []byte) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, data, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			t.Error(err)
			return
		}
		dir := filepath.Dir(path)
		has[dir] = has[dir] || file.Doc != nil
	})
	for dir, ok := range has {
		if !ok {
			t.Errorf("package %s has no package comment", dir)
		}
	}
}

// link finds Markdown links, and paths of the repository in backquotes.
var link = regexp.MustCompile(`\]\(([^)#]+)[^)]*\)|` + "`((?:cmd|client|demo|docs|internal|rdma|scripts|store|test|tools)/[A-Za-z0-9_./-]*)`")

// TestLinks: every link of a document leads to a file or heading that is there.
func TestLinks(t *testing.T) {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".md") {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range link.FindAllSubmatch(data, -1) {
			target := filepath.Join(filepath.Dir(path), string(m[1]))
			if len(m[2]) > 0 {
				target = filepath.Join(root, string(m[2]))
			} else if strings.Contains(string(m[1]), "://") {
				continue
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s points to %s%s, which is not there", strings.TrimPrefix(path, root+"/"), m[1], m[2])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestMenu: every target of the Makefile that is for people has its line in
// the menu, and README names the two commands that a newcomer needs.
func TestMenu(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{"build", "demo", "check", "test", "test-all", "lab", "lab-shell", "lab-cluster", "lab-siw", "lint", "unit", "race", "mutants", "e2e", "fuzz", "bench", "nightly", "cover", "clean"} {
		if !regexp.MustCompile(`(?m)^` + target + `:.* ## `).Match(makefile) {
			t.Errorf("the Makefile has no target %s with a line for the menu", target)
		}
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"make demo", "make test", "kvserver", "kvclient", "client.Dial"} {
		if !bytes.Contains(readme, []byte(want)) {
			t.Errorf("README.md does not say %q", want)
		}
	}
}

// TestBudgets: each step of make test has a line in scripts/budgets, and each line
// there is of a step, so that none grows slow unseen.
func TestBudgets(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(makefile), "\ntest: ")
	_, rest, steps := strings.Cut(rest, "@scripts/steps ")
	line, _, _ := strings.Cut(rest, "\n")
	if !ok || !steps {
		t.Fatal("make test does not call scripts/steps")
	}
	text, err := os.ReadFile(filepath.Join(root, "scripts", "budgets"))
	if err != nil {
		t.Fatal(err)
	}
	budgets := map[string]bool{}
	for l := range strings.Lines(string(text)) {
		if l = strings.TrimSpace(l); strings.HasPrefix(l, "#") || l == "" {
			continue
		}
		name, seconds, _ := strings.Cut(l, " ")
		if n, err := strconv.Atoi(seconds); err != nil || n <= 0 || budgets[name] {
			t.Errorf("scripts/budgets: %q is no step and its seconds, or the step's second line", l)
		}
		budgets[name] = true
	}
	for _, step := range strings.Fields(line) {
		if !budgets[step] {
			t.Errorf("scripts/budgets has no line for %s", step)
		}
		delete(budgets, step)
	}
	for step := range budgets {
		t.Errorf("scripts/budgets has a line for %s, which make test does not run", step)
	}
}
