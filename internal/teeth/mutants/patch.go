package main

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// A patch is a file NAME.patch: a head of lines "key: value", an empty line, and
// a unified diff, as git diff prints it.
//
//	says: A put kills the old item before the new one is live.
//	broken: the new item is live before the old one is dead
//	on: points
//	test: store TestPutOrder
//	test: store TestPutOrderOfInsert the same, for an insert
//	test: test/linear TestProcesses the same, between processes; slow
//
//	--- a/store/link.go
//	+++ b/store/link.go
//	@@
//	 	context
//	-	right
//	+	wrong
//
// The numbers behind @@ are ignored: a hunk goes where its old lines stand, and
// they must stand in the file exactly once. So a patch survives changes around
// it, and never lands in lines that merely look alike.
type patch struct {
	name string
	// says is the rule, broken what the program does instead.
	says, broken string
	// points: the diff is made against the program with points.patch in it.
	points bool
	tests  []test
	files  []filePatch
}

// A test has to fail in the program that the patch makes, and to pass without it.
type test struct {
	dir, name string
	// note says what this test adds to the one before it; it may be empty.
	note string
	// slow: it takes a minute and more, and runs with -seconds or by its name only.
	slow bool
}

// A filePatch is what changes in one file, named from the root of the module.
type filePatch struct {
	path  string
	hunks []hunk
}

// A hunk replaces lines, which are without their ends.
type hunk struct {
	line     int // in the patch file
	old, new []string
}

// parse reads a patch file.
func parse(name, text string) (*patch, error) {
	p := &patch{name: name}
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	i := 0
	for ; i < len(lines) && lines[i] != ""; i++ {
		key, value, found := strings.Cut(lines[i], ": ")
		if !found {
			return nil, fmt.Errorf("%s:%d: a head is lines of \"key: value\", and ends with an empty line", name, i+1)
		}
		switch key {
		case "says":
			p.says = value
		case "broken":
			p.broken = value
		case "on":
			if value != "points" {
				return nil, fmt.Errorf("%s:%d: a patch can be on: points, not on %q", name, i+1, value)
			}
			p.points = true
		case "test":
			fields := strings.SplitN(value, " ", 3)
			if len(fields) < 2 {
				return nil, fmt.Errorf("%s:%d: want test: DIRECTORY NAME", name, i+1)
			}
			t := test{dir: fields[0], name: fields[1]}
			if len(fields) == 3 {
				t.note = fields[2]
				if t.note == "slow" {
					t.note, t.slow = "", true
				} else {
					t.note, t.slow = strings.CutSuffix(t.note, "; slow")
				}
			}
			p.tests = append(p.tests, t)
		default:
			return nil, fmt.Errorf("%s:%d: no key %q", name, i+1, key)
		}
	}
	return p, p.parseDiff(lines, i)
}

// parseDiff reads the diff, which begins behind line i.
func (p *patch) parseDiff(lines []string, i int) error {
	var f *filePatch
	var h *hunk
	for ; i < len(lines); i++ {
		line := lines[i]
		switch {
		case strings.HasPrefix(line, "--- a/"):
			if i+1 == len(lines) || lines[i+1] != "+++ b/"+line[len("--- a/"):] {
				return fmt.Errorf("%s:%d: a patch changes files, and neither makes nor removes any", p.name, i+1)
			}
			at := line[len("--- a/"):]
			if path.Clean(at) != at || strings.HasPrefix(at, "..") || strings.HasPrefix(at, "/") {
				return fmt.Errorf("%s:%d: %q is no path in the module", p.name, i+1, at)
			}
			p.files = append(p.files, filePatch{path: at})
			f, h = &p.files[len(p.files)-1], nil
			i++
		case strings.HasPrefix(line, "@@") && f != nil:
			f.hunks = append(f.hunks, hunk{line: i + 1})
			h = &f.hunks[len(f.hunks)-1]
		case h == nil || strings.HasPrefix(line, "diff ") || strings.HasPrefix(line, "index "):
			h = nil // what git says between files
		case line == "":
			h.old, h.new = append(h.old, ""), append(h.new, "")
		case line[0] == ' ':
			h.old, h.new = append(h.old, line[1:]), append(h.new, line[1:])
		case line[0] == '-':
			h.old = append(h.old, line[1:])
		case line[0] == '+':
			h.new = append(h.new, line[1:])
		default:
			return fmt.Errorf("%s:%d: no line of a diff: %q", p.name, i+1, line)
		}
	}
	for _, f := range p.files {
		for k := range f.hunks {
			h := &f.hunks[k]
			for n := len(h.old) - 1; n >= 0 && h.old[n] == "" && len(h.new) > 0 && h.new[len(h.new)-1] == ""; n-- {
				h.old, h.new = h.old[:n], h.new[:len(h.new)-1] // empty lines before the next file
			}
			if len(h.old) == 0 || slices.Equal(h.old, h.new) {
				return fmt.Errorf("%s:%d: a hunk needs lines that stand in the file, and a change", p.name, h.line)
			}
		}
		if len(f.hunks) == 0 {
			return fmt.Errorf("%s: no hunk for %s", p.name, f.path)
		}
	}
	if len(p.files) == 0 {
		return fmt.Errorf("%s: no diff", p.name)
	}
	return nil
}

// apply returns a copy of files, which are texts by path, with the patch in
// them. read is asked for a file that is not there yet.
func (p *patch) apply(files map[string]string, read func(path string) (string, error)) (map[string]string, error) {
	files = maps.Clone(files)
	if files == nil {
		files = map[string]string{}
	}
	for _, f := range p.files {
		text, found := files[f.path]
		if !found {
			var err error
			if text, err = read(f.path); err != nil {
				return nil, fmt.Errorf("%s: %w", p.name, err)
			}
		}
		text, err := f.apply(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", p.name, f.path, err)
		}
		files[f.path] = text
	}
	return files, nil
}

// apply replaces the old lines of each hunk. All hunks are found in the text as
// it was.
func (f *filePatch) apply(text string) (string, error) {
	lines := strings.Split(text, "\n")
	at := make(map[int]*hunk)
	var starts []int
	for i := range f.hunks {
		h := &f.hunks[i]
		found := h.find(lines)
		if len(found) != 1 {
			return "", fmt.Errorf("the lines of the hunk in line %d stand there %d times", h.line, len(found))
		}
		if at[found[0]] != nil {
			return "", fmt.Errorf("the hunk in line %d is there twice", h.line)
		}
		at[found[0]] = h
		starts = append(starts, found[0])
	}
	slices.Sort(starts)
	var out []string
	next := 0
	for _, start := range starts {
		if start < next {
			return "", fmt.Errorf("the hunk in line %d overlaps another", at[start].line)
		}
		out = append(out, lines[next:start]...)
		out = append(out, at[start].new...)
		next = start + len(at[start].old)
	}
	return strings.Join(append(out, lines[next:]...), "\n"), nil
}

// find returns where the old lines of h stand.
func (h *hunk) find(lines []string) (at []int) {
	for i := 0; i+len(h.old) <= len(lines); i++ {
		if slices.Equal(lines[i:i+len(h.old)], h.old) {
			at = append(at, i)
		}
	}
	return at
}
