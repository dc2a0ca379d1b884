// Package base is the ground floor of the store: what a caller asks for and is
// told (Op, Result), the errors, the Fence, and the counters. It starts no
// goroutine and touches no disk, so that every room above it can be tested
// without one. Package store gives its public names to programs as aliases.
package base
