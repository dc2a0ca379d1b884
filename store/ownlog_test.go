package store

// pebbleLog are the tests that hold for stores with Pebble's log alone, as they are written
// now: those of its files, those that stop its syncs, and those that count what is in Pebble
// right behind a write.
var pebbleLog = []string{
	// Pebble shows what is not published; the base does not: TestBackupHasPublished.
	"^TestBackupIsPublished$",
	"^TestHeartbeat$", // counts records in Pebble; TestReachNoted
	"^TestLogBound$",  // of Pebble's log; TestOwnLogBound
	// Of Pebble's files: TestLogFlip.
	"^TestWALFlip$",
}
