// Package linear says whether the answers that clients got from a store could be
// those of a store that does one thing after the other: linearizability, decided by
// porcupine.
//
// A workload (Run) lets many workers read and write few keys through a Store,
// which is a client of the store that is tested, while the caller kills, stops and
// cuts. Every call is recorded with a stamp before and after it (Clock), its
// question and its answer (Op). The keys are gathered in objects of one to three
// keys that share a shard tag: an object is what a batch can be atomic over, and
// linearizability is a property of each object by itself, so each history is
// short. A model (step) says what an object may answer.
//
//   - An outcome that the caller does not know (ErrOutcomeUnknown) is an
//     operation that may take effect at any time after its call, or never: it
//     returns at infinity.
//   - A value that was written with a deadline (TTL) may be gone from the earliest
//     moment on at which the deadline can have come, must be gone from the latest
//     moment on, and does not come back in between (Slack).
//   - Every key of a scan's range is one read within the time of the scan, also
//     the keys that it did not show: so a key that existed throughout must
//     be there, and one that never existed must not.
//   - A checker that runs out of time (porcupine's Unknown) is a failure.
//
// Watches are judged apart (Watched): ordered, complete or with a gap that was
// announced, nothing invented.
//
// workload.go and worker.go make the calls, op.go and history.go record them, model.go
// and deadline.go say what an object may answer, check.go judges, explain.go says
// why not, watched.go judges watches, client.go and store.go are what is tested.
//
// A history that fails is saved as JSON, with porcupine's picture of it beside, and can be
// judged again: go test ./test/linear -run TestReplay -replay FILE.
package linear
