package layout

import (
	"fmt"
)

// A Lookup is one key's get as a pure state machine: it says what to READ, looks
// at what came, and ends with an answer or with the advice to ask. It does no
// I/O, has no clock, and knows nothing of leases: the driver discards an answer
// that was not handled within the lease that was in force when the get's first
// READ was posted.
//
//	var l layout.Lookup
//	l.Start(view, dir, shard, key, cached, maxRead)
//	for {
//		switch l.Step() {
//		case layout.ActionRead:   // READ every l.Reads[i] into its Buf, as one batch; then Step again
//		case layout.ActionFound:  // l.Found()
//		case layout.ActionAbsent:
//		case layout.ActionAsk:    // by SEND; l.Reason says why
//		}
//	}
//
// The words of a batch may have been fetched in any order and at any time between
// its post and its completion. Whatever they hold, Step ends after at most
// MaxSteps calls, and
//
//   - found means: this item was live at some instant of the get;
//   - absent means: the key was absent at some instant of the get.
//
// A Lookup is used by one goroutine at a time. It may be reused, never allocates
// once its Dir is warm, and keeps references to key and buffers until the next
// Start. It must not be copied.
type Lookup struct {
	// Reads is the batch that ActionRead asks for. The driver sets each Buf to
	// where the bytes landed, len(Buf) == Len. Buffers belong to the driver
	// again at the next Step, except the one that Found shows.
	Reads []Read
	// Reason is why to ask, after ActionAsk.
	Reason Reason
	// Counts says what the get met; reset by Start.
	Counts Counts
	// PairByPair has the get look at the first of its two bucket pairs alone, and
	// READ both only if its item is not there: for a driver whose READs cost a
	// cache miss and no round trip. It is the driver's; Start leaves it.
	PairByPair bool
	// Torn is the last item that said it was live and did not verify, Size being
	// how much of it was READ; if Size is 0 there was none. An item that does not
	// change any more and still does not verify is damaged.
	Torn Loc

	view    *View
	dir     *Dir
	key     []byte
	cached  Loc
	maxRead int
	shard   uint16
	phase   phase
	round   int
	steps   int
	done    Action

	hash      Hash
	fp        uint16
	refreshed bool
	root      *dirRoot // the directory whose page or refresh is being READ
	// rootRead: the root word was READ by this get. fresh: the directory entry
	// was READ by this get, through a root word that was.
	rootRead, fresh bool
	// The segment, by the directory.
	segment     Place
	depth, step uint8
	mains       [2]Main

	// These are what the bucket pairs showed in this round.
	marked, slotless, pebble, unsure bool
	cands                            [MaxCandidates]candidate
	ncand                            int

	item  ItemView
	loc   Loc
	reads [MaxCandidates]Read
}

// A Read asks for Len bytes from Place, both multiples of 8 and inside one
// region of the view (View.Locate).
type Read struct {
	Place Place
	Len   uint32
	Buf   []byte
}

// A Loc is where a key's item was last seen: enough to get it by one READ.
type Loc struct {
	Place   Place
	Size    uint32 // of the whole item, bytes, a multiple of 8; 0: no location
	Version Version
}

// Bounds of one get.
const (
	// MaxRounds is how often a get looks at the buckets before it asks.
	MaxRounds = 8
	// MaxCandidates is how many items it READs in one round; more slots with
	// the key's fingerprint are a reason to ask.
	MaxCandidates = 4
	// MaxSteps bounds the calls of Step of one get.
	MaxSteps = 64
	// MinMaxRead is the least that Start takes as maxRead, in bytes: a
	// directory page.
	MinMaxRead = PageSize
)

// An Action is what the driver has to do next.
type Action uint8

const (
	ActionRead   Action = iota + 1 // READ l.Reads, then Step again
	ActionFound                    // l.Found
	ActionAbsent                   // the key does not exist
	ActionAsk                      // ask by SEND; l.Reason
)

func (a Action) String() string {
	switch a {
	case ActionRead:
		return "read"
	case ActionFound:
		return "found"
	case ActionAbsent:
		return "absent"
	case ActionAsk:
		return "ask"
	}
	return fmt.Sprintf("Action(%d)", uint8(a))
}

// A Reason is why a get must ask.
type Reason uint8

const (
	ReasonNone          Reason = iota
	ReasonRetries              // MaxRounds rounds gave no answer
	ReasonSlotless             // keys without slot: a miss proves nothing
	ReasonPebble               // a slot with the fingerprint is in Pebble only
	ReasonCandidates           // more than MaxCandidates slots have the fingerprint
	ReasonUnknownRegion        // a place in no region of the view: refresh it
	ReasonTooLarge             // an item that maxRead cannot hold
	numReasons
)

var reasonNames = [numReasons]string{
	ReasonNone:          "none",
	ReasonRetries:       "retries",
	ReasonSlotless:      "slotless",
	ReasonPebble:        "pebble-only",
	ReasonCandidates:    "candidates",
	ReasonUnknownRegion: "unknown-region",
	ReasonTooLarge:      "too-large",
}

