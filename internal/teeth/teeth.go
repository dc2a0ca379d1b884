// Package teeth is what tests know of the mutants: programs in which one rule of
// the design is broken, each made by a patch in the directory mutants. A rule whose
// break no test notices is not guarded.
//
// The program itself knows nothing of this package. The command mutants builds it
// with go test -overlay, in which files with the break take the place of the true
// ones. A second patch, points.patch, puts calls of At between steps of the
// program: tests that come in between, as another goroutine or a reader by RDMA
// could, have the build tag points and set a hook. The first of these commands
// shows that a rule is guarded; the second runs such a test on the program as it
// should be:
//
//	go run ./internal/teeth/mutants -run put-order
//	go run ./internal/teeth/mutants -with points -- test ./store -run TestPutOrder
//
// Any test may be one that notices, also one that knows nothing of this package:
// the head of each patch names its own.
package teeth

import (
	"sync/atomic"
	"time"
)

// These say what this build of the program is. In the builds that it makes the
// command mutants replaces these two lines.
const (
	// Mutant names the rules that are broken, by the names of their patches with
	// commas between them. Tests that find a break by chance look longer for it if
	// there is one.
	Mutant = ""
	// Points says whether the program passes the points of points.patch.
	Points = false
)

// Patience returns for how long a test waits for what has to happen: d, or a quarter of it if
// a rule is broken, because then it mostly waits in vain.
func Patience(d time.Duration) time.Duration {
	if Mutant != "" {
		return d / 4
	}
	return d
}

// hook is called by At. One per process.
var hook atomic.Pointer[func(point string, args ...uint64)]

// SetHook makes At call f, on the goroutine that passes the point; nil stops that.
// The meaning of the arguments is given where the point is. Tests that set it do
// not run in parallel with others.
func SetHook(f func(point string, args ...uint64)) {
	if f == nil {
		hook.Store(nil)
		return
	}
	hook.Store(&f)
}

// At marks a point that a test may interrupt, and calls the hook if one is set. It
// is safe for concurrent use.
func At(point string, args ...uint64) {
	if f := hook.Load(); f != nil {
		(*f)(point, args...)
	}
}
