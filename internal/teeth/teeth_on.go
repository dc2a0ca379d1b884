//go:build teeth

package teeth

import (
	"fmt"
	"sync/atomic"
)

// Enabled says whether rules can be pulled in this build.
const Enabled = true

// off holds bit r for each pulled rule. Written by Pull and its restore only;
// an atomic, because the code under test reads it on many goroutines.
var off atomic.Uint64

// hook is called by At. One per process.
var hook atomic.Pointer[func(point string, args ...uint64)]

// Pull takes rule r out until restore is called (once; later calls do
// nothing). Pulling a rule that is out already is a mistake in the test and
// panics, because its restore would put the rule back under the other.
func Pull(r Rule) (restore func()) {
	if r == 0 || r >= numRules {
		panic(fmt.Sprintf("teeth: no such rule: %v", r))
	}
	bit := uint64(1) << r
	if off.Or(bit)&bit != 0 {
		panic(fmt.Sprintf("teeth: %v is pulled already", r))
	}
	var done atomic.Bool
	return func() {
		if done.CompareAndSwap(false, true) {
			off.And(^bit)
		}
	}
}

// Off reports whether rule r is pulled. Safe for concurrent use.
func Off(r Rule) bool { return off.Load()>>r&1 != 0 }

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
