//go:build !race

package layout

// raceDetector: not in this build.
const raceDetector = false
