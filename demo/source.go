package main

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unicode/utf8"
)

// sample stands in for the package database on machines that are no Debian:
// some stanzas of a real one, without descriptions.
//
//go:embed sample.status
var sample string

// A stanza is one record: a package and what the database says of it.
type stanza struct {
	key   string
	value string
}

// readStanzas reads a package database, or the shipped sample when there is
// none, and says which.
func readStanzas(path string) (stanzas []stanza, from string, err error) {
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		stanzas, from = parseStanzas(sample), "the shipped sample"
	case err != nil:
		return nil, "", err
	default:
		stanzas, from = parseStanzas(string(data)), path
	}
	if len(stanzas) == 0 {
		return nil, "", fmt.Errorf("%s has no packages in it", from)
	}
	return stanzas, from, nil
}

// parseStanzas takes the database apart: stanzas are separated by empty lines
// and named by their Package field. A package that is installed for several
// architectures is there several times; the second gets its architecture into
// the key, as in "libc6:i386".
func parseStanzas(text string) []stanza {
	var out []stanza
	seen := map[string]bool{}
	for block := range strings.SplitSeq(text, "\n\n") {
		block = strings.Trim(block, "\n")
		key := field(block, "Package")
		if key == "" {
			continue
		}
		if seen[key] {
			key += ":" + field(block, "Architecture")
		}
		if seen[key] || !utf8.ValidString(block) {
			continue // nothing that dpkg writes
		}
		seen[key] = true
		out = append(out, stanza{key, block})
	}
	return out
}

// field returns a one-line field of a stanza.
func field(block, name string) string {
	for line := range strings.SplitSeq(block, "\n") {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// totalBytes is the size of all keys and values.
func totalBytes(stanzas []stanza) (n int64) {
	for _, s := range stanzas {
		n += int64(len(s.key) + len(s.value))
	}
	return n
}

// writeJSONLines writes the stanzas in the form that kvclient imports.
func writeJSONLines(path string, stanzas []stanza) error {
	var b bytes.Buffer
	w := bufio.NewWriter(&b)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for _, s := range stanzas {
		if err := enc.Encode(struct {
			Key   string `json:"key"`
			Value string `json:"value"`
		}{s.key, s.value}); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o600)
}
