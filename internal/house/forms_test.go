package house

import (
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/feature"
)

// A place is where the forms of a family stand in the code: constants of a package.
type place struct {
	family feature.Family
	dir    string
	typed  string         // they are of this type; "": of any
	named  *regexp.Regexp // they have such names; nil: any
	newest bool           // the constant is the newest form, and older ones are read, too
}

// written are the places. In package cluster each constant that is named so is a format of a shard map, but for those of a place before that one.
var written = []place{
	{feature.MetaState, "internal/meta", "", regexp.MustCompile(`^Format$`), true},
	{feature.TaskKind, "internal/meta", "Kind", nil, false},
	{feature.TaskState, "internal/meta", "TaskState", nil, false},
	{feature.MoveState, "internal/meta", "MoveState", nil, false},
	{feature.Gossip, "internal/cluster", "", regexp.MustCompile(`^metaFormat$`), true},
	{feature.View, "internal/cluster", "", regexp.MustCompile(`^viewFormat$`), true},
	{feature.RegionTable, "internal/cluster", "", regexp.MustCompile(`^tableFormat$`), true},
	{feature.ShardMap, "internal/cluster", "", regexp.MustCompile(`Format$`), false},
	{feature.Document, "internal/wire", "DocumentKind", nil, false},
	{feature.Question, "internal/wire", "", regexp.MustCompile(`^Question[A-Z]`), false},
	{feature.GroupEntry, "store/internal/entry", "Kind", nil, false},
	{feature.EngineEntry, "internal/consensus", "Kind", nil, false},
	{feature.GroupWrite, "store/internal/logged", "", regexp.MustCompile(`^Format$`), true},
	{feature.GroupPiece, "store/internal/logged", "", regexp.MustCompile(`^pieceFormat$`), true},
}

// levelless are families without a constant for each form: their own packages test what is written.
var levelless = []feature.Family{feature.NodeFile}

// TestFormsHaveLevels: each form of what nodes write for each other has a row in the table of levels (internal/feature, forms.go), and each row is of a form that there is. So nobody adds one, a map format
// say, or a kind of entry, without saying from which level on it may be written (R20).
func TestFormsHaveLevels(t *testing.T) {
	have := map[feature.Family][]string{
		feature.MetaField:   jsonFields(t, "internal/meta", "text", "Task", "Move"),
		feature.ReportField: jsonFields(t, "internal/seat", "Report", "GroupReport", "KeptReport"),
	}
	taken := map[string]bool{}
	for _, w := range written {
		for name, value := range constants(t, w.dir) {
			if at := w.dir + " " + name; w.has(name, value) && !taken[at] {
				taken[at] = true
				have[w.family] = append(have[w.family], value.text)
			}
		}
		if len(have[w.family]) == 0 {
			t.Errorf("%s: no form of it is found in %s", w.family, w.dir)
		}
	}
	for _, fault := range formFaults(have) {
		t.Error(fault)
	}

	// The test finds what somebody adds, and what somebody takes away.
	for _, c := range []struct {
		family feature.Family
		form   string
	}{{feature.ShardMap, "33"}, {feature.Document, "99"}, {feature.GroupEntry, "9"}, {feature.EngineEntry, "9"}, {feature.TaskKind, "rename"}, {feature.MetaField, "hint"}, {feature.MetaState, "9"}, {feature.Question, "9"}, {feature.ReportField, "hint"}} {
		more := maps.Clone(have)
		more[c.family] = append(slices.Clone(have[c.family]), c.form)
		if got := formFaults(more); len(got) != 1 || !strings.Contains(got[0], string(c.family)+" "+c.form+" has no level") {
			t.Errorf("%s %s is added: %q", c.family, c.form, got)
		}
	}
	fewer := maps.Clone(have)
	fewer[feature.Document] = slices.DeleteFunc(slices.Clone(have[feature.Document]), func(form string) bool { return form == "25" })
	if got := formFaults(fewer); len(got) != 1 || !strings.Contains(got[0], "has document 25, and the code has not") {
		t.Errorf("document 25 is taken away: %q", got)
	}
	// It reads constants as the compiler does.
	found := constants(t, "internal/house/testdata/forms")
	for name, want := range map[string]valued{
		"First": {"1", "Kind"}, "second": {"2", "Kind"}, "Last": {"2", "Kind"}, "mapFormat": {"3", ""}, "Word": {"a word", "Name"},
	} {
		if found[name] != want {
			t.Errorf("%s is %v, want %v", name, found[name], want)
		}
	}
}

