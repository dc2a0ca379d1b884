package main

import "github.com/rdmakv/rdmakv/internal/teeth"

// A mutant is the program with one rule broken, and the test that catches it.
type mutant struct {
	rule teeth.Rule
	// broken says in a few words what the program does instead.
	broken string
	// dir is the directory of the package of the test, name the test: one that
	// pulls the rule itself (in a file with the build tag teeth) and wants the
	// violation to be found, or any other, which has to fail when the rule is
	// out.
	dir, name string
}

// mutants has at least one line for each rule. New lines go to the end, and are
// sorted for readers.
var mutants = []mutant{
	{teeth.F1PutOrder, "the new item is live before the old one is dead", "store", "TestF1PutOrder"},
	{teeth.F1PutOrder, "the same, for an insert", "store", "TestF1Insert"},
	{teeth.F1PutOrder, "the same, found by the simulation", "test/sim", "TestFindsPutOrder"},
	{teeth.F2VersionInSum, "the checksum leaves the version out", "store/layout", "TestTeethF2Scene"},
	{teeth.F2VersionInSum, "the same, found by the model alone", "store/layout", "TestTeethF2Model"},
	{teeth.F3MismatchNotAbsent, "an item with another key proves absence", "store/layout", "TestTeethF3Scene"},
	{teeth.F3MismatchNotAbsent, "the same, found by the model alone", "store/layout", "TestTeethF3Model"},
	{teeth.F3MismatchNotAbsent, "the same, found by the simulation", "test/sim", "TestFindsMismatch"},
	{teeth.F4NoRenewal, "a lease renewed meanwhile counts for a get", "client", "TestTeethF4NoRenewal"},
	{teeth.F5Published, "answers do not wait for what they reflect", "store", "TestF5Published"},
	{teeth.F6FillVersion, "a fill brings in what its snapshot says", "store", "TestF6Delete"},
	{teeth.F6FillVersion, "the same, for a put", "store", "TestF6Put"},
	{teeth.F6FillVersion, "the same, while the write is in flight", "store", "TestF6Unpublished"},
	{teeth.F7CountSlotless, "keys without slot are not counted", "store", "TestF7NoMemory"},
	{teeth.F7CountSlotless, "the same, when a slot is dropped", "store", "TestF7SlotDropped"},
	{teeth.F7CountSlotless, "the same, found by the simulation", "test/sim", "TestFindsSlotless"},
	{teeth.F8HeaderCheck, "headers are not compared with the key's hash", "store/layout", "TestTeethF8Scene"},
	{teeth.F8HeaderCheck, "the same, found by the model alone", "store/layout", "TestTeethF8Model"},
	{teeth.F9ReclaimList, "a page changes class at once, its checksums kept", "store/slab", "TestF9HasTeeth"},
	{teeth.F9ReclaimList, "places in retired pages are remembered", "client", "TestTeethF9ReclaimList"},
	{teeth.F15CopyOnce, "a responder copies once for the checksum, once for the wire", "rdma/iwarp", "TestCopyOnce"},
	{teeth.F15CopyOnce, "a word is put together from two loads", "rdma/sim", "TestHalfWords"},
	{teeth.F5WatchPublished, "events are told when they are committed", "store", "TestWatchPublished"},
	{teeth.D5WatchSkipped, "a watch that fell behind goes on in silence", "store", "TestWatchRing"},
	{teeth.D5WatchBatch, "events of a batch look like single ones", "store", "TestWatchBatch"},
	{teeth.F12ServerDecides, "a client goes by its own clock", "client", "TestExpiryByTheServersTime"},
	{teeth.F12TwoBeats, "the next beat is taken for a bound", "client", "TestBeatReadLongBeforeItIsWritten"},
	{teeth.F12LowBefore, "an expiry that passes during a get makes it absent", "client", "TestExpiryPassesDuringTheGet"},
	{teeth.F31SameID, "a retry is a new request", "client", "TestIncrementsCountOnce"},
	{teeth.F31SameID, "the same, between processes that are killed and cut off", "test/linear", "TestProcesses"},
	{teeth.F31UnknownStays, "a put that may have been done is reported as failed", "client", "TestUnknownIsNotFailed"},
	{teeth.F5OrderedState, "conditions are judged on what is published", "store", "TestIncrementsPipelined"},
	{teeth.F5RefusalInOrder, "a refusal is told at once", "store", "TestRefusalWaits"},
	{teeth.F12DurableTime, "after a restart the time is that of the wall clock", "store", "TestExpiredStaysExpired"},
	{teeth.F12ExpiredAbsent, "an expired key is there until it is removed", "store", "TestExpiry"},
	{teeth.F12HideTouched, "a touched key can expire before the touch is published", "store", "TestTouchHides"},
	{teeth.F13BatchOrder, "a batch goes live key by key", "store", "TestF13BatchOrder"},
	{teeth.F31RecordInBatch, "the result of a request is kept in memory only", "store", "TestRetries"},
	{teeth.F31RetryAge, "what is unknown is taken for new", "store", "TestResultsForgotten"},
	{teeth.F12SteadyTime, "the server's time is the wall clock's", "store", "TestClockSlews"},
	{teeth.F2PartVersions, "the parts of a batch share one version", "store", "TestBatch"},
	{teeth.D4Checksum, "an item is believed although its checksum is wrong", "client", "TestDamageIsReported"},
	{teeth.D7RightsAfterHello, "a connection can READ from the start", "internal/server", "TestReadBeforeHello"},
	{teeth.D7ValueChecksum, "a value READ from a client is not compared", "internal/server", "TestLargeBatch"},
	{teeth.D7CreditsCounted, "requests without a credit are taken", "internal/server", "TestOverrunOpenSession"},
	{teeth.D4EvictKills, "an evicted item stays readable", "store", "TestEvictedItemIsDead"},
	{teeth.D4PairOnce, "a value comes back at once to the place where it stood", "store", "TestPairOnce"},
	{teeth.D4TwinLease, "one of two equal Pebble-only slots goes at once", "store", "TestTwinGoesALeaseLater"},
	{teeth.D5EvictIdle, "a cache evicts a key under a judged write", "store", "TestNoEvictionUnderAWrite"},
	{teeth.F6Promotion, "a promotion overwrites what was put since it was read", "store", "TestF6Promotion"},
	{teeth.F7TakeOver, "a put takes over a Pebble-only slot with its fingerprint", "store", "TestTwinsKeepTheirSlots"},
	{teeth.F7DropCounted, "a slot is dropped and its key not counted", "store", "TestDropCounted"},
	{teeth.F7DropLease, "a slot goes as soon as its key is counted", "store", "TestDropCounted"},
	{teeth.F6EvictFill, "a fill brings back what was evicted since its snapshot", "store", "TestF6EvictFill"},
	{teeth.F38Ledger, "files are not compared with the ledger", "store", "TestEveryByteFlipped"},
	{teeth.D5SyncFirst, "readers see a write before its fsync", "store", "TestCrashAtEveryCall"},
	{teeth.D5AckDurable, "a write is acknowledged before its fsync", "store", "TestCrashAtEveryCall"},
	{teeth.F6Repair, "a repair brings back what it read before a newer write", "store", "TestF6Repair"},
	{teeth.D5ScrubTrusts, "an item is moved because a client calls it damaged", "store", "TestDamageReports"},
	{teeth.D5RepairFromMemory, "a damaged item is its own repair", "store", "TestScrub"},
	{teeth.F5Backup, "a backup is handed out before what it holds is published", "store", "TestBackupIsPublished"},
	{teeth.D4DirectoryDepth, "a segment of another depth passes for the key's", "store/layout", "TestLookupComparesDepth"},
	{teeth.D4OldSegment, "slots of a segment retired long ago are followed", "store/layout", "TestLookupLeavesOldSegments"},
	{teeth.D4ProofSlot, "the proof does not compare the slot again", "store/layout", "TestModel"},
	{teeth.D4ProofItem, "the proof does not compare the item again", "store/layout", "TestLookupProof"},
	{teeth.D4ProofUnmarked, "the second look at a slot takes marked headers", "store/layout", "TestLookupProofNeedsUnmarkedHeaders"},
	{teeth.D4KeyEqual, "an item with the fingerprint is the answer", "store/layout", "TestModel"},
	{teeth.D4OnlyLive, "pending and dead items are believed", "store/layout", "TestModel"},
	{teeth.D4ChunkSum, "chunks of large values are not verified", "store/layout", "TestForcedChunkTears"},
	{teeth.D4PlaceInSum, "the checksum leaves the place out", "store/layout", "TestItemBinding"},
	{teeth.D4IncarnationInSum, "the checksum leaves the incarnation out", "store/layout", "TestItemBinding"},
	{teeth.D4GrowthMarks, "growth does not mark the old segment", "store/index", "TestOrderOfStores"},
	{teeth.F7PebbleSlot, "a Pebble-only slot proves absence", "store/layout", "TestLookupAsks"},
	{teeth.F7CountRead, "a miss proves absence whatever the count is", "store/layout", "TestLookupAsks"},
	{teeth.D6ReuseWaits, "retired memory is used again at once", "store/reclaim", "TestWhenItIsFreed"},
	{teeth.D6StampAfter, "the wait is counted from a clock read before", "store/reclaim", "TestDelayedTicker"},
	{teeth.D6RetiredListed, "retired pages are not listed", "store/reclaim", "TestListing"},
	{teeth.D6HigherCounter, "an equal counter renews a lease", "client", "TestLeaseFromBeats"},
	{teeth.D6LeaseFromFirst, "a lease runs from the READ that proved it", "client", "TestLeaseFromBeats"},
	{teeth.D6FencedBeat, "a fenced server beats on", "internal/server", "TestNoBeatOnceFenced"},
	{teeth.F14PredecessorWait, "a new incarnation does not wait", "store", "TestPredecessorWait"},
	{teeth.F11HeldState, "an item that is held dies when it is overwritten", "store", "TestHold"},
	{teeth.F11HeldPlace, "the place of a held item is used again", "store", "TestHeldStays"},
	{teeth.F6FillFlight, "misses are believed while writes are in flight", "store", "TestFillWaitsForFlight"},
	{teeth.F14MarkSpent, "the clean-stop mark is left in place", "store", "TestCleanMarkIsSpent"},
	{teeth.F14MarkWaits, "a clean stop does not wait for the leases of a killed predecessor", "store", "TestCleanStopOutlastsPredecessor"},
	{teeth.D4EpochRaised, "versions are given out again after a crash", "store", "TestVersionsAfterCrash"},
	{teeth.F31InFlight, "only results that are there are remembered", "store", "TestRetryInFlight"},
	{teeth.D4DeleteKills, "a delete clears the slot and leaves the item alive", "store", "TestConcurrent"},
	{teeth.F7ShownLater, "counts are shown at once after the fill", "store/index", "TestFilledIsShownALeaseLater"},
	{teeth.F7CountSticks, "a count of keys without slot runs over", "store/index", "TestCountSticks"},
	{teeth.D6ReclaimAtOnce, "the reclaim version is raised at the next beat", "store/region", "TestRetiredIsListedBeforeItIsSaid"},
	{teeth.D6SessionsSpeak, "an old rkey goes although a session may use it", "internal/server", "TestRotation"},
	{teeth.D6SessionsSpeak, "the same, found by the simulation", "test/sim", "TestFindsOldKeys"},
	{teeth.D6OldKeysRest, "an old rkey goes before a lease is over", "internal/server", "TestOldKeysRest"},
	{teeth.D6ReadsEndFirst, "a client takes the new table for its word that the old one is out of use", "client", "TestReadsEndFirst"},
	{teeth.D8OwnedOnly, "a node answers for keys of other nodes", "internal/server", "TestMapBirth"},
	{teeth.D8Withheld, "misses in shards of other nodes are believed", "store", "TestWithheld"},
	{teeth.D8OnePromise, "a node promises a second map beside the first", "internal/shardmap", "TestSteps"},
	{teeth.F16OwnPD, "spaces have regions of their own in one protection domain", "internal/server", "TestSpaceAccess"},
}

// slow are tests that take a minute and more. They run with -seconds only; each
// of their rules has a line with a quick test.
var slow = map[string]bool{"TestProcesses": true, "TestServerTimeBounds": true}
