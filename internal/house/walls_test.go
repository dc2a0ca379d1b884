package house

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The walls bound how much one package, one type and one struct may hold, so that a
// reader need not keep too much in mind at once. Everything is counted in code that
// is no test, by the parser alone, with the files of all platforms.
const (
	maxFiles   = 30 // files of a package
	maxMethods = 40 // methods of a type
	maxFields  = 25 // fields of a struct; an embedded one counts as one
	minLines   = 60 // of a file: what is shorter is mostly part of another idea

	maxExceptions = 10
)

// An excess is a wall that is passed: "methods store.Store" has 221, 40 are allowed.
type excess struct {
	what string
	n    int
	most int
}

// exceptions are the places where a wall would stand wrong, for good, each with
// the reason.
var exceptions = []struct {
	what   string
	most   int
	reason string
}{
	{"fields store/layout.Lookup", 34, "one state machine whose fields are what its proof speaks of: split, each part would need all of the others"},
}

// free are names of structs that are lists by nature: what can be set, and what
// is counted.
var free = regexp.MustCompile(`(?i)(config|settings|options|stats|stat|counts|counters|attr)$`)

// planted are words by which product code would speak of planted bugs.
var planted = regexp.MustCompile(`(?i)\bteeth\b|\bmutants?\b`)

// A room is what the walls of one package hold.
type room struct {
	files   int
	small   []string // files below minLines without a reason
	planted []string // files that speak of planted bugs
	methods map[string]int
	fields  map[string]int
}

// measure adds one file to the rooms.
func measure(rooms map[string]*room, name string, data []byte) error {
	if strings.HasSuffix(name, "_test.go") {
		return nil
	}
	dir := path.Dir(name)
	r := rooms[dir]
	if r == nil {
		r = &room{methods: map[string]int{}, fields: map[string]int{}}
		rooms[dir] = r
	}
	file, err := parser.ParseFile(token.NewFileSet(), name, data, parser.ParseComments)
	if err != nil {
		return err
	}
	r.files++
	reason := platform(name, file)
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				r.methods[receiver(d.Recv.List[0].Type)]++
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				t, ok := s.(*ast.TypeSpec)
				if !ok {
					continue
				}
				switch typ := t.Type.(type) {
				case *ast.StructType:
					if !free.MatchString(t.Name.Name) {
						r.fields[t.Name.Name] = fieldsOf(typ)
					}
				case *ast.InterfaceType:
					reason = true
				}
			}
		}
	}
	if n := bytes.Count(data, []byte("\n")); n < minLines && !reason {
		r.small = append(r.small, path.Base(name))
	}
	if planted.Match(data) {
		r.planted = append(r.planted, path.Base(name))
	}
	return nil
}

// platform reports whether a file is short for a reason that its name or its build
// constraint tells: documentation, a program's beginning, one platform, unsafe.
func platform(name string, file *ast.File) bool {
	base := strings.TrimSuffix(path.Base(name), ".go")
	if base == "doc" || base == "main" || strings.HasSuffix(base, "_unsafe") {
		return true
	}
	for _, os := range []string{"_linux", "_darwin", "_windows", "_unix", "_other", "_amd64", "_arm64"} {
		if strings.HasSuffix(base, os) {
			return true
		}
	}
	for _, c := range file.Comments {
		for _, line := range c.List {
			if constraint.IsGoBuild(line.Text) {
				return true
			}
		}
	}
	return false
}

// receiver is the name of a method's type, without star and type parameters.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

// fieldsOf counts the fields of a struct, those of nested ones without a name in
// full.
func fieldsOf(s *ast.StructType) (n int) {
	for _, f := range s.Fields.List {
		each := 1
		if inner, ok := f.Type.(*ast.StructType); ok {
			each = fieldsOf(inner)
		}
		n += max(len(f.Names), 1) * each
	}
	return n
}

// short are parts in which short files are no question: examples, tests and tools
// are read one by one.
var short = []string{"examples/...", "test/...", "bench/...", "lab/...", "demo/...", "tools/...", "internal/house"}

