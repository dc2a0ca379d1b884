package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// MaxFileSize bounds the configuration file, in bytes. Ours has about 20 KiB.
const MaxFileSize = 1 << 20

// readFile reads a configuration file of bounded size. It refuses anything but a
// regular file before reading: a directory gives a poor error and a FIFO would hang
// the start.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, errors.Unwrap(err) // the path stands in the fault already
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.IsDir() {
		return nil, errors.New("is a directory, want a file")
	}
	if !st.Mode().IsRegular() {
		return nil, errors.New("is no regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxFileSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxFileSize {
		return nil, fmt.Errorf("is larger than %s, the limit for a configuration file", Size(MaxFileSize))
	}
	return data, nil
}

// checkText refuses what no editor means to write.
func checkText(data []byte) error {
	switch {
	case bytes.HasPrefix(data, []byte("\xef\xbb\xbf")):
		return errors.New("starts with a byte order mark: save it as UTF-8 without one")
	case bytes.HasPrefix(data, []byte("\xff\xfe")), bytes.HasPrefix(data, []byte("\xfe\xff")):
		return errors.New("is UTF-16: save it as UTF-8 without a byte order mark")
	case !utf8.Valid(data):
		return errors.New("is not UTF-8 text")
	}
	if i := bytes.IndexByte(data, 0); i >= 0 {
		return fmt.Errorf("has a NUL byte in line %d: it is no text file", 1+bytes.Count(data[:i], []byte("\n")))
	}
	return nil
}

// checkTree walks the file as YAML and refuses what viper would accept silently:
// unknown and repeated keys, keys in other case, empty values, a second document,
// anchors and tags. It returns the line of each key.
func checkTree(name string, data []byte) (lines map[string]int, faults Faults) {
	fault := func(line int, key, format string, args ...any) {
		src := name
		if line > 0 {
			src = fmt.Sprintf("%s:%d", name, line)
		}
		faults = append(faults, Fault{src, key, fmt.Sprintf(format, args...)})
	}
	lines = make(map[string]int)
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	switch err := dec.Decode(&doc); {
	case err == io.EOF:
		return lines, nil // an empty file says nothing, which is allowed
	case err != nil:
		fault(0, "", "is no YAML: %s", oneLine(err))
		return lines, faults
	}
	if err := dec.Decode(new(yaml.Node)); err != io.EOF {
		fault(0, "", "has more than one YAML document; one is read")
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return lines, faults // only comments
	}
	if root.Kind != yaml.MappingNode {
		fault(root.Line, "", "want lines of the form \"key: value\"")
		return lines, faults
	}
	w := &walker{fault: fault, lines: lines, names: keyNames(), sections: sectionNames()}
	w.mapping(root, "")
	return lines, faults
}

// A walker goes through the mappings of a file.
type walker struct {
	fault           func(line int, key, format string, args ...any)
	lines           map[string]int // of keys and sections that were met
	names, sections []string
}

// mapping goes through the keys of a section; prefix is its name and a dot, or
// "" at the top.
func (w *walker) mapping(node *yaml.Node, prefix string) {
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, val := node.Content[i], node.Content[i+1]
		name := prefix + key.Value
		section := prefix == "" && contains(w.sections, name)
		switch {
		case key.Kind != yaml.ScalarNode:
			w.fault(key.Line, "", "a key must be a plain word")
			continue
		case prefix == "" && !section && contains(w.names, name) && strings.Contains(name, "."):
			head, tail, _ := strings.Cut(name, ".")
			w.fault(key.Line, name, "is written as a section: \"%s:\", and \"  %s: ...\" in the line below", head, tail)
			continue
		case !section && !contains(w.names, name):
			w.fault(key.Line, "", "unknown key %s%s", quote(name), unknown(name, append(w.names, w.sections...)))
			continue
		case w.lines[name] != 0:
			w.fault(key.Line, name, "stands twice: first in line %d", w.lines[name])
			continue
		}
		w.lines[name] = key.Line
		reason := ""
		if section {
			reason = checkSection(val)
		} else {
			reason = checkValue(val)
		}
		switch {
		case reason != "":
			w.fault(val.Line, name, "%s", reason)
		case section:
			w.mapping(val, name+".")
		}
	}
}

// checkSection refuses a section that is no mapping. A section without a key is
// refused, too, because a setting may have been lost there.
func checkSection(val *yaml.Node) string {
	switch {
	case val.Kind == yaml.AliasNode || val.Anchor != "":
		return "anchors and aliases are not used here"
	case val.Style&yaml.TaggedStyle != 0:
		return "tags are not used here"
	case val.Kind == yaml.ScalarNode && val.Tag == "!!null":
		return "is a section without keys: take the line out, or indent its keys below it"
	case val.Kind != yaml.MappingNode:
		return "is a section, want keys below it, as in \"  key: value\""
	}
	return ""
}

