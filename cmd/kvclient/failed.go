package main

import (
	"fmt"
	"strings"

	"github.com/rdmakv/rdmakv/client"
)

// keysErrors is why some of the keys of a command were not done, one line for each
// reason; the other keys were. What may have happened to one key must not be hidden
// behind what happened to another.
type keysErrors []*keysError

// A keysError is some keys with one reason.
type keysError struct {
	keys [][]byte
	err  error  // of the first of them, without its key
	text string // as it is told
}

func (e keysErrors) Error() string {
	lines := make([]string, len(e))
	for i, k := range e {
		lines[i] = k.names() + ": " + k.text
	}
	return strings.Join(lines, "\n")
}

func (e keysErrors) Unwrap() []error {
	errs := make([]error, len(e))
	for i, k := range e {
		errs[i] = k.err
	}
	return errs
}

// addFailed puts a key to those that failed for the same reason.
func (a *app) addFailed(failed keysErrors, key []byte, err error) keysErrors {
	if e, ok := err.(*client.Error); ok {
		of := *e
		of.Key = "" // it stands before the reason, with the others
		err = &of
	}
	text := a.explain(err)
	for _, k := range failed {
		if k.text == text {
			k.keys = append(k.keys, key)
			return failed
		}
	}
	return append(failed, &keysError{[][]byte{key}, err, text})
}

// names lists the keys, the first ten of many.
func (e *keysError) names() string {
	const most = 10
	text := strings.Join(quoteKeys(e.keys[:min(len(e.keys), most)]), ", ")
	if n := len(e.keys) - most; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

func quoteKeys(keys [][]byte) []string {
	list := make([]string, len(keys))
	for i, key := range keys {
		list[i] = quote(key)
	}
	return list
}

// missingAnd says which keys were not there, and ends with what went wrong.
func (a *app) missingAnd(missing []error, failed error) error {
	for _, m := range missing {
		a.complain(m)
	}
	return failed
}
