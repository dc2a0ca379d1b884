//go:build teeth

package teeth

import (
	"fmt"
	"os"
	"sync/atomic"
)

// Enabled says whether rules can be pulled in this build.
const Enabled = true

// Variable names a rule, by its String, that is out for the life of the
// process. So any test, also one that knows nothing of this package, can be
// run against a program that breaks the rule: it has to fail.
const Variable = "TEETH_PULL"

// A state is what tests may change.
type state struct {
	// off holds a bit for each pulled rule. Written by Pull and its restore
	// only; atomic, because the code under test reads it on many goroutines.
	off [256 / 64]atomic.Uint64
	// told holds the same for rules whose wrong way was announced.
	told [256 / 64]atomic.Uint64
}

var rules = fromEnvironment()

func fromEnvironment() *state {
	s := new(state)
	name, found := os.LookupEnv(Variable)
	if !found {
		return s
	}
	for r := Rule(1); r < numRules; r++ {
		if r.String() == name {
			s.off[r/64].Store(1 << (r % 64))
			return s
		}
	}
	panic(fmt.Sprintf("teeth: %s=%q names no rule", Variable, name))
}

// hook is called by At. One per process.
var hook atomic.Pointer[func(point string, args ...uint64)]

// Pull takes rule r out until restore is called (once; later calls do
// nothing). Pulling a rule that is out already is a mistake in the test and
// panics, because its restore would put the rule back under the other.
func Pull(r Rule) (restore func()) {
	if r == 0 || r >= numRules {
		panic(fmt.Sprintf("teeth: no such rule: %v", r))
	}
	word, bit := &rules.off[r/64], uint64(1)<<(r%64)
	if word.Or(bit)&bit != 0 {
		panic(fmt.Sprintf("teeth: %v is pulled already", r))
	}
	var done atomic.Bool
	return func() {
		if done.CompareAndSwap(false, true) {
			word.And(^bit)
		}
	}
}

// Off reports whether rule r is pulled. Safe for concurrent use. The first
// time that it says so it prints the rule: whoever runs a test against a
// broken rule sees that the test came upon the break.
func Off(r Rule) bool {
	bit := uint64(1) << (r % 64)
	if rules.off[r/64].Load()&bit == 0 {
		return false
	}
	if told := &rules.told[r/64]; told.Load()&bit == 0 && told.Or(bit)&bit == 0 {
		fmt.Printf("\nteeth: the wrong way: %v\n", r)
	}
	return true
}

// SetHook makes At call f, on the goroutine that passes the point; nil stops
// that. What the arguments mean is said where the point is.
func SetHook(f func(point string, args ...uint64)) {
	if f == nil {
		hook.Store(nil)
		return
	}
	hook.Store(&f)
}

// At marks a point that a test may want to interrupt, and calls the hook if
// one is set. Safe for concurrent use.
func At(point string, args ...uint64) {
	if f := hook.Load(); f != nil {
		(*f)(point, args...)
	}
}
