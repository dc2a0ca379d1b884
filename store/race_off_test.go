//go:build !race

package store

// underRace: the race detector makes a test some twenty times slower.
const underRace = false
