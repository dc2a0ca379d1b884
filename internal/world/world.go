// Package world is what a client may be given in place of the machine: its clock of leases, and
// where its registered memory comes from. A simulation, where time is not the machine's, and
// tests under the race detector hand one to client.Dial by its context. The package is internal,
// so that only this module can do so.
package world

import "context"

// A World stands in for the machine. The zero value is the machine itself.
type World struct {
	// Now is the clock of leases: nanoseconds that never go back and count the time that a
	// machine sleeps; its rate may be 1 % off. Any goroutine may call it at any time. If it is
	// nil, the clock is CLOCK_BOOTTIME.
	Now func() int64
	// Heap takes registered memory from the Go heap instead of mmap, so that the race
	// detector sees what a software fabric does with it. Hardware must not be given
	// such memory.
	Heap bool
}

// key is the context's.
type key struct{}

// With returns a context in which client.Dial finds w. The client keeps w until it is closed;
// other uses of the context do not change.
func With(ctx context.Context, w World) context.Context {
	return context.WithValue(ctx, key{}, w)
}

// From returns the world of ctx, the machine if With gave it none.
func From(ctx context.Context) World {
	w, _ := ctx.Value(key{}).(World)
	return w
}
