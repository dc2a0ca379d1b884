//go:build !race

package verbs_test

// raceEnabled: the race detector makes sync.Pool forget.
const raceEnabled = false
