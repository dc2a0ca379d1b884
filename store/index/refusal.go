package index

import "fmt"

// A Refusal is why Room last said no. A put takes no for an answer; a fill,
// which is in no hurry, rather waits where waiting helps.
type Refusal uint8

const (
	// NotRefused: Room has not said no yet.
	NotRefused Refusal = iota
	// Waiting: too much retired index memory rests, which is free a lease from
	// now; or memory is being registered. Then the segment grows.
	Waiting
	// NoMemory: the limit is reached.
	NoMemory
	// NoParting: no growth makes room for these keys, or one of them has no
	// hash.
	NoParting
)

// String names the refusal for logs and counters.
func (r Refusal) String() string {
	switch r {
	case NotRefused:
		return "not refused"
	case Waiting:
		return "waiting for memory"
	case NoMemory:
		return "no memory"
	case NoParting:
		return "no growth parts the keys"
	}
	return fmt.Sprintf("Refusal(%d)", uint8(r))
}

// Refusal returns why Room last said no.
func (ix *Index) Refusal() Refusal { return ix.refusal }

// refuse notes why, for Refusal.
func (ix *Index) refuse(why Refusal) bool {
	ix.refusal = why
	return false
}
