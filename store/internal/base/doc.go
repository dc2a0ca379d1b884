// Package base is the ground floor of the store: what a caller asks for and is
// told (Op, Result), the errors, the counters; the Fence, which ends everything at once,
// the Life of the goroutines in the background, and the Door of the calls from outside. It
// touches no disk and has no goroutine of its own, so that every room above it can be
// tested without one. Package store gives its public names to programs as aliases.
package base
