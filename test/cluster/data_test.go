package cluster

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// realData is what this machine has to tell about itself, at most n records: which
// package each file came from, and what the package database says of each package;
// without one, the files below /usr.
func realData(t *testing.T, n int) []Record {
	t.Helper()
	var all []Record
	seen := map[string]bool{}
	add := func(key, value string) {
		if len(all) < n && key != "" && len(key) < 1000 && utf8.ValidString(key) && utf8.ValidString(value) && !seen[key] {
			seen[key] = true
			all = append(all, Record{key, value})
		}
	}
	if data, err := os.ReadFile("/var/lib/dpkg/status"); err == nil {
		for block := range strings.SplitSeq(string(data), "\n\n") {
			name, _, _ := strings.Cut(strings.TrimPrefix(block, "Package: "), "\n")
			add(name, block)
		}
	}
	lists, _ := filepath.Glob("/var/lib/dpkg/info/*.list")
	for _, list := range lists {
		name := strings.TrimSuffix(filepath.Base(list), ".list")
		data, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		for path := range strings.SplitSeq(string(data), "\n") {
			add(path, "installed by "+name)
		}
	}
	if len(all) < n {
		_ = filepath.WalkDir("/usr", func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil // what may not be looked at is left out
			}
			if len(all) == n {
				return fs.SkipAll
			}
			add(path, fmt.Sprintf("of kind %v", d.Type()))
			return nil
		})
	}
	if len(all) < 1000 {
		t.Fatalf("this machine has %d files", len(all))
	}
	return all
}

// writeRecords writes records into a file.
func writeRecords(t *testing.T, path string, records []Record) {
	t.Helper()
	var b bytes.Buffer
	err := WriteRecords(&b, records)
	if err == nil {
		err = os.WriteFile(path, b.Bytes(), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