// checkValue refuses forms of YAML that a setting never needs: each of them can be
// read differently from how it looks.
func checkValue(val *yaml.Node) string {
	nodes := append([]*yaml.Node{val}, val.Content...)
	for _, n := range nodes {
		switch {
		case n.Kind == yaml.AliasNode || n.Anchor != "":
			return "anchors and aliases are not used here"
		case n.Style&yaml.TaggedStyle != 0:
			return "tags are not used here"
		case n.Kind == yaml.MappingNode:
			return "has a section, want a value"
		case n != val && n.Kind != yaml.ScalarNode:
			return "has a list in a list"
		case n.Tag == "!!null":
			return "has no value: take the line out, or write \"\" for an empty text"
		}
	}
	return ""
}

// searchFiles are the places where a file is looked for when none is named, the
// same for both programs.
func searchFiles() []string {
	out := []string{"config.yaml"}
	if dir, err := os.UserConfigDir(); err == nil {
		out = append(out, filepath.Join(dir, "rdmakv", "config.yaml"))
	}
	return append(out, "/etc/rdmakv/config.yaml")
}

// checkWritable refuses a file that was found, not named, and that others may write:
// its owner does not show which user has written it.
func checkWritable(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return errors.Unwrap(err)
	}
	if mode := st.Mode().Perm(); mode&0o002 != 0 {
		return fmt.Errorf("may be written by every user (mode %04o): chmod o-w, or name it with --config if it is meant", mode)
	}
	return nil
}

// checkOwner refuses a file that was found in the working directory and belongs to
// another user: a user who may write into a directory that others work in could
// choose their servers for them. A file that the user names is accepted.
func checkOwner(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return errors.Unwrap(err)
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return foreign(sys.Uid, os.Getuid())
	}
	return nil
}

// foreign refuses a file by its owner: only files of the user that runs the program
// and of root are taken from where a program looks by itself. When root runs the
// program the rule is the same: a user who could choose its data_dir would have it
// write there.
func foreign(owner uint32, me int) error {
	if owner == 0 || int(owner) == me {
		return nil
	}
	return fmt.Errorf("is in the working directory and belongs to another user (uid %d): name it with --config if it is meant", owner)
}

// oneLine makes one line of an error of the YAML parser.
func oneLine(err error) string {
	s := strings.TrimPrefix(err.Error(), "yaml: ")
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 200 {
		s = s[:200] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}

// Print writes the configuration in force as YAML, each line with where its value came
// from. The output can be read again as a file. Keys of the section expert that nobody
// has set are left out, unless all is true. The output contains no secret: of secrets in
// files it names the file, and its last lines say which variables with secrets are set.
func (l *Loaded) Print(w io.Writer, all bool) error {
	var b bytes.Buffer
	section := ""
	line := func(k Key) {
		name := k.Name
		if s := k.Section(); s != "" {
			if s != section {
				fmt.Fprintf(&b, "%s:\n", s)
			}
			section, name = s, "  "+strings.TrimPrefix(name, s+".")
		}
		fmt.Fprintf(&b, "%-40s # %s\n", name+": "+k.value(&l.Config), l.Sources[k.Name])
	}
	for _, scope := range []Scope{ForServer | ForClient, ForServer, ForClient} {
		fmt.Fprintf(&b, "# %s\n", scope)
		for _, k := range Keys() {
			if k.Scope == scope && !k.Expert() {
				line(k)
			}
		}
	}
	for _, k := range Keys() {
		if k.Expert() && (all || l.Sources[k.Name] != "default") {
			line(k)
		}
	}
	for _, one := range []struct {
		name string
		text hidden
	}{{EnvSecret, l.secret}, {EnvGossipKey, l.gossipKey}} {
		if one.text.text != nil {
			fmt.Fprintf(&b, "# %s is set; it is not shown\n", one.name)
		}
	}
	_, err := b.WriteTo(w)
	return err
}

// Attrs are the settings of a program for its log. There is no secret among
// them: those stand in files, of which only the names are settings.
func (l *Loaded) Attrs(scope Scope) []slog.Attr {
	var attrs []slog.Attr
	for _, k := range Keys() {
		if k.Scope&scope != 0 {
			attrs = append(attrs, slog.String(k.Name, fmt.Sprint(k.raw(&l.Config))))
		}
	}
	return attrs
}
