//go:build !race

package store

import (
	"time"

	"github.com/rdmakv/rdmakv/internal/teeth"
)

// underRace: the race detector makes a test some twenty times slower.
const underRace = false

// testPatience is how long tests wait for what must come.
var testPatience = teeth.Patience(time.Minute)
