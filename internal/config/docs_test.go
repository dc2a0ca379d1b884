package config

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// TestShippedFile holds config.yaml at the root of the repository to this
// package: every key stands there with its default, in the order of Config,
// and has its unit, its default and what it trades above it.
func TestShippedFile(t *testing.T) {
	const path = "../../config.yaml"
	l, err := Load(Options{Scope: ForServer, File: path})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(l.Config, Default()) {
		t.Errorf("config.yaml has %+v, the defaults are %+v", l.Config, Default())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	def, section := Default(), ""
	for block := range strings.SplitSeq(string(data), "\n\n") {
		lines := strings.Split(strings.TrimSpace(block), "\n")
		name, value, _ := strings.Cut(lines[len(lines)-1], ":")
		if strings.HasPrefix(name, "#") || name == "" {
			continue
		}
		if value == "" { // the head of a section, whose keys are indented
			section = name
			continue
		}
		if key, indented := strings.CutPrefix(name, "  "); indented {
			name = section + "." + key
		}
		order = append(order, name)
		for _, k := range Keys() {
			if k.Name == name {
				checkDocs(t, k, block, flagDefault(k, &def))
			}
		}
	}
	if want := keyNames(); !reflect.DeepEqual(order, want) {
		t.Errorf("the keys of config.yaml are\n%v, of Config\n%v", order, want)
	}
}

func checkDocs(t *testing.T, k Key, block, def string) {
	t.Helper()
	for _, word := range []string{"# Unit: ", "Default: ", "# Trades: "} {
		if strings.Count(block, word) != 1 {
			t.Errorf("%s: the comment has not exactly one %q", k.Name, word)
		}
	}
	text := regexp.MustCompile(`Default: ([^#]*)`).FindStringSubmatch(block)
	if text == nil {
		return
	}
	if def == "" {
		def = `""`
	}
	if (k.Kind == KindList || k.Kind == KindCPUs) && def == `""` {
		def = "" // between the brackets
	}
	got := strings.Trim(strings.TrimRight(strings.Fields(text[1])[0], ".,"), "[]")
	if got != def {
		t.Errorf("%s: the comment says the default is %q, it is %q", k.Name, got, def)
	}
}

// TestKeysHaveHelp: a flag without help text is no flag.
func TestKeysHaveHelp(t *testing.T) {
	for _, k := range Keys() {
		if k.Usage == "" || k.Name == "" {
			t.Errorf("%+v lacks its tags", k)
		}
	}
}
