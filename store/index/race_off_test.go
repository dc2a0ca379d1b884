//go:build !race

package index

// scale divides the work of tests that run on one goroutine (see race_on_test.go).
const scale = 1
