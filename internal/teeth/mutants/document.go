package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/rdmakv/rdmakv/internal/teeth"
)

// sorted returns the lines by number of the review, then section of the design.
func sorted() []mutant {
	out := slices.Clone(mutants)
	slices.SortStableFunc(out, func(a, b mutant) int {
		return cmp.Or(cmp.Compare(number(a.rule), number(b.rule)), cmp.Compare(a.rule, b.rule))
	})
	return out
}

// number is where a rule stands: F3 before F12, and F32 before D4.
func number(r teeth.Rule) (n int) {
	var letter byte
	fmt.Sscanf(r.String(), "%c%d", &letter, &n)
	if letter == 'D' {
		n += 100
	}
	return n
}

// markdown writes the table for docs/correctness.md.
func markdown() string {
	var b strings.Builder
	b.WriteString("| rule | the break | caught by |\n|---|---|---|\n")
	last := teeth.Rule(0)
	for _, m := range sorted() {
		rule := m.rule.String()
		if m.rule == last {
			rule = ""
		}
		last = m.rule
		fmt.Fprintf(&b, "| %s | %s | `%s` %s |\n", rule, m.broken, m.dir, m.name)
	}
	return b.String()
}

// document holds the table for readers, between two marks.
const (
	document = "docs/correctness.md"
	begin    = "<!-- mutants: go run ./internal/teeth/mutants -doc -->\n"
	end      = "<!-- end of mutants -->\n"
)

// writeTable replaces the table in the document at path.
func writeTable(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(data), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s has no marks for the table of mutants", path)
	}
	return os.WriteFile(path, []byte(before+begin+markdown()+end+after), 0o644)
}
