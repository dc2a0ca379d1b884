package mem

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// A Ledger counts blocks by tag and may bound their sum. The zero Ledger has no
// limit. It is safe for concurrent use, and must not be copied.
type Ledger struct {
	limit int64 // bytes; 0 or less is no limit

	mu    sync.Mutex
	total int64             // sum of tags[*].Bytes
	tags  map[string]*Usage // a tag stays listed once it was used
}

// Usage is what one tag holds.
type Usage struct {
	Tag    string
	Bytes  int64 // rounded up to whole pages, as the kernel counts
	Blocks int64 // not yet freed
}

// NewLedger makes a ledger that refuses to pass limit bytes; 0 or less means no limit.
func NewLedger(limit int64) *Ledger {
	return &Ledger{limit: limit}
}

// The memory of the process is shared by all its parts, so there is one ledger
// for it. A part that needs a budget of its own brings a ledger with
// Options.Ledger.
var process = NewLedger(0)

// Process is the ledger of all blocks that were not given another.
func Process() *Ledger { return process }

// Usage lists what every tag holds, sorted by tag.
func (l *Ledger) Usage() []Usage {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]Usage, 0, len(l.tags))
	for _, u := range l.tags {
		list = append(list, *u)
	}
	slices.SortFunc(list, func(a, b Usage) int { return strings.Compare(a.Tag, b.Tag) })
	return list
}

// Of returns what one tag holds.
func (l *Ledger) Of(tag string) Usage {
	l.mu.Lock()
	defer l.mu.Unlock()
	if u := l.tags[tag]; u != nil {
		return *u
	}
	return Usage{Tag: tag}
}

// Total is the sum over all tags in bytes.
func (l *Ledger) Total() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// take counts n bytes more, or refuses.
func (l *Ledger) take(tag string, n int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limit > 0 && n > l.limit-l.total {
		return fmt.Errorf("%w: %d bytes for %q on top of %d in use, the limit is %d",
			ErrLimit, n, tag, l.total, l.limit)
	}
	u := l.tags[tag]
	if u == nil {
		if l.tags == nil {
			l.tags = make(map[string]*Usage)
		}
		u = &Usage{Tag: tag}
		l.tags[tag] = u
	}
	u.Bytes += n
	u.Blocks++
	l.total += n
	return nil
}

// give takes back what take counted.
func (l *Ledger) give(tag string, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.tags[tag]
	if u == nil || u.Bytes < n || u.Blocks < 1 {
		panic(fmt.Sprintf("memory: ledger of %q gives back %d bytes that it does not hold (%+v)", tag, n, u))
	}
	u.Bytes -= n
	u.Blocks--
	l.total -= n
}
