package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseStanzas(t *testing.T) {
	got := parseStanzas("Package: a\nArchitecture: amd64\nDescription: x\n more\n\n\nPackage: a\nArchitecture: i386\n\nStatus: none\n\nPackage: b\n")
	want := []string{"a", "a:i386", "b"}
	if len(got) != len(want) {
		t.Fatalf("%d stanzas, want %d: %q", len(got), len(want), got)
	}
	for i, s := range got {
		if s.key != want[i] || !strings.HasPrefix(s.value, "Package: ") || strings.HasSuffix(s.value, "\n") {
			t.Errorf("stanza %d is %q, want key %q", i, s, want[i])
		}
	}
}

// TestSample: a machine without dpkg gets the sample.
func TestSample(t *testing.T) {
	stanzas, from, err := readStanzas(filepath.Join(t.TempDir(), "status"))
	if err != nil || len(stanzas) < 50 || from != "the shipped sample" {
		t.Fatalf("%d stanzas from %s, %v", len(stanzas), from, err)
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("\n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := readStanzas(empty); err == nil {
		t.Error("an empty database was accepted")
	}
}
