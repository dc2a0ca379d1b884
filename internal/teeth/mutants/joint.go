package main

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A joint program has many mutants in it, and is one of them at a time: to build
// each mutant by itself takes several times as long as its tests run. A function
// that patches change is there once as it is and once for each of these patches,
// and in its place stands one that calls the variant of the mutant whose name is
// in the environment:
//
//	func (t *Table) Put(k Key) error {
//		switch teeth.Mutant {
//		case "put-order":
//			return t.Put__put_order(k)
//		}
//		return t.Put__0(k)
//	}
//
// A patch that changes more than the bodies of functions does not fit into a joint
// program, and is built alone.

// mutantVar is the environment variable that says which mutant a joint program is.
const mutantVar = "RDMAKV_MUTANT"

// jointFile is a file that joint programs have more.
const jointFile = "internal/teeth/joint.go"

// teethPath is the package that knows which mutant the program is.
const teethPath = "github.com/rdmakv/rdmakv/internal/teeth"

// A variant is what one patch makes of one function.
type variant struct {
	patch string
	text  string // from "func" to the last brace
}

// A source is one file of a joint program.
type source struct {
	text     string
	parsed   *parsed
	variants map[string][]variant // by function
	imports  map[string]bool      // specs that only patches have
	extra    []string             // declarations that only patches have
	names    map[string]bool      // of these functions
}

// A parsed file, cut into its declarations.
type parsed struct {
	file    *ast.File
	fset    *token.FileSet
	funcs   map[string]*ast.FuncDecl // by receiver and name
	others  []string                 // texts of what is neither function nor import
	imports []string
	text    string
}

func cut(path, text string) (*parsed, error) {
	p := &parsed{fset: token.NewFileSet(), funcs: map[string]*ast.FuncDecl{}, text: text}
	var err error
	if p.file, err = parser.ParseFile(p.fset, path, text, parser.ParseComments|parser.SkipObjectResolution); err != nil {
		return nil, err
	}
	for _, d := range p.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			p.funcs[funcKey(d)] = d
		case *ast.GenDecl:
			if d.Tok != token.IMPORT {
				p.others = append(p.others, p.slice(d))
				continue
			}
			for _, s := range d.Specs {
				p.imports = append(p.imports, p.slice(s))
			}
		}
	}
	return p, nil
}

// slice returns the text of a node.
func (p *parsed) slice(n ast.Node) string {
	return p.text[p.fset.Position(n.Pos()).Offset:p.fset.Position(n.End()).Offset]
}

// funcKey names a function in its package.
func funcKey(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	t := d.Recv.List[0].Type
	for {
		switch e := t.(type) {
		case *ast.StarExpr:
			t = e.X
		case *ast.IndexExpr:
			t = e.X
		case *ast.IndexListExpr:
			t = e.X
		case *ast.Ident:
			return e.Name + "." + d.Name.Name
		default:
			return "?." + d.Name.Name
		}
	}
}

// join returns the files of a joint program, and the names of the patches that are
// in it.
func (t *tree) join(points bool, patches []*patch) (files map[string]string, in map[string]bool, err error) {
	base, err := t.changed(points)
	if err != nil {
		return nil, nil, err
	}
	sources, in := map[string]*source{}, map[string]bool{}
	for _, p := range patches {
		changed, err := t.changed(points, p)
		if err != nil {
			return nil, nil, err
		}
		add := []func(){}
		fits := true
		for _, f := range p.files {
			s := sources[f.path]
			if s == nil {
				text, found := base[f.path]
				if !found {
					if text, err = t.read(f.path); err != nil {
						return nil, nil, err
					}
				}
				s = &source{text: text, variants: map[string][]variant{}, imports: map[string]bool{}, names: map[string]bool{}}
				if s.parsed, err = cut(f.path, text); err != nil {
					return nil, nil, err
				}
				sources[f.path] = s
			}
			one, ok, err := s.differ(f.path, changed[f.path], p.name)
			if err != nil {
				return nil, nil, err
			}
			fits = fits && ok
			add = append(add, one...)
		}
		if fits {
			in[p.name] = true
			for _, do := range add {
				do()
			}
		}
	}
	files = base
	if files == nil {
		files = map[string]string{}
	}
	for path, s := range sources {
		if len(s.variants) > 0 {
			files[path] = s.print()
		}
	}
	return files, in, nil
}

