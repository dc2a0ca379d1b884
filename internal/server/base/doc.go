// Package base is what the rooms of a node share and what rests on none of them: why a
// session ended (Cause) and which bound a peer has met (Bound), what a login uses
// (Account), counters (Counters, Histogram), a log whose lines have budgets (Log), since
// when a node runs (Clock), why it serves no more (Fence), what its end waits for
// (WaitsFor), whose the shards are (Ownership), and what is told to a client that asked
// for what is not given (Refusal).
//
// Nothing here waits, and everything may be used by several goroutines at once.
package base
