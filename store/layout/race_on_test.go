//go:build race

package layout

// raceDetector: everything takes ten times as long, so do less of it.
const raceDetector = true
