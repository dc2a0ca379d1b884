package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// madeForTests are names of what packages offer to the tests of others: breaking what
// stands on a disk, one step of what otherwise goes on by itself.
var madeForTests = regexp.MustCompile(`ForTests?$`)

// usesOfTestDoors returns where a file uses a function or method that is made for tests.
// Declaring one is no use, and neither is naming a type: nothing gets at a value of such a
// type but by a function.
func usesOfTestDoors(name string, data []byte) (uses []string, err error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, data, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	note := func(id *ast.Ident) {
		if madeForTests.MatchString(id.Name) {
			uses = append(uses, fset.Position(id.Pos()).String()+" "+id.Name)
		}
	}
	types := make(map[ast.Node]bool) // in the places of types
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			types[n.Type] = true
		case *ast.CompositeLit:
			types[n.Type] = true
		case *ast.TypeSpec:
			types[n.Type] = true
		case *ast.ValueSpec:
			types[n.Type] = true
		case *ast.StarExpr:
			types[n.X] = types[n]
		case *ast.SelectorExpr:
			if !types[n] {
				note(n.Sel) // called, or kept for a call
			}
		case *ast.CallExpr:
			if id, ok := n.Fun.(*ast.Ident); ok {
				note(id)
			}
		}
		return true
	})
	return uses, nil
}

// TestNoTestDoorsInProduct: what is named *ForTests is for tests. If the product used it, a
// step that a test makes alone could run beside the goroutine that makes it, too.
func TestNoTestDoorsInProduct(t *testing.T) {
	goFiles(t, func(name string, data []byte) {
		if strings.HasSuffix(name, "_test.go") || matchAny(forTests, path.Dir(name)) {
			return
		}
		uses, err := usesOfTestDoors(name, data)
		if err != nil {
			t.Error(err)
		}
		for _, use := range uses {
			t.Errorf("%s is made for tests, and used by the product", use)
		}
	})
}

// TestTestDoorsAreSeen: the search above finds each way to use such a name.
func TestTestDoorsAreSeen(t *testing.T) {
	for text, want := range map[string][]string{
		"func f() { x.ForTests() }":                              {"ForTests"},
		"func f() { x.y().OpenForTest(1) }":                      {"OpenForTest"},
		"func f() { openForTests() }":                            {"openForTests"},
		"var f = x.ForTests":                                     {"ForTests"},
		"func f() { go g(a.ForTests, b.ForTests().C()) }":        {"ForTests", "ForTests"},
		"type ForTests struct{ *T }":                             nil,
		"func (t *T) ForTests() ForTests { return ForTests{t} }": nil,
		"func f(x *p.ForTests) p.ForTests { return *x }":         nil,
		"type T struct{ p.ForTests }":                            nil,
		"var x p.ForTests":                                       nil,
		"func f() { x.ForTestsOnly(); x.Tests() }":               nil,
	} {
		uses, err := usesOfTestDoors("f.go", []byte("package p\n"+text+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, use := range uses {
			_, name, _ := strings.Cut(use, " ")
			names = append(names, name)
		}
		if !slices.Equal(names, want) {
			t.Errorf("%s: %v, want %v", text, names, want)
		}
	}
}
