package config

import (
	"slices"
	"testing"
)

// TestChoices: each name of a key that takes one of a few is taken, its default is
// among them, and nothing else is.
func TestChoices(t *testing.T) {
	def, some := Default(), 0
	for _, k := range Keys() {
		names := Choices(k.Name)
		if names == nil {
			continue
		}
		some++
		if v, _ := k.raw(&def).(string); !slices.Contains(names, v) {
			t.Errorf("%s: the default %q is none of %q", k.Name, v, names)
		}
		for _, name := range append(slices.Clone(names), "nonsense") {
			_, err := Load(Options{Scope: k.Scope, Search: []string{}, Env: []string{k.Env + "=" + name}})
			faults, _ := err.(Faults)
			if faults.about(k.Name) != (name == "nonsense") {
				t.Errorf("%s=%s: %v", k.Env, name, err)
			}
		}
	}
	if some < 10 {
		t.Errorf("%d keys have choices", some)
	}
}
