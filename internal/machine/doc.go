// Package machine is about the machine under a process: the processors that its threads run
// on, the NUMA nodes that there are, how much memory and how many open files it may use.
//
// Processors and nodes are asked of the kernel and checked before they are set: the kernel
// silently leaves out processors that do not exist, and a process that runs elsewhere than
// it was told is hard to find.
package machine

import (
	"errors"
	"strconv"
	"strings"
)

// Errors that the functions wrap; the text has what there is instead.
var (
	// ErrNoCPU: a processor does not exist or may not be used.
	ErrNoCPU = errors.New("machine: no such processor for this process")
	// ErrNoNode: a NUMA node does not exist or has no memory.
	ErrNoNode = errors.New("machine: no such NUMA node")
	// ErrNotSupported: this operating system cannot do it.
	ErrNotSupported = errors.New("machine: not supported here")
)

// ranges writes sorted numbers as the kernel does: 0-3,8.
func ranges(list []int) string {
	var b []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		text := strconv.Itoa(list[i])
		if j > i {
			text += "-" + strconv.Itoa(list[j])
		}
		b = append(b, text)
		i = j + 1
	}
	return strings.Join(b, ",")
}

// maxNumber bounds what is read from the kernel's lists.
const maxNumber = 1 << 16

// parseRanges reads what ranges writes; ok is false for anything else.
func parseRanges(text string) (list []int, ok bool) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, true
	}
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		last := first
		if err == nil && isRange {
			last, err = strconv.Atoi(to)
		}
		if err != nil || first < 0 || last < first || last > maxNumber {
			return nil, false
		}
		for n := first; n <= last; n++ {
			list = append(list, n)
		}
	}
	return list, true
}
