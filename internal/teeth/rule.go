// Package teeth lets a test take one rule of the design out and show that the
// violation it prevents is then found: a rule whose removal no test notices is
// not guarded.
//
// The package has two faces, chosen by the build tag "teeth". Without it
// (every shipped binary) Enabled and Off are constants false and At is empty,
// so that the compiler removes the wrong branch altogether. With it
//
//	go test -tags teeth ./...
//
// a test pulls a rule, runs its scenario, sees the violation, and puts the
// rule back. Where a rule is obeyed the code reads
//
//	if teeth.Off(teeth.F1PutOrder) {
//		… the wrong way, kept tiny …
//	} else {
//		… the right way …
//	}
//
// Rules and hook are the process's: tests that pull one do not run in
// parallel with others of the same binary.
//
// Each rule, its wrong way being a mutant of the program, has a line in the
// table of package mutants, which names the test that catches it. A new rule is
// added at the end of the list below, with its name, and gets its line there.
package teeth

import "fmt"

// A Rule names one rule: F1 to F32 are numbers of the design review, D4 to D7
// sections of the design.
type Rule uint8

const (
	// F1PutOrder: pending, kill the old item, swing the slot, then live.
	F1PutOrder Rule = iota + 1
	// F2VersionInSum: an item's checksum covers the version in its state word.
	F2VersionInSum
	// F3MismatchNotAbsent: a candidate with another key proves nothing by itself.
	F3MismatchNotAbsent
	// F4NoRenewal: a lease renewed during an operation does not extend it.
	F4NoRenewal
	// F5Published: nothing leaves the server before published has reached it.
	F5Published
	// F6FillVersion: a fill or promotion never overwrites a newer write.
	F6FillVersion
	// F7CountSlotless: keys without a slot are counted, a miss there asks.
	F7CountSlotless
	// F8HeaderCheck: every bucket header is compared with the key's own hash.
	F8HeaderCheck
	// F9ReclaimList: cached places in retired pages are dropped before a
	// lease with a higher reclaim version is used.
	F9ReclaimList
	// F15CopyOnce: a software responder copies once, by aligned 8-byte loads.
	F15CopyOnce
	// F38Ledger: files are compared with the store's own ledger at Open.
	F38Ledger
	// F12ServerDecides: the server's time, never the client's clock, says what has expired.
	F12ServerDecides
	// F12TwoBeats: a beat bounds the time of a READ only if another one came in between.
	F12TwoBeats
	// F12LowBefore: an item has expired if that was known before its READ was posted.
	F12LowBefore
	// F31SameID: a retry of a write carries the id of its first sending.
	F31SameID
	// F31UnknownStays: what may have been applied is never reported as failed.
	F31UnknownStays
	// D4Checksum: an item is believed only if its checksum holds.
	D4Checksum
	// F5OrderedState: conditions are judged on ordered state, writes in flight included.
	F5OrderedState
	// F5RefusalInOrder: a refusal is told when what it was judged against is published.
	F5RefusalInOrder
	// F12DurableTime: the server's time begins behind every time shown before.
	F12DurableTime
	// F12ExpiredAbsent: what has expired by the server's time is absent.
	F12ExpiredAbsent
	// F12HideTouched: a key on whose life a write in flight depends is not readable.
	F12HideTouched
	// F13BatchOrder: a batch kills all old items before its first new one is live.
	F13BatchOrder
	// F31RecordInBatch: the record of a request is in the Pebble batch of its write.
	F31RecordInBatch
	// F31RetryAge: a request too old to be remembered is not applied.
	F31RetryAge
	// D4EvictKills: an evicted item is killed before its slot says so.
	D4EvictKills
	// D4PairOnce: a value comes back to no place where it stood less than a lease ago.
	D4PairOnce
	// D4TwinLease: of two Pebble-only slots that say the same, one goes a lease later.
	D4TwinLease
	// D5EvictIdle: nothing is evicted while a write of it is in flight.
	D5EvictIdle
	// F6Promotion: a promotion never wins over a write ordered since it was read.
	F6Promotion
	// F7TakeOver: a Pebble-only slot is no key's own, whatever its bits.
	F7TakeOver
	// F7DropCounted: a key is counted before its slot is dropped.
	F7DropCounted
	// F7DropLease: a slot is dropped a lease after its key was counted.
	F7DropLease
	// F6EvictFill: a fill does not bring back what was evicted since its snapshot.
	F6EvictFill
	// F5WatchPublished: a watch is told of a write when it is published.
	F5WatchPublished
	// D5WatchSkipped: a watch that may have missed events is told so.
	D5WatchSkipped
	// D5WatchBatch: a watch is told where a batch goes on.
	D5WatchBatch
	// F12SteadyTime: the server's time follows the monotonic clock, whatever the wall clock does.
	F12SteadyTime
	// F12CrashesAdd: the bound of the server's time is at most 6 s ahead of the wall clock.
	F12CrashesAdd
	// F7SweepReads: a Pebble-only slot is cleared only if no key in Pebble may be its own.
	F7SweepReads
	// F7SweepTold: nor one that was written since that was looked at.
	F7SweepTold
	// F7SweepFlight: nor one of which a write was in flight then.
	F7SweepFlight
	// F7SweepEnds: a pass has met every key only if nothing kept it from reading on.
	F7SweepEnds
	// F2PartVersions: each part of a batch has a version of its own.
	F2PartVersions
	// D7RightsAfterHello: a connection reads nothing before its client has proved the secret.
	D7RightsAfterHello
	// D7ValueChecksum: what was READ from a client is what it announced.
	D7ValueChecksum
	// D7CreditsCounted: a client that sends more than it has credits is cut off.
	D7CreditsCounted
	// D5SyncFirst: a write is published, and acknowledged, after its fsync.
	D5SyncFirst
	// D5AckDurable: a write is acknowledged after its fsync.
	D5AckDurable
	// F6Repair: a repair never wins over a write that was ordered since its read.
	F6Repair
	// D5ScrubTrusts: memory is repaired if it is damaged, not because a client says so.
	D5ScrubTrusts
	// D5RepairFromMemory: a damaged item is repaired from Pebble.
	D5RepairFromMemory
	// F5Backup: a backup holds nothing that is not published when it is handed out.
	F5Backup
	// D4DirectoryDepth: a bucket's depth must be the directory's.
	D4DirectoryDepth
	// D4OldSegment: the slots of a marked segment count only under a fresh directory.
	D4OldSegment
	// D4ProofSlot: the proof of absence looks at the slot twice.
	D4ProofSlot
	// D4ProofItem: the proof of absence looks at the item twice.
	D4ProofItem
	// D4ProofUnmarked: the second look at a slot is under unmarked headers.
	D4ProofUnmarked
	// D4KeyEqual: an item answers for its own key only.
	D4KeyEqual
	// D4OnlyLive: pending, dead and held items are no answer.
	D4OnlyLive
	// D4ChunkSum: each chunk of a large value is verified.
	D4ChunkSum
	// D4PlaceInSum: an item's checksum covers its place.
	D4PlaceInSum
	// D4IncarnationInSum: an item's checksum covers the incarnation.
	D4IncarnationInSum
	// D4GrowthMarks: growth marks the old segment before the new one changes.
	D4GrowthMarks
	// F7PebbleSlot: a Pebble-only slot with the fingerprint means: ask.
	F7PebbleSlot
	// F7CountRead: a miss where keys are counted means: ask.
	F7CountRead
	// D6ReuseWaits: retired memory rests for a lease.
	D6ReuseWaits
	// D6StampAfter: the lease to wait for begins after the retirement.
	D6StampAfter
	// D6RetiredListed: retired pages of items are listed before they rest.
	D6RetiredListed
	// D6HigherCounter: a lease is proved by a higher counter.
	D6HigherCounter
	// D6LeaseFromFirst: a lease runs from the READ of the lower counter.
	D6LeaseFromFirst
	// D6FencedBeat: a fenced server does not beat.
	D6FencedBeat
	// F14PredecessorWait: nothing is acknowledged within the predecessor's leases.
	F14PredecessorWait
	// F11HeldState: an overwritten item that is held can still be verified.
	F11HeldState
	// F11HeldPlace: the place of a held item is not used again.
	F11HeldPlace
	// F6FillFlight: a shard is filled when what was in flight is published.
	F6FillFlight
	// F14MarkSpent: a clean-stop mark counts for one start.
	F14MarkSpent
	// F14MarkWaits: a clean stop outlasts the predecessor's leases.
	F14MarkWaits
	// D4EpochRaised: each opening has versions of its own.
	D4EpochRaised
	// F31InFlight: a retry of what is in flight waits for it.
	F31InFlight
	// D4DeleteKills: a delete kills the item.
	D4DeleteKills
	// F7ShownLater: counts are shown a lease after the fill.
	F7ShownLater
	// F7CountSticks: a full count stays.
	F7CountSticks
	// D6ReclaimAtOnce: the reclaim version is in the beat at the retirement.
	D6ReclaimAtOnce
	// D6OldKeysRest: an old registration stays for a lease.
	D6OldKeysRest
	// D6SessionsSpeak: an old registration stays until every session is past it.
	D6SessionsSpeak
	// D6ReadsEndFirst: a client says so when its READs by the old table have ended.
	D6ReadsEndFirst
	// F16OwnPD: a space has a protection domain of its own.
	F16OwnPD
	// D8OwnedOnly: a node answers for the shards that its map gives it.
	D8OwnedOnly
	// D8Withheld: nobody believes a miss in a shard of another node.
	D8Withheld
	// D8OnePromise: a node that has promised a map promises no other.
	D8OnePromise
	// D7SealChecked: a message whose seal is wrong is not believed.
	D7SealChecked
	// F6BatchTold: a probe is told of the parts of batches as of single writes.
	F6BatchTold
	// F6FillSlotless: a fill does not win over a put that went without a slot.
	F6FillSlotless
	// D4RememberedRoot: a directory page is READ with the root word that leads to it.
	D4RememberedRoot
	// F7CountStays: a count of keys without slot is not lowered under a reader's eyes.
	F7CountStays
	// F12HideChain: of a key on whose life a write in flight depends, every older write in flight is hidden.
	F12HideChain
	// F12FillFlight: a fill links no key of which a write is in flight.
	F12FillFlight
	// D5PublishInOrder: the committer publishes only what the publisher is not behind with.
	D5PublishInOrder
	// D5WatchNoGap: who begins to wait for events is told of those that came since he looked.
	D5WatchNoGap
	// D5WatchWakes: each event wakes those who wait for its key.
	D5WatchWakes
	// D5WatchParks: a watch waits only if the store is going to wake it.
	D5WatchParks
	// F31BatchOfPuts: a put of a MultiPut that is sent again carries the id of its first sending.
	F31BatchOfPuts
	// F4ChunkLease: each window of a large value counts only under the lease of its own READs.
	F4ChunkLease
	// D6RegionWord: a copy out of a mapped region counts if the region's word is the same behind it.
	D6RegionWord
	// D6RefusedInTurn: a READ that is refused waits for the answers to those before it.
	D6RefusedInTurn
	// D6LockUnmapped: a process lets go of readers.lock when it has unmapped everything.
	D6LockUnmapped
	// D6RightsWhenServed: a READ needs the peer's rights when it is served, not only when it arrives.
	D6RightsWhenServed
	// D7ReadDepth: a peer has as many READs waiting as were agreed on.
	D7ReadDepth
	// D7RecordFilled: a record of a ring ends within what the peer has filled.
	D7RecordFilled
	// D7StagedUntilDone: staging memory stays a put's own until the store is done with it.
	D7StagedUntilDone
	// D8YoungerEnds: of two processes of one node the younger ends, whenever they meet.
	D8YoungerEnds
	// D5OrderEnds: a write that does not settle is refused.
	D5OrderEnds
	// F13ScanEnds: a page of a scan ends at what is of a later moment.
	F13ScanEnds
	// D8AliveAtOnce: two lives of a node are two at once only if one answers before and after the other.
	D8AliveAtOnce
	// D8RefusalStays: a directory that must not be served is refused at the next start too.
	D8RefusalStays

	numRules
)

