// Package parts knows which values of a store are stored in parts (layout.Head), which are
// being uploaded, and which parts nobody needs any more. It is state in memory and rules
// over it: there is no I/O here, and no goroutine.
//
//	Begin ──▶ open ──Note(head)──▶ live ──Note(another value, a delete)──▶ dying ──Due──▶ going ──Gone
//	             │                                                          ▲
//	             └── given up, or no progress for Config.Idle ──────────────┘
//	Found ─▶ found: of an earlier life; Settle makes it live or open, or Note is faster
//
// The rules:
//
//   - Nothing of an upload is taken before its record is published (Part). Otherwise a crash
//     could leave parts that no record tells of, and nobody would look for them.
//   - A head is let pass if every part is there with the sum that the head has for it (Head);
//     else it would promise bytes that nobody has.
//   - Parts go a while after their head did (Config.Keep): who has read the head reads them
//     still. They stay while a head that was let pass is on its way.
//   - A part that is published without an upload is noted, and goes (Strays): its put was on the
//     way when the upload ended.
//
// What is published is told by Note, in the order of the store's commits, before the writers
// are answered.
package parts

import "time"

// A Config bounds a Registry. Zero means the default.
type Config struct {
	// Idle is how long an upload may be without progress. Default 10 min.
	Idle time.Duration
	// Keep is how long parts stay behind their head. Default 1 min.
	Keep time.Duration
	// Most bounds the values in parts, uploads included. Default 65,536.
	Most int
	// Open and OpenBytes bound the uploads under way of one owner, and the bytes that they may come to;
	// one alone may be larger. Default 32 and 8 GiB.
	Open      int
	OpenBytes int64
	// Share is how many of Most are one owner's at most. Owner 0, which has no tenant's name, has no share; nor
	// have the values that a start has found, of which it is not known whose they are. Default a quarter.
	Share int
	// Now tells the time. Default time.Now.
	Now func() time.Time
}

const (
	defaultIdle = 10 * time.Minute
	defaultKeep = time.Minute
	defaultMost = 1 << 16
	defaultOpen = 32

	defaultOpenBytes = 8 << 30

	// headPatience is for how long the parts stay of which a head was let pass and is not
	// published yet: a write waits at most for the log, and that is fenced by then.
	headPatience = time.Hour
	// maxStrays bounds the keys that are noted as strays; beyond it the store is looked
	// through again.
	maxStrays = 4096
)

// Stats is a Registry in numbers.
type Stats struct {
	Uploads   int   `json:"uploads"`   // under way
	Values    int   `json:"values"`    // in parts
	Dying     int   `json:"dying"`     // values that were replaced, whose parts are there still
	Parts     int   `json:"parts"`     // of all of them, at most
	Bytes     int64 `json:"bytes"`     // likewise
	Collected int64 `json:"collected"` // parts that were removed because nobody needed them
}
