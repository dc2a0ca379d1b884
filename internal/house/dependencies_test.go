package house

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDependencies: each direct requirement of go.mod stands in the table of
// docs/HACKING.md with a licence and a reason, and nothing else does.
func TestDependencies(t *testing.T) {
	const root = "../.."
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	var required []string
	for _, m := range regexp.MustCompile(`(?m)^(?:require )?\s*(\S+) v\S+$`).FindAllStringSubmatch(string(mod), -1) {
		required = append(required, m[1]) // those marked as indirect have more on their line
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/HACKING.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Dependencies\n")
	var told []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]+) \\| ([^|]+) \\|$").FindAllStringSubmatch(section, -1) {
		if len(m[3]) < 20 {
			t.Errorf("%s: %q is no reason", m[1], m[3])
		}
		told = append(told, m[1])
	}
	slices.Sort(required)
	slices.Sort(told)
	if len(required) < 10 || !slices.Equal(required, told) {
		t.Errorf("go.mod requires\n%s\nand docs/HACKING.md tells of\n%s", strings.Join(required, "\n"), strings.Join(told, "\n"))
	}
}
