package config

import (
	"slices"
	"strings"
)

// A Fault is one thing that is wrong with the settings.
type Fault struct {
	Source string // where the value came from: "config.yaml:12", "RDMAKV_LISTEN", "--listen", "default"; empty where no value is at fault
	Key    string // as in config.yaml; empty where the file as a whole is at fault
	Reason string // what is wrong, and what is allowed
}

// String is the one line that a user gets to read. The flag or the variable of a
// key names it already.
func (f Fault) String() string {
	parts, key := make([]string, 0, 3), f.Key
	for _, k := range Keys() {
		if k.Name == f.Key && (f.Source == "--"+k.Flag || f.Source == k.Env) {
			key = ""
		}
	}
	for _, p := range []string{f.Source, key, f.Reason} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, ": ")
}

// Faults is the error of Load and Validate: everything that is wrong, in the
// order in which the file is read.
type Faults []Fault

// Error lists the faults, one a line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, one := range f {
		lines[i] = one.String()
	}
	return strings.Join(lines, "\n")
}

// about reports whether a key is at fault.
func (f Faults) about(key string) bool {
	return slices.ContainsFunc(f, func(one Fault) bool { return one.Key == key })
}

// orNil makes an error of the faults: nil when there are none, which a bare
// Faults in an error interface would not be.
func (f Faults) orNil() error {
	if len(f) == 0 {
		return nil
	}
	return f
}
