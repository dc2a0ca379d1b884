package base

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// An Unreached says why an attempt to connect to one address failed. Every error
// of a call for want of a connection holds one for each address of the last
// attempt; UnreachedServers finds them.
type Unreached struct {
	Server string // the address that was tried, host:port
	Node   string // id of the node that was looked for in a cluster, or ""
	Fabric string // the fabric that came farthest
	// Err is why that fabric failed. It wraps the fabric's own error.
	Err error
	// Asked: a device of Fabric asked for a connection. If not, no device leads
	// to the address.
	Asked bool
	// Answered: a server of this protocol answered at the address, and Err is its
	// refusal, or its silence after that.
	Answered bool

	all FabricErrors // why each fabric failed, in the order in which they were tried
}

// Error is one line: the address, and why the fabric that came farthest failed.
func (u *Unreached) Error() string { return u.Server + ": " + u.Err.Error() }

// Unwrap returns the reasons of all fabrics.
func (u *Unreached) Unwrap() []error { return u.all }

// Farthest sets the fields that tell of the fabric which came farthest: one that
// met a server, else the last one that asked for a connection, else the last one.
func Farthest(u *Unreached, fabric string, err error, asked, answered bool) {
	u.all = append(u.all, err)
	if answered || u.Err == nil || !u.Answered && (asked || !u.Asked) {
		u.Fabric, u.Err, u.Asked, u.Answered = fabric, err, asked, answered
	}
}

// A LastAttempt is the reason of an attempt in the error of a call that waited
// for a better one. The call did not end for this reason, so errors.Is does not
// find it there; UnreachedServers does.
type LastAttempt struct{ Err error }

func (l LastAttempt) Error() string {
	if l.Err == nil {
		return "" // none has ended yet
	}
	return " (last attempt: " + l.Err.Error() + ")"
}

// UnreachedServers lists the addresses that could not be connected, as far as an
// error of this package tells of them, each address once. It is empty if the call
// failed for another reason.
func UnreachedServers(err error) []*Unreached {
	var out []*Unreached
	var walk func(error)
	walk = func(err error) {
		switch e := err.(type) {
		case nil:
			return
		case *Unreached:
			if !slices.ContainsFunc(out, func(u *Unreached) bool { return u.Server == e.Server && u.Node == e.Node }) {
				out = append(out, e)
			}
			return
		case LastAttempt:
			walk(e.Err)
			return
		case interface{ Unwrap() []error }:
			for _, inner := range e.Unwrap() {
				walk(inner)
			}
			return
		}
		walk(errors.Unwrap(err))
	}
	walk(err)
	return out
}

// FabricErrors is why several ways failed, on one line.
type FabricErrors []error

func (e FabricErrors) Error() string {
	parts := make([]string, len(e))
	for i, err := range e {
		parts[i] = err.Error()
	}
	return strings.Join(parts, "; ")
}

func (e FabricErrors) Unwrap() []error { return e }

// A DialError is why Dial has given up after several attempts.
type DialError struct {
	Err      error // of the last attempt that was not cut short by the deadline
	Attempts int
	Took     time.Duration
}

// Error is one line, the cause first.
func (e *DialError) Error() string {
	return fmt.Sprintf("%v (%d attempts in %v)", e.Err, e.Attempts, e.Took.Round(100*time.Millisecond))
}

// Unwrap returns the cause.
func (e *DialError) Unwrap() error { return e.Err }

// Reasons is why each fabric failed, in the order in which they were tried.
func Reasons(u *Unreached) FabricErrors { return u.all }