// has says whether a constant of the place's package is one of its forms.
func (w *place) has(name string, value valued) bool {
	return (w.typed == "" || w.typed == value.typed) && (w.named == nil || w.named.MatchString(name))
}

// formFaults compares what there is with the table.
func formFaults(have map[feature.Family][]string) (faults []string) {
	told := map[feature.Family][]string{}
	for _, f := range feature.All() {
		told[f.Family] = append(told[f.Family], strings.Fields(f.Which)...)
	}
	for family, forms := range have {
		for _, form := range forms {
			if !slices.Contains(told[family], form) {
				faults = append(faults, fmt.Sprintf("%s %s has no level: put it into the table of internal/feature/forms.go, which says how", family, form))
			}
		}
	}
	for family, forms := range told {
		older := slices.ContainsFunc(written, func(w place) bool { return w.family == family && w.newest })
		for _, form := range forms {
			switch {
			case slices.Contains(levelless, family), slices.Contains(have[family], form):
			case older && number(form) < number(have[family][0]):
			default:
				faults = append(faults, fmt.Sprintf("the table of internal/feature/forms.go has %s %s, and the code has not", family, form))
			}
		}
	}
	return faults
}

func number(form string) int {
	n, err := strconv.Atoi(form)
	if err != nil {
		return 1 << 30
	}
	return n
}

// A valued is a constant: its value, and the name of its type.
type valued struct{ text, typed string }

// constants are those of a package, with the values that the compiler gives them.
func constants(t *testing.T, dir string) map[string]valued {
	t.Helper()
	fset, files := parsed(t, dir)
	c := types.Config{Importer: noImports{}, Error: func(error) {}, IgnoreFuncBodies: true}
	p, _ := c.Check(dir, fset, files, nil) // what it imports is unknown, which the constants that count need not
	list := map[string]valued{}
	for _, name := range p.Scope().Names() {
		k, ok := p.Scope().Lookup(name).(*types.Const)
		if !ok || k.Val() == nil || k.Val().Kind() == constant.Unknown {
			continue
		}
		v := valued{text: k.Val().ExactString()}
		if k.Val().Kind() == constant.String {
			v.text = constant.StringVal(k.Val())
		}
		if n, ok := k.Type().(*types.Named); ok {
			v.typed = n.Obj().Name()
		}
		list[name] = v
	}
	return list
}

type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not looked at") }

func parsed(t *testing.T, dir string) (*token.FileSet, []*ast.File) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: %d files, %v", dir, len(paths), err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return fset, files
}

// jsonFields are the names in JSON of the fields of structs.
func jsonFields(t *testing.T, dir string, structs ...string) (names []string) {
	t.Helper()
	_, files := parsed(t, dir)
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || !slices.Contains(structs, spec.Name.Name) {
				return true
			}
			s, ok := spec.Type.(*ast.StructType)
			if !ok {
				t.Fatalf("%s: %s is no struct", dir, spec.Name.Name)
			}
			for _, field := range s.Fields.List {
				tag := ""
				if field.Tag != nil {
					text, err := strconv.Unquote(field.Tag.Value)
					if err != nil {
						t.Fatal(err)
					}
					tag, _, _ = strings.Cut(reflect.StructTag(text).Get("json"), ",")
				}
				if tag == "" {
					t.Errorf("%s: a field of %s has no name in JSON: %s", dir, spec.Name.Name, fmt.Sprint(field.Names))
				}
				names = append(names, tag)
			}
			return true
		})
	}
	if len(names) == 0 {
		t.Errorf("%s: no fields of %v", dir, structs)
	}
	return names
}
