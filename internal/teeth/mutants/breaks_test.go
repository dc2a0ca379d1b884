package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// breaks is how many breaks of replication its design names.
const breaks = 41

// laterBreaks belong to what is not built yet, so nothing can plant them: formats of rolling upgrades, and admission by what
// a majority has published.
var laterBreaks = map[int]bool{29: true, 34: true}

// TestBreaks: the table of the breaks of replication has each of them once, in order; each names mutants that are there, with a test of each, and
// lines of models that are there; only those of what is not built name none.
func TestBreaks(t *testing.T) {
	tree := thisTree(t)
	text, err := tree.read(document)
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(text, "<!-- breaks: held by TestBreaks of internal/teeth/mutants -->\n")
	text, _, ended := strings.Cut(text, "<!-- end of breaks -->\n")
	if !found || !ended {
		t.Fatalf("%s has no table of the breaks of replication", document)
	}
	variants, err := os.ReadFile(filepath.Join(root, "model", "variants.txt"))
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| (\d+) \|([^|]+)\|([^|]+)\|([^|]*)\|([^|]*)\|([^|]+)\|$`).FindAllStringSubmatch(text, -1)
	if len(rows) != breaks || strings.Count(text, "\n") != breaks+2 {
		t.Errorf("%d rows in %d lines, want %d, and two of the head", len(rows), strings.Count(text, "\n"), breaks)
	}
	for i, row := range rows {
		n, _ := strconv.Atoi(row[1])
		if n != i+1 {
			t.Fatalf("break %d stands where %d should", n, i+1)
		}
		if later := strings.TrimSpace(row[3]) == "later"; later || laterBreaks[n] {
			if later != laterBreaks[n] {
				t.Errorf("break %d: %s", n, row[3])
			}
			continue
		}
		for _, name := range strings.Split(strings.TrimSpace(row[3]), ", ") {
			p, err := tree.named(name)
			if err != nil {
				t.Errorf("break %d: %v", n, err)
				continue
			}
			tested := false
			for _, of := range p.tests {
				tested = tested || !of.slow && strings.Contains(row[5], "`"+of.dir+"` "+of.name)
			}
			if !tested {
				t.Errorf("break %d names no quick test of %s: %s", n, name, row[5])
			}
		}
		for _, line := range strings.Split(strings.TrimSpace(row[4]), "; ") {
			if model, name, ok := strings.Cut(line, ": "); line != "" && (!ok || !strings.Contains(string(variants), "\n"+model+"|"+name+"|break|")) {
				t.Errorf("break %d: model/variants.txt has no line %q that must be found", n, line)
			}
		}
	}
}
