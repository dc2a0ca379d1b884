//go:build !race

package store

import "time"

// underRace: the race detector makes a test some twenty times slower.
const underRace = false

// testPatience is how long tests wait for what must come.
const testPatience = time.Minute
