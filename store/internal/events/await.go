package events

import "github.com/rdmakv/rdmakv/store/layout"

// A Waiter is a caller that waits for an event.
type Waiter struct {
	log    *Log
	prefix string
	wake   func()
}

// Forget ends the wait. wake may be being called just now.
func (e *Waiter) Forget() { e.log.Forget(e) }

// Await has wake called, once, when an event of a key with this prefix is noted; nil:
// there may be such an event behind this cursor already.
func (l *Log) Await(prefix []byte, from Cursor, wake func()) *Waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.off || from.Incarnation != l.incarnation || l.end(from.Version) < l.end(l.last) {
		return nil
	}
	e := &Waiter{log: l, prefix: string(prefix), wake: wake}
	set := l.waiters[e.prefix]
	if set == nil {
		set = make(map[*Waiter]struct{})
		l.waiters[e.prefix] = set
		l.countLengths()
	}
	set[e] = struct{}{}
	return e
}

// Forget ends a wait. wake may be being called just now.
func (l *Log) Forget(e *Waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	set := l.waiters[e.prefix]
	delete(set, e)
	if set != nil && len(set) == 0 {
		delete(l.waiters, e.prefix)
		l.countLengths()
	}
	l.asked = l.now()
}

// wake calls those that wait for a key. Caller holds mu.
func (l *Log) wake(key []byte) {
	gone := false
	for _, n := range l.lengths {
		if n > len(key) {
			break
		}
		set := l.waiters[string(key[:n])]
		if set == nil {
			continue
		}
		for e := range set {
			e.wake()
		}
		delete(l.waiters, string(key[:n]))
		gone = true
	}
	if gone {
		l.countLengths()
	}
}

// countLengths notes how long the prefixes are that are waited for: an event
// costs one look for each. Caller holds mu.
func (l *Log) countLengths() {
	var seen [layout.MaxKeyLen + 1]bool
	for p := range l.waiters {
		seen[len(p)] = true
	}
	l.lengths = l.lengths[:0]
	for n, ok := range seen {
		if ok {
			l.lengths = append(l.lengths, n)
		}
	}
}
