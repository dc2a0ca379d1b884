package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A function that two patches change stands there three times, and the one that is
// called chooses; what only a patch has is added.
func TestJoin(t *testing.T) {
	tree := &tree{root: t.TempDir()}
	text := `package p

// Put puts.
func (b *Box[K]) Put(k K, more ...int) (n int, err error) {
	b.first()
	b.second()
	return 1, nil
}

const limit = 3

func plain(int) {
	work()
}
`
	if err := os.Mkdir(filepath.Join(tree.root, "p"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tree.root, "p/p.go"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	of := func(name, diff string) *patch {
		t.Helper()
		p, err := parse(name, "says: x\n\n--- a/p/p.go\n+++ b/p/p.go\n"+diff)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	patches := []*patch{
		of("one-first", "@@\n-\tb.first()\n"),
		of("two-more", "@@\n-\tb.second()\n+\tb.third()\n@@\n-\twork()\n+\tos.Exit(limit)\n@@\n package p\n+\n+import \"os\"\n+\n+func third() {}\n"),
		of("limit-changes", "@@\n-const limit = 3\n+const limit = 4\n"),
	}
	files, in, err := tree.join(false, patches)
	if err != nil {
		t.Fatal(err)
	}
	if !in["one-first"] || !in["two-more"] || in["limit-changes"] {
		t.Errorf("in the program: %v, want the two that change bodies", in)
	}
	got := files["p/p.go"]
	if _, err := parser.ParseFile(token.NewFileSet(), "p.go", got, 0); err != nil {
		t.Errorf("%v in:\n%s", err, got)
	}
	for _, want := range []string{
		"func (self__ *Box[K]) Put(arg0__ K, arg1__ ...int) (int, error) {\n\tswitch teeth.Mutant {\n\tcase \"one-first\":\n\treturn self__.Put__one_first(arg0__, arg1__...)",
		"return self__.Put__0(arg0__, arg1__...)\n}",
		"func (b *Box[K]) Put__0(k K, more ...int) (n int, err error) {\n\tb.first()\n\tb.second()\n",
		"func (b *Box[K]) Put__one_first(k K, more ...int) (n int, err error) {\n\tb.second()\n",
		"func (b *Box[K]) Put__two_more(k K, more ...int) (n int, err error) {\n\tb.first()\n\tb.third()\n",
		"func plain(arg0__ int) {\n\tswitch teeth.Mutant {\n\tcase \"two-more\":\n\tplain__two_more(arg0__)\n\treturn\n\t}\n\tplain__0(arg0__)\n}",
		"import \"os\"", "import \"" + teethPath + "\"", "func third() {}", "const limit = 3",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in:\n%s", want, got)
		}
	}
}

// alone are the patches that change more than bodies of functions.
var alone = []string{}

// TestPatchesJoin: nearly every patch fits into a joint program, which parses. One
// that does not costs the run some seconds more, and is listed.
func TestPatchesJoin(t *testing.T) {
	tree, err := openTree()
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBench(tree, "", nil, tree.lines("", false))
	if err != nil {
		t.Fatal(err)
	}
	for key, patches := range b.together {
		files, in, err := tree.join(strings.HasSuffix(key, "true"), patches)
		if err != nil {
			t.Fatal(err)
		}
		for path, text := range files {
			if _, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
		for _, p := range patches {
			if in[p.name] == slices.Contains(alone, p.name) {
				t.Errorf("%s fits into the joint program of %s: %v; the list says otherwise", p.name, key, in[p.name])
			}
		}
	}
}
