// Package logtest has a disk in memory that does to a log what a disk does: Disk is a
// log.Dir whose files have a page cache and a platter, and which can lose power, fail at a
// chosen call, answer late, fill up and rot. Everything that is left to chance follows
// from a seed, so a test that fails prints its seed and can be run again.
//
// What a Disk keeps apart, and what becomes of it when the power goes (Crash):
//
//	a buffered write      is in the cache; each sector of it is on the platter or not
//	File.Sync returned    everything written before it began is on the platter
//	an unfinished direct  each sector, or each page, is there or not, for itself
//	 write
//	a finished one        is on the platter (but see Options.DriveCache)
//	a name that changed   is as it was or as it is, until Dir.Sync has returned
//	a length that changed is as it was or as it is, until File.Sync has returned
//	a Sync that failed    has written some sectors; the rest is clean in the cache and
//	                      never written, and the next Sync succeeds
//
// A process that dies (Kill) loses nothing of these, but for direct writes that it had not
// finished.
package logtest
