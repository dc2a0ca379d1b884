package load

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
)

// Bounds of what is kept of errors.
const (
	maxKinds    = 16
	maxExamples = 3
	maxExample  = 300 // bytes
	otherKind   = "other"
)

// A failures counts errors by kind.
type failures struct {
	classify func(error) string
	mu       sync.Mutex
	kinds    []ErrorKind
}

// add counts n errors like err.
func (f *failures) add(err error, n int64) {
	kind := f.classify(err)
	f.mu.Lock()
	defer f.mu.Unlock()
	find := func(k ErrorKind) bool { return k.Kind == kind }
	i := slices.IndexFunc(f.kinds, find)
	if i < 0 && len(f.kinds) >= maxKinds-1 {
		kind = otherKind
		i = slices.IndexFunc(f.kinds, find)
	}
	if i < 0 {
		i = len(f.kinds)
		f.kinds = append(f.kinds, ErrorKind{Kind: kind})
	}
	k := &f.kinds[i]
	k.Count += n
	if len(k.Examples) < maxExamples {
		text := err.Error()
		if len(text) > maxExample {
			text = strings.ToValidUTF8(text[:maxExample], "") + "…"
		}
		k.Examples = append(k.Examples, text)
	}
}

// total is how many there were.
func (f *failures) total() (n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.kinds {
		n += f.kinds[i].Count
	}
	return n
}

// list is what there was, most of all first.
func (f *failures) list() []ErrorKind {
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.SortStableFunc(f.kinds, func(a, b ErrorKind) int { return int(b.Count - a.Count) })
	return slices.Clone(f.kinds)
}

// classify is the default of Options.Classify.
func classify(err error) string {
	switch {
	case errors.Is(err, ErrWrongValue):
		return "wrong value"
	case errors.Is(err, ErrNotFound):
		return "not found"
	case errors.Is(err, ErrUnsupported):
		return "unsupported"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	return otherKind
}