func (r Reason) String() string {
	if r < numReasons {
		return reasonNames[r]
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// NumReasons is the number of reasons, for arrays of counters.
const NumReasons = int(numReasons)

// Counts says what one get met.
type Counts struct {
	Reads    uint32 // READs asked for
	Rounds   uint32 // times it began again
	Stale    uint32 // the cached place no longer held the key
	Torn     uint32 // an item whose checksum did not hold
	Pending  uint32 // an item whose put had not taken effect
	Dead     uint32 // a superseded item
	Mismatch uint32 // a whole item of another key
	Misfit   uint32 // bucket header or directory not of this key
	Marked   uint32 // segment retired
	Proofs   uint32 // mismatches that were proved, so that the key was absent
}

type phase uint8

const (
	phaseStart phase = iota
	phaseCached
	phaseRoot
	phasePage
	phaseRefresh
	phaseFirstPair
	phaseFirstCands
	phasePairs
	phaseCands
	phaseProofPairs
	phaseProofItems
	phaseDone
)

// A candidate is a slot with the key's fingerprint.
type candidate struct {
	slot Slot
	pair uint8 // in which of the two READs
	off  uint8 // of the slot, in bytes
	// These are of the mismatching item that was found there, for the proof.
	version Version
	sum     uint64
}

// Start begins a get of key in shard. cached is where the key was last seen,
// or zero. maxRead is the largest single READ in bytes (at least MinMaxRead); of
// an item larger than that only the head is READ, and Found shows a chunked
// item whose chunks the driver fetches by itself. v must have passed Check.
func (l *Lookup) Start(v *View, d *Dir, shard uint16, key []byte, cached Loc, maxRead uint32) {
	l.view, l.dir, l.key, l.shard = v, d, key, shard
	l.cached, l.maxRead = cached, int(max(maxRead, MinMaxRead))&^(wordSize-1)
	l.phase, l.round, l.steps = phaseStart, 0, 0
	l.Reads, l.Reason, l.Counts, l.Torn = nil, ReasonNone, Counts{}, Loc{}
	l.root, l.refreshed, l.rootRead, l.fresh = nil, false, false, false
}

// Step looks at the batch that it asked for last and says what comes next.
// After the end it repeats the answer. A Buf of the wrong length panics.
func (l *Lookup) Step() Action {
	l.steps++
	for i := range l.Reads {
		if r := &l.Reads[i]; len(r.Buf) != int(r.Len) {
			panic(fmt.Sprintf("layout: READ %d of %d bytes at %v came back with %d", i, r.Len, r.Place, len(r.Buf)))
		}
	}
	switch l.phase {
	case phaseStart:
		if n := l.readLen(int(l.cached.Size)); n > 0 && l.view.holds(l.cached.Place, n, KindItems) {
			l.phase = phaseCached
			l.begin()
			return l.read(l.cached.Place, n)
		}
		return l.index()
	case phaseCached:
		r := &l.Reads[0]
		if l.judge(r.Buf, r.Place) == verdictMine {
			return l.found(r.Place)
		}
		l.Counts.Stale++
		return l.index()
	case phaseDone:
		return l.done
	}
	if l.steps > MaxSteps {
		return l.ask(ReasonRetries)
	}
	return l.stepIndex()
}

// Found is the item, after ActionFound, and where it is. The view shows the
// buffer that the driver gave.
func (l *Lookup) Found() (ItemView, Loc) { return l.item, l.loc }

func (l *Lookup) found(p Place) Action {
	l.loc = Loc{Place: p, Size: uint32(l.item.Size), Version: l.item.Version}
	return l.end(ActionFound)
}

func (l *Lookup) ask(r Reason) Action {
	l.Reason = r
	return l.end(ActionAsk)
}

func (l *Lookup) end(a Action) Action {
	l.phase, l.done, l.Reads = phaseDone, a, nil
	return a
}

// begin empties the batch, read adds to it.
func (l *Lookup) begin() { l.Reads = l.reads[:0] }

func (l *Lookup) read(p Place, n int) Action {
	l.Reads = append(l.Reads, Read{Place: p, Len: uint32(n)})
	l.Counts.Reads++
	return ActionRead
}

// readLen is how much to READ of an item that takes size bytes: all of it, or
// what holds its head if it is larger than one READ may be. 0: no item.
func (l *Lookup) readLen(size int) int {
	if size < ItemHeaderSize || size > ClassSize(NumClasses) || size%wordSize != 0 {
		return 0
	}
	if size <= l.maxRead {
		return size
	}
	chunks := (size + ChunkSize - 1) / ChunkSize
	head := ItemHeaderSize + wordSize + chunks*wordSize + roundUp(min(len(l.key), MaxKeyLen))
	return min(head, l.maxRead)
}

// A verdict is what one item says about the key.
type verdict uint8

const (
	verdictUnsure verdict = iota // nothing: torn, pending, dead, or no item at all
	verdictMine                  // live, verified, this key
	verdictOther                 // live, verified, another key
	verdictShort                 // more of it would have to be READ
)

// judge is the rule for accepting an item: live, the checksum holds, the key is
// equal. The state is looked at first because it costs nothing. By itself it
// proves nothing, and every state but Live means only that the item must be read
// again.
func (l *Lookup) judge(b []byte, p Place) verdict {
	switch stateOf(b) {
	case Pending:
		l.Counts.Pending++
		return verdictUnsure
	case Dead:
		l.Counts.Dead++
		return verdictUnsure
	case Live:
	default: // zeroed or other memory, or an answer held for another client
		l.Counts.Torn++
		return verdictUnsure
	}
	if err := l.item.parse(b, l.view.Incarnation, p, allSumBits); err != nil {
		l.Counts.Torn++
		l.Torn = Loc{Place: p, Size: uint32(len(b))}
		if err == ErrShort {
			return verdictShort
		}
		return verdictUnsure
	}
	if !sameKey(l.item.Key(), l.key) {
		l.Counts.Mismatch++
		return verdictOther
	}
	return verdictMine
}

// stateOf is the state that the first word of an item shows.
func stateOf(b []byte) State {
	return State(b[offItemWord0] & stateMask)
}

func sameKey(a, b []byte) bool { return string(a) == string(b) }
