package image

import (
	"bufio"
	"fmt"
	"io"
	"path"
	"strings"
)

// Modules knows the modules of a kernel and what each needs, from modules.dep,
// a line of which is "path: path path ...", most dependent first.
type Modules struct {
	needs map[string][]string // path -> paths
	path  map[string]string   // name -> path
}

// ReadModules reads a modules.dep as depmod(8) writes it.
func ReadModules(r io.Reader) (*Modules, error) {
	m := &Modules{needs: map[string][]string{}, path: map[string]string{}}
	s := bufio.NewScanner(r)
	for s.Scan() {
		file, deps, ok := strings.Cut(s.Text(), ":")
		if !ok {
			return nil, fmt.Errorf("modules.dep: no colon in %q", s.Text())
		}
		m.needs[file] = strings.Fields(deps)
		m.path[moduleName(file)] = file
	}
	return m, s.Err()
}

// moduleName is how the kernel calls a module: without directory and suffixes,
// and with underscores.
func moduleName(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".")
	return strings.ReplaceAll(name, "-", "_")
}

// Files returns the files of the named modules and of all they need, each
// after what it needs.
func (m *Modules) Files(names ...string) ([]string, error) {
	var files []string
	seen := map[string]bool{}
	var visit func(file string)
	visit = func(file string) {
		if seen[file] {
			return
		}
		seen[file] = true
		deps := m.needs[file]
		for i := len(deps) - 1; i >= 0; i-- {
			visit(deps[i])
		}
		files = append(files, file)
	}
	for _, name := range names {
		file, ok := m.path[strings.ReplaceAll(name, "-", "_")]
		if !ok {
			return nil, fmt.Errorf("the kernel has no module %s", name)
		}
		visit(file)
	}
	return files, nil
}

// Table is a modules.dep of these files alone, for modprobe in the guest.
func (m *Modules) Table(files []string) []byte {
	var b []byte
	for _, f := range files {
		b = fmt.Appendf(b, "%s: %s\n", f, strings.Join(m.needs[f], " "))
	}
	return b
}

// present returns those of the names that this kernel has as modules: what is
// built in needs no file.
func (m *Modules) present(names []string) []string {
	var out []string
	for _, name := range names {
		if _, ok := m.path[name]; ok {
			out = append(out, name)
		}
	}
	return out
}