// excesses lists what passes the walls.
func excesses(rooms map[string]*room) (list []excess) {
	for _, dir := range slices.Sorted(maps.Keys(rooms)) {
		r := rooms[dir]
		add := func(what string, n, most int) {
			if n > most {
				list = append(list, excess{what, n, most})
			}
		}
		add("files "+dir, r.files, maxFiles)
		for _, name := range slices.Sorted(maps.Keys(r.methods)) {
			add("methods "+dir+"."+name, r.methods[name], maxMethods)
		}
		for _, name := range slices.Sorted(maps.Keys(r.fields)) {
			add("fields "+dir+"."+name, r.fields[name], maxFields)
		}
		if !matchAny(short, dir) && r.files > 2 {
			for _, name := range r.small {
				add("short "+dir+"/"+name, minLines, minLines-1)
			}
		}
		if !matchAny(forTests, dir) && !matches("internal/teeth/...", dir) {
			add("planted "+dir, len(r.planted), 0)
		}
	}
	return list
}

// TestWalls holds every package to the walls. A package that exceeds them stands in
// the list of exceptions, with its reason, or in the list of what is not finished
// yet, with the number that it had: that number may fall, and must not rise.
func TestWalls(t *testing.T) {
	rooms := map[string]*room{}
	goFiles(t, func(name string, data []byte) {
		if err := measure(rooms, name, data); err != nil {
			t.Error(err)
		}
	})
	allowed := map[string]int{}
	for _, e := range exceptions {
		if len(e.reason) < 20 {
			t.Errorf("exception %q gives no reason", e.what)
		}
		allowed[e.what] = e.most
	}
	if len(exceptions) > maxExceptions {
		t.Errorf("%d exceptions, at most %d", len(exceptions), maxExceptions)
	}
	maps.Copy(allowed, unfinished)
	needed := map[string]bool{}
	for _, e := range excesses(rooms) {
		needed[e.what] = true
		if e.n > max(e.most, allowed[e.what]) {
			t.Errorf("%q: %d, at most %d", e.what, e.n, max(e.most, allowed[e.what]))
		}
	}
	for _, e := range exceptions {
		if !needed[e.what] {
			t.Errorf("%q is within the walls: it is no exception", e.what)
		}
	}
	for what := range unfinished {
		if !needed[what] {
			t.Logf("%q is within the walls now", what)
		}
	}
}

// TestWallsHaveTeeth: each wall refuses what passes it.
func TestWallsHaveTeeth(t *testing.T) {
	long := strings.Repeat("// line\n", minLines)
	many := func(n int, f string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, f, i)
		}
		return b.String()
	}
	for what, text := range map[string]string{
		"methods p.T":    "type T struct{}\n" + many(maxMethods+1, "func (t *T[A]) m%d() {}\n"),
		"fields p.T":     "type T struct {\nA, B struct{ a int; E }\n" + many(maxFields-3, "f%d int\n") + "}\n",
		"short p/f.go":   "",
		"planted p":      "var x = teeth.Off\n",
		"files p":        "",
		"nothing":        "type T struct {\n" + many(maxFields, "f%d int\n") + "}\n" + many(maxMethods, "func (T) m%d() {}\n"),
		"nothing either": "type SomeConfig struct {\n" + many(maxFields+1, "f%d int\n") + "}\n",
	} {
		rooms := map[string]*room{}
		add := func(name, body string) {
			if err := measure(rooms, name, []byte("package p\n"+body)); err != nil {
				t.Fatal(err)
			}
		}
		if what != "short p/f.go" {
			text += long
		}
		add("p/f.go", text)
		n := 2
		if what == "files p" {
			n = maxFiles
		}
		for i := range n {
			add(fmt.Sprintf("p/g%d.go", i), long)
		}
		add("p/many_test.go", "type T struct {\n"+many(maxFields+1, "f%d int\n")+"}\n")
		found := excesses(rooms)
		if strings.HasPrefix(what, "nothing") != (len(found) == 0) || len(found) > 0 && (len(found) != 1 || found[0].what != what) {
			t.Errorf("%s: found %v", what, found)
		}
	}
	for name, reason := range map[string]bool{"p/doc.go": true, "p/x_linux.go": true, "p/x_unsafe.go": true, "p/x.go": false} {
		rooms := map[string]*room{}
		for _, n := range []string{name, "p/a.go", "p/b.go"} {
			text := long
			if n == name {
				text = ""
			}
			if err := measure(rooms, n, []byte("package p\n"+text)); err != nil {
				t.Fatal(err)
			}
		}
		if found := excesses(rooms); (len(found) == 0) != reason {
			t.Errorf("%s: %v", name, found)
		}
	}
}
