package layout

// A bug is a mistake planted into the model's writer: what the design's order
// of steps and its leases are there to prevent. The reader is as it is; each
// must make it give a wrong answer, or the rule would not be needed.
type bug uint8

const (
	bugNone            bug = iota
	bugKillLast            // put: the new item lives before the old one is dead
	bugLiveFirst           // put: … before the slot leads to it
	bugSlotBeforeDeath     // delete: the slot goes before the item
	bugNoMark              // growth does not mark the old headers
	bugReuseAtOnce         // index memory is reused without a lease
	bugDropAtOnce          // a slot is dropped as soon as the count is raised
	bugShownAtOnce         // the counts of a filled shard are shown at once
	bugAckBeforeCount      // a put without slot is acknowledged before it is counted
	bugVersionTwice        // an item gets the version of the one before it at its place,
	// as two shards with sequence numbers of their own may give it
	numBugs
)

var bugNames = [numBugs]string{
	"none", "kill last", "live first", "slot before death", "no mark", "reuse at once",
	"drop at once", "shown at once", "ack before count", "version twice",
}

func (b bug) String() string { return bugNames[b] }

// leaseUnless lets a lease pass that begins now, but not under the given bug.
func (w *world) leaseUnless(b bug) {
	if w.bug != b {
		w.lease(w.clock)
	}
}
