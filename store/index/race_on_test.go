//go:build race

package index

// scale divides the work of tests that run on one goroutine: the race detector
// can find nothing there and makes them many times slower.
const scale = 8