var ruleNames = [numRules]string{
	F1PutOrder:          "F1 put order",
	F2VersionInSum:      "F2 version in checksum",
	F3MismatchNotAbsent: "F3 mismatch is not absence",
	F4NoRenewal:         "F4 no renewal extends an operation",
	F5Published:         "F5 nothing said before published",
	F6FillVersion:       "F6 fill carries its version",
	F7CountSlotless:     "F7 keys without slot are counted",
	F8HeaderCheck:       "F8 header checked against the key's hash",
	F9ReclaimList:       "F9 reclaim list before a new lease",
	F15CopyOnce:         "F15 copy once, by words",
	F38Ledger:           "F38 ledger compared at open",
	F12ServerDecides:    "F12 server decides expiry",
	F12TwoBeats:         "F12 bound by the second beat",
	F12LowBefore:        "F12 expired before the READ",
	F31SameID:           "F31 retry under the same id",
	F31UnknownStays:     "F31 unknown is not failed",
	D4Checksum:          "D4 checksum holds",
	F5OrderedState:      "F5 conditions on ordered state",
	F5RefusalInOrder:    "F5 refusal told in order",
	F12DurableTime:      "F12 time goes on after a restart",
	F12ExpiredAbsent:    "F12 expired is absent",
	F12HideTouched:      "F12 touched keys do not expire meanwhile",
	F13BatchOrder:       "F13 batch order",
	F31RecordInBatch:    "F31 record in the same batch",
	F31RetryAge:         "F31 old requests are not applied",
	D4EvictKills:        "D4 eviction kills first",
	D4PairOnce:          "D4 place and version once",
	D4TwinLease:         "D4 twin slot goes a lease later",
	D5EvictIdle:         "D5 no eviction under a write",
	F6Promotion:         "F6 promotion under a probe",
	F7TakeOver:          "F7 no slot is taken over",
	F7DropCounted:       "F7 counted before dropped",
	F7DropLease:         "F7 dropped a lease later",
	F6EvictFill:         "F6 fill knows of evictions",
	F5WatchPublished:    "F5 events told after publishing",
	D5WatchSkipped:      "D5 missed events are admitted",
	D5WatchBatch:        "D5 batches of events are marked",
	F12SteadyTime:       "F12 time does not jump",
	F12CrashesAdd:       "F12 crashes do not add up",
	F7SweepReads:        "F7 a swept slot has no key",
	F7SweepEnds:         "F7 a pass reads to the end",
	F7SweepTold:         "F7 nor one written since",
	F7SweepFlight:       "F7 nor one with a write in flight",
	F2PartVersions:      "F2 versions of parts",
	D7RightsAfterHello:  "D7 no rights before Hello",
	D7ValueChecksum:     "F10 checksum of what was READ",
	D7CreditsCounted:    "D7 credits are counted",
	D5SyncFirst:         "D5 publish after fsync",
	D5AckDurable:        "D5 acknowledge after fsync",
	F6Repair:            "F6 repair gives way to newer writes",
	D5ScrubTrusts:       "D5 repair only what the server saw",
	D5RepairFromMemory:  "D5 repair from disk",
	F5Backup:            "F5 backup after published",
	D4DirectoryDepth:    "D4 depth by the directory",
	D4OldSegment:        "D4 no way through old segments",
	D4ProofSlot:         "D4 proof: the slot again",
	D4ProofItem:         "D4 proof: the item again",
	D4ProofUnmarked:     "D4 proof: headers unmarked",
	D4KeyEqual:          "D4 the key is equal",
	D4OnlyLive:          "D4 only live items",
	D4ChunkSum:          "D4 checksum of chunks",
	D4PlaceInSum:        "D4 place in checksum",
	D4IncarnationInSum:  "D4 incarnation in checksum",
	D4GrowthMarks:       "D4 growth marks first",
	F7PebbleSlot:        "F7 a Pebble-only slot asks",
	F7CountRead:         "F7 counts are read",
	D6ReuseWaits:        "D6 retired memory rests",
	D6StampAfter:        "D6 the wait begins afterwards",
	D6RetiredListed:     "D6 retired pages are listed",
	D6HigherCounter:     "D6 a higher counter renews",
	D6LeaseFromFirst:    "D6 a lease from the first post",
	D6FencedBeat:        "D6 no beat once fenced",
	F14PredecessorWait:  "F14 the predecessor's leases",
	F11HeldState:        "F11 held items verify",
	F11HeldPlace:        "F11 held places stay",
	F6FillFlight:        "F6 fill waits for writes in flight",
	F14MarkSpent:        "F14 clean-stop mark is spent",
	F14MarkWaits:        "F14 clean stop outlasts leases",
	D4EpochRaised:       "D4 an epoch for each opening",
	F31InFlight:         "F31 retry in flight",
	D4DeleteKills:       "D4 a delete kills the item",
	F7ShownLater:        "F7 counts shown a lease later",
	F7CountSticks:       "F7 a full count stays",
	D6ReclaimAtOnce:     "D6 reclaim version at once",
	D6OldKeysRest:       "D6 old rkeys rest",
	D6SessionsSpeak:     "D6 old rkeys outlive their sessions",
	D6ReadsEndFirst:     "D6 old READs end first",
	F16OwnPD:            "F16 a PD for each space",
	D8OwnedOnly:         "D8 own shards only",
	D8Withheld:          "D8 shards of others are withheld",
	D8OnePromise:        "D8 one promise at a time",
	D7SealChecked:       "D7 seals are checked",
	F6BatchTold:         "F6 probes are told of batches",
	F6FillSlotless:      "F6 fill knows of puts without slot",
	D4RememberedRoot:    "D4 page and root together",
	F7CountStays:        "F7 counts are not lowered in place",
	F12HideChain:        "F12 all writes in flight are hidden",
	F12FillFlight:       "F12 fill gives way to writes in flight",
	D5PublishInOrder:    "D5 one after the other is published",
	D5WatchNoGap:        "D5 no event between a look and a wait",
	D5WatchWakes:        "D5 each event wakes who waits for it",
	D5WatchParks:        "D5 a watch waits for a waking only",
	F31BatchOfPuts:      "F31 pairs are sent again under their ids",
	F4ChunkLease:        "F4 lease for every chunk",
	D6RegionWord:        "D6 region word after the copy",
	D6RefusedInTurn:     "D6 refusals in turn",
	D6LockUnmapped:      "D6 readers.lock after unmapping",
	D6RightsWhenServed:  "D6 rights when a READ is served",
	D7ReadDepth:         "D7 READs that wait are bounded",
	D7RecordFilled:      "D7 records within what is filled",
	D7StagedUntilDone:   "D7 staging memory until the put is done",
	D8YoungerEnds:       "D8 the younger of two ends",
	D5OrderEnds:         "D5 ordering ends",
	F13ScanEnds:         "F13 a page ends at what is later",
	D8AliveAtOnce:       "D8 two lives at once",
	D8RefusalStays:      "D8 a refusal outlives its proof",
}

// String names the rule for test output.
func (r Rule) String() string {
	if r > 0 && r < numRules {
		return ruleNames[r]
	}
	return fmt.Sprintf("Rule(%d)", uint8(r))
}
