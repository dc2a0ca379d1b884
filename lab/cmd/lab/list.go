package main

import (
	"fmt"
	"strings"
)

// longMark is the line between the two lists of lab/tests.list.
const longMark = "long:"

// readLists reads packages and flags, as in lab/tests.list: what runs at each
// change, and behind the line "long:" what runs when there is time. Each line is
// split into words.
func readLists(list []byte) (short, long [][]string, err error) {
	to := &short
	for line := range strings.Lines(string(list)) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case words[0] == longMark && to == &short && len(words) == 1:
			to = &long
		case words[0] == longMark:
			return nil, nil, fmt.Errorf("%q: the line %q stands once and alone", strings.TrimSpace(line), longMark)
		default:
			*to = append(*to, words)
		}
	}
	return short, long, nil
}
