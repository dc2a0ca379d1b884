package version

import (
	"os"
	"strings"
	"testing"
)

// TestChangelog: a version without an entry in the CHANGELOG is not released.
func TestChangelog(t *testing.T) {
	data, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := "## " + strings.TrimSuffix(Version, "-dev"); !strings.Contains(string(data), want) {
		t.Errorf("CHANGELOG.md has no heading %q", want)
	}
	if s := Of("x").String(); !strings.HasPrefix(s, "x "+Version) {
		t.Errorf("String() = %q", s)
	}
}