// differ says what a patch does to a file: add is to be called if the whole patch
// fits. It does not if it changes anything but bodies of functions, or has a
// declaration of a name that another patch declares.
func (s *source) differ(path, text, patch string) (add []func(), fits bool, err error) {
	p, err := cut(path, text)
	if err != nil {
		return nil, false, err
	}
	more := slices.DeleteFunc(slices.Clone(p.others), func(d string) bool { return slices.Contains(s.parsed.others, d) })
	if len(p.others)-len(more) != len(s.parsed.others) {
		return nil, false, nil // a declaration is gone, or changed
	}
	for key := range s.parsed.funcs {
		if p.funcs[key] == nil {
			return nil, false, nil
		}
	}
	for key, d := range p.funcs {
		was := s.parsed.funcs[key]
		switch {
		case was == nil:
			if s.names[key] {
				return nil, false, nil
			}
			more = append(more, p.slice(d))
			add = append(add, func() { s.names[key] = true })
		case p.slice(d) == s.parsed.slice(was):
		case p.slice(d.Type) != s.parsed.slice(was.Type), d.Name.Name == "init", d.Body == nil || was.Body == nil:
			return nil, false, nil
		default:
			add = append(add, func() { s.variants[key] = append(s.variants[key], variant{patch, p.slice(d)}) })
		}
	}
	for _, spec := range p.imports {
		if !slices.Contains(s.parsed.imports, spec) {
			add = append(add, func() { s.imports[spec] = true })
		}
	}
	return append(add, func() { s.extra = append(s.extra, more...) }), true, nil
}

// print returns the text of the file.
func (s *source) print() string {
	s.imports[fmt.Sprintf("%q", teethPath)] = true
	for _, spec := range s.parsed.imports {
		delete(s.imports, spec)
	}
	var b strings.Builder
	at := s.parsed.fset.Position(s.parsed.file.Name.End()).Offset
	b.WriteString(s.text[:at])
	for _, spec := range slices.Sorted(maps.Keys(s.imports)) {
		b.WriteString("\n\nimport " + spec)
	}
	byPlace := func(a, b string) int { return int(s.parsed.funcs[a].Pos() - s.parsed.funcs[b].Pos()) }
	for _, key := range slices.SortedFunc(maps.Keys(s.variants), byPlace) {
		d := s.parsed.funcs[key]
		from, to := s.parsed.fset.Position(d.Pos()).Offset, s.parsed.fset.Position(d.End()).Offset
		b.WriteString(s.text[at:from])
		b.WriteString(s.parsed.choice(d, s.variants[key]))
		for _, v := range append([]variant{{"0", s.text[from:to]}}, s.variants[key]...) {
			head, body, _ := strings.Cut(v.text, d.Name.Name+s.parsed.afterName(d))
			b.WriteString("\n\n" + head + variantName(d.Name.Name, v.patch) + s.parsed.afterName(d) + body)
		}
		at = to
	}
	b.WriteString(s.text[at:])
	for _, d := range s.extra {
		b.WriteString("\n" + d + "\n")
	}
	return b.String()
}

// afterName is the character behind the name of a function: the receiver may hold
// the same name before it.
func (p *parsed) afterName(d *ast.FuncDecl) string {
	at := p.fset.Position(d.Name.End()).Offset
	return p.text[at : at+1]
}

// variantName names a function as a patch makes it.
func variantName(name, patch string) string {
	return name + "__" + strings.ReplaceAll(patch, "-", "_")
}

