package config

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestShippedFile holds config.yaml at the root of the repository to this
// package: every key stands there with its default, in the order of Config,
// and has its unit, its default and what it trades above it; a key of the section
// expert has a comment behind it instead.
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
	_, expert, _ := strings.Cut(string(data), "\n# expert:\n")
	expert = "expert:\n" + strings.ReplaceAll("\n"+expert, "\n#", "\n")
	for line := range strings.SplitSeq(expert, "\n") {
		if m := regexp.MustCompile(`^   (\w+): .*  # .{20}`).FindStringSubmatch(line); m != nil {
			order = append(order, "expert."+m[1])
		}
	}
	if want := keyNames(); !reflect.DeepEqual(order, want) {
		t.Errorf("the keys of config.yaml are\n%v, of Config\n%v", order, want)
	}
	// The section that is commented out has the defaults, too.
	if l, err := load(t, expert, nil); err != nil || !reflect.DeepEqual(l.Config, Default()) {
		t.Errorf("%v in\n%s", err, expert)
	}
}

func checkDocs(t *testing.T, k Key, block, def string) {
	t.Helper()
	for _, word := range []string{"# Unit: ", "Default: ", "# Trades: "} {
		if strings.Count(block, word) != 1 {
			t.Errorf("%s: the comment has not exactly one %q", k.Name, word)
		}
	}
	flat := strings.ReplaceAll(block, "\n# ", " ")
	if r := k.rule; r.least != nil && !strings.Contains(flat, said(r.least)+" to "+said(r.most)) {
		t.Errorf("%s: the comment does not say %s to %s", k.Name, said(r.least), said(r.most))
	}
	for _, name := range k.rule.choices {
		if !regexp.MustCompile(`\b` + name + `\b`).MatchString(flat) {
			t.Errorf("%s: the comment does not name %s", k.Name, name)
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

// said is a bound as people write it: 1m, where Go says 1m0s.
func said(v any) string {
	return regexp.MustCompile(`([hm])0[ms](0s)?$`).ReplaceAllString(fmt.Sprint(v), "$1")
}

// TestRules: a default is a value that its key takes, and a rule's bounds are in order.
func TestRules(t *testing.T) {
	for _, k := range Keys() {
		v, err := parse(k.Kind, k.rule.def)
		if k.Kind == KindSwitch && k.rule.def == "" {
			v, err = false, nil
		}
		if err != nil || k.rule.check(v) != "" {
			t.Errorf("%s: the default %q is refused: %v %s", k.Name, k.rule.def, err, k.rule.check(v))
		}
		if least, most := k.Bounds(); least != nil && amount(least) >= amount(most) {
			t.Errorf("%s: from %v to %v", k.Name, least, most)
		}
		if r := k.rule; r.or != nil && (r.least == nil || amount(r.or) >= amount(r.least) && amount(r.or) <= amount(r.most)) {
			t.Errorf("%s: %v is inside of the range, so it needs no tag", k.Name, r.or)
		}
	}
}

// TestKeysHaveHelp: a flag without help text is no flag. Those of the section expert are
// hidden, and no others.
func TestKeysHaveHelp(t *testing.T) {
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(flags, ForServer|ForClient)
	for _, k := range Keys() {
		if k.Usage == "" || k.Name == "" {
			t.Errorf("%+v lacks its tags", k)
		}
		if flags.Lookup(k.Flag).Hidden != strings.HasPrefix(k.Name, "expert.") {
			t.Errorf("--%s is hidden, or should be", k.Flag)
		}
	}
}
