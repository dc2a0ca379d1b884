package config

import (
	"strings"
	"testing"
)

// TestGone: a key of an earlier version is an error in every layer, and the error says
// what has become of it. A key that took its place exists, and none came back.
func TestGone(t *testing.T) {
	names := keyNames()
	for _, g := range gone {
		if contains(names, g.key) || g.now != "" && !contains(names, g.now) || (g.now == "") == (g.why == "") {
			t.Errorf("%+v is no key that went", g)
		}
		for _, layer := range []struct {
			file, name string
			env        []string
		}{
			{file: g.key + ": 1", name: g.key},
			{env: []string{envOf(g.key) + "=1"}, name: envOf(g.key)},
		} {
			_, err := load(t, layer.file, layer.env)
			want := `"` + layer.name + `": ` + Gone(layer.name)
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "mean") {
				t.Errorf("%v, want %s", err, want)
			}
		}
		if got := Gone("--" + flagOf(g.key)); got == "" || g.now != "" && got != "it is --"+flagOf(g.now)+" now" {
			t.Errorf("--%s: %q", flagOf(g.key), got)
		}
	}
	for _, name := range append(names, "", "nonsense", "--listen") {
		if got := Gone(name); got != "" {
			t.Errorf("%q: %q", name, got)
		}
	}
}