// choice is the function that calls the variant of the mutant that the program is.
func (p *parsed) choice(d *ast.FuncDecl, variants []variant) string {
	var b strings.Builder
	b.WriteString("func ")
	on := ""
	if d.Recv != nil {
		on = "self__."
		fmt.Fprintf(&b, "(self__ %s) ", p.slice(d.Recv.List[0].Type))
	}
	b.WriteString(d.Name.Name)
	types := ""
	if list := d.Type.TypeParams; list != nil {
		b.WriteString(p.slice(list))
		var names []string
		for _, f := range list.List {
			for _, n := range f.Names {
				names = append(names, n.Name)
			}
		}
		types = "[" + strings.Join(names, ", ") + "]"
	}
	var params, args []string
	for _, f := range d.Type.Params.List {
		for range max(1, len(f.Names)) {
			name := fmt.Sprintf("arg%d__", len(args))
			params = append(params, name+" "+p.slice(f.Type))
			if _, variadic := f.Type.(*ast.Ellipsis); variadic {
				name += "..."
			}
			args = append(args, name)
		}
	}
	fmt.Fprintf(&b, "(%s)", strings.Join(params, ", "))
	give := ""
	if r := d.Type.Results; r != nil && len(r.List) > 0 {
		give = "return "
		var results []string
		for _, f := range r.List {
			for range max(1, len(f.Names)) {
				results = append(results, p.slice(f.Type))
			}
		}
		fmt.Fprintf(&b, " (%s)", strings.Join(results, ", "))
	}
	call := func(patch string) string {
		text := give + on + variantName(d.Name.Name, patch) + types + "(" + strings.Join(args, ", ") + ")"
		if give == "" {
			text += "\n\treturn"
		}
		return text
	}
	b.WriteString(" {\n\tswitch teeth.Mutant {\n")
	for _, v := range variants {
		fmt.Fprintf(&b, "\tcase %q:\n\t%s\n", v.patch, call(v.patch))
	}
	fmt.Fprintf(&b, "\t}\n\t%s\n}", strings.TrimSuffix(call("0"), "\n\treturn"))
	return b.String()
}

// jointOverlay writes the overlay of a joint program below dir, as overlay does, and
// returns the names of the patches that are in it.
func (t *tree) jointOverlay(dir string, points bool, patches []*patch) (path string, in map[string]bool, err error) {
	files, in, err := t.join(points, patches)
	if err != nil {
		return "", nil, err
	}
	if files, err = says("", points).apply(files, t.read); err != nil {
		return "", nil, err
	}
	files[teethFile] = strings.Replace(files[teethFile], "\tMutant = \"\"", "\t_ = \"\"", 1)
	files[jointFile] = fmt.Sprintf("package teeth\n\nimport \"os\"\n\n// Mutant names the rule that is broken.\nvar Mutant = os.Getenv(%q)\n", mutantVar)
	path, err = t.write(dir, files)
	return path, in, err
}

// compile compiles the packages that patches change, with all of their variants in
// them. A patch that the program has left behind shows here within seconds.
func (t *tree) compile(ctx context.Context) error {
	tmp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	together := map[bool][]*patch{}
	for _, l := range t.lines("", true) {
		points, err := l.points(t)
		if err != nil {
			return err
		}
		if !slices.Contains(together[points], l.patch) {
			together[points] = append(together[points], l.patch)
		}
	}
	for points, patches := range together {
		dir, err := os.MkdirTemp(tmp, "overlay")
		if err != nil {
			return err
		}
		overlay, in, err := t.jointOverlay(dir, points, patches)
		if err != nil {
			return err
		}
		args := []string{"build", "-overlay", overlay, "-tags=" + tags(points)}
		for _, p := range patches {
			if !in[p.name] {
				fmt.Printf("  %s changes more than bodies of functions and is not compiled here\n", p.name)
				continue
			}
			for _, f := range p.files {
				args = append(args, "./"+filepath.Dir(f.path))
			}
		}
		slices.Sort(args[4:])
		if out, err := command(ctx, t.root, nil, "go", slices.Compact(args)...); err != nil {
			return fmt.Errorf("a mutant does not compile: %w\n%s", err, out)
		}
	}
	return nil
}
