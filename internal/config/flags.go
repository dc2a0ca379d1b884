package config

import (
	"strings"

	"github.com/spf13/pflag"
)

// AddFlags adds one flag for each key of a program. A flag holds its text as
// it was given; Load parses it with the same rules as a variable, so that the
// same mistake gets the same message wherever it is made. Flags of the section expert
// work and are in no help text.
func AddFlags(fs *pflag.FlagSet, scope Scope) {
	def := Default()
	for _, k := range Keys() {
		if k.Scope&scope == 0 {
			continue
		}
		f := &flagText{kind: k.Kind, text: flagDefault(k, &def)}
		flag := fs.VarPF(f, k.Flag, "", k.Usage)
		flag.Hidden = k.Expert()
		if k.Kind == KindSwitch {
			flag.NoOptDefVal = "true"
		}
	}
}

// flagDefault is how the default stands in the help text.
func flagDefault(k Key, def *Config) string {
	switch v := k.raw(def).(type) {
	case string:
		return v
	case []string:
		return strings.Join(v, ",")
	case CPUs:
		return v.joined()
	}
	return k.value(def)
}

// flagText is a flag that keeps its text. It implements pflag.Value.
type flagText struct {
	kind  Kind
	text  string
	given bool
}

func (f *flagText) String() string { return f.text }

// Set takes the text. A list grows when its flag is repeated; of any other flag
// the last value counts.
func (f *flagText) Set(s string) error {
	if (f.kind == KindList || f.kind == KindCPUs) && f.given {
		s = f.text + "," + s
	}
	f.text, f.given = s, true
	return nil
}

// Type is the word behind the flag's name in the help text.
func (f *flagText) Type() string {
	if f.kind == KindSwitch {
		return "bool" // pflag shows no word for this one
	}
	return f.kind.String()
}
