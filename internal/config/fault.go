package config

import (
	"slices"
	"strconv"
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

// Nearest returns the candidate that a misspelt name most likely meant, or ""
// when nothing is close, because a wild guess does not help. Case, and whether
// words are joined by "-" or "_", make no difference.
func Nearest(name string, candidates []string) string {
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "-", "_")) }
	name = plain(name)
	if len(name) > 64 {
		return ""
	}
	best, bestDist := "", len(name)/3+2
	for _, c := range candidates {
		if d := distance(name, plain(c)); d < bestDist {
			best, bestDist = c, d
		}
	}
	return best
}

// distance counts the single edits (insert, delete, replace, swap of two
// neighbours) that turn a into b: optimal string alignment, because swapped
// letters are a common slip of fingers.
func distance(a, b string) int {
	before, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev, cur = prev, cur, before
	}
	return prev[len(b)]
}

// quote shows foreign text in a message: quoted, so that control characters
// cannot reach a terminal, and cut, so that the line stays a line.
func quote(s string) string {
	const most = 64
	if len(s) > most {
		return strconv.Quote(s[:most]) + "..."
	}
	return strconv.Quote(s)
}
