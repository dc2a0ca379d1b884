package base

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Failure is one thing that such a call could not do.
type Failure struct {
	Index int    // of the key or pair in the call; -1: the node as a whole
	Node  string // whose it was; "" if no map said that
	Err   error
}

// A PartialError is the outcome of a call with several keys, or to several nodes, that did
// not succeed everywhere. What is not among its failures was done.
type PartialError struct {
	Total    int       // keys, pairs or nodes in the call
	Failures []Failure // by index, then by node
}

// Error tells how many failed, at which nodes, and the first reason.
func (e *PartialError) Error() string {
	nodes := make(map[string]int)
	for _, f := range e.Failures {
		nodes[f.Node]++
	}
	var at []string
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		if id != "" {
			at = append(at, id)
		}
	}
	s := fmt.Sprintf("%d of %d failed", len(e.Failures), e.Total)
	if len(at) > 0 {
		s += " (at " + strings.Join(at, ", ") + ")"
	}
	if len(e.Failures) > 0 {
		s += fmt.Sprintf(", the first with: %v", e.Failures[0].Err)
	}
	return s
}

// Unwrap returns the failures' errors, so that errors.Is finds any of them.
func (e *PartialError) Unwrap() []error {
	errs := make([]error, len(e.Failures))
	for i, f := range e.Failures {
		errs[i] = f.Err
	}
	return errs
}

// nodeOf is the node that an error of a peer names.
func nodeOf(err error) string {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.Node
	}
	return ""
}

// Partial makes the error of a call from what became of each part; nil if all is
// well. failed decides.
func Partial(errs func(int) error, total int, failed func(error) bool) error {
	var failures []Failure
	for i := range total {
		if err := errs(i); err != nil && failed(err) {
			failures = append(failures, Failure{Index: i, Node: nodeOf(err), Err: err})
		}
	}
	if failures == nil {
		return nil
	}
	return &PartialError{Total: total, Failures: failures}
}
