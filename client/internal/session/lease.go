package session

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/places"
	"github.com/rdmakv/rdmakv/rdma/boottime"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A Lease is the client's right to believe what it READs. It costs the server
// nothing: while the server may serve, it rewrites its beat every 200 ms, and
//
//	READ posted at p sees counter n ──── a later READ sees a higher counter
//	                └──────────────── lease of length L, counted from p ───────▶
//
// because a server that beat again after p was entitled to serve at some
// instant after p. A single READ proves nothing: its counter may be the last
// one of a server that was deposed long ago. The first lease comes with the
// session's first reply, counted from the moment its request was posted.
//
// The rule for a get: load the grant once, before the first READ is
// posted; read the clock after the last completion has been handled; believe
// the result only before the deadline of *that* grant. A renewal in between
// says nothing about bytes that were sampled before it:
//
//	grant p ≤ post ≤ sample < mark ≤ retire, so
//	handled < p+L ≤ retire+L ≤ reuse:  what was sampled was not reused yet.
//
// A get that finds its grant expired throws its result away, whatever has been
// learned since. It would be sound to accept a lease counted from p ≤ post that
// became known during the operation; but then the first get after a pause would
// still have none, since a lease from an old p is over too. So the simple rule
// stands, and pauses are bridged in another way: while gets are being made, and
// for Config.LeaseKeep afterwards, the watch sees to it that a beat is READ each
// third of a lease, in a get's own batch if one comes by, else by itself. A
// client that was idle for longer gets by SEND (one round trip too) until two
// beats have been seen, about 300 ms.
//
// Rates: clocks may differ in rate by 1 %. The client counts L·0.99, the server
// waits L·1.01 and a beat more.
//
// Off: a server that was told to debug without leases reuses no memory that a
// client may READ, as long as its process lives. Then the first grant has no end
// and nothing is renewed; what is READ is believed for as long as the NIC
// answers, also when no server is behind it any more. That is no longer the store's
// promise, and why it is for demonstrations alone.
type Lease struct {
	Length int64 // nanoseconds, 1 % less than the server said
	Off    bool  // set before start

	// current is what a get goes by. It is replaced, never changed, so a get
	// sees deadline and reclaim version that belong together.
	current atomic.Pointer[Grant]

	// due is set when a beat should be READ; the get that clears it takes the
	// beat along in its batch.
	due atomic.Bool
	// lapsed is a hint, some 100 ms old, that the grant has expired: a get then
	// does not even try. It decides nothing about results.
	lapsed atomic.Bool
	// used says that a get was made since the watch last looked.
	used atomic.Bool

	mu      sync.Mutex
	counter uint64 // the highest counter seen
	posted  int64  // latest post of a READ that saw it
	// pending is a deadline that is proved but may not be used yet: first the
	// reclaim list up to pendingReclaim must be read.
	pending        int64
	pendingReclaim uint64
}

// A Grant is a lease in force: a deadline on the lease clock (boottime.Nanos), and the
// retired pages known when it was taken into use. Immutable.
type Grant struct {
	deadline int64
	Retired  *places.Retired
}

// leaseLength takes the rate bound off what the server promises, and what the lease clock may
// miss of it.
func leaseLength(l time.Duration) int64 { return int64(l - l/100 - boottime.Slack) }

// start takes the first grant, which came with the reply to a request that was
// posted at the given time.
func (l *Lease) start(length time.Duration, posted int64, reclaim uint64) {
	l.Length = leaseLength(length)
	l.counter, l.posted = 0, posted
	deadline := posted + l.Length
	if l.Off {
		deadline = math.MaxInt64
	}
	l.current.Store(&Grant{deadline: deadline, Retired: places.NewRetired(reclaim)})
}

// Grant is the grant in force. A get loads it once, before its first READ.
func (l *Lease) Grant() *Grant { return l.current.Load() }

// TakeDue reports whether the caller should take a READ of the beat along; then no
// other caller is told so.
func (l *Lease) TakeDue() bool { return l.due.Load() && l.due.CompareAndSwap(true, false) }

// MarkDue has the next get take a READ of the beat along.
func (l *Lease) MarkDue() { l.due.Store(true) }

// IsDue reports whether a READ of the beat is due.
func (l *Lease) IsDue() bool { return l.due.Load() }

// IsLapsed is a hint that the grant has expired: a get need not try.
func (l *Lease) IsLapsed() bool { return l.lapsed.Load() }

// Lapse notes that g had expired when a get looked, if g is still in force.
func (l *Lease) Lapse(g *Grant) {
	if l.current.Load() == g {
		l.lapsed.Store(true)
	}
}

// Use notes that a get is made.
func (l *Lease) Use() {
	if !l.used.Load() {
		l.used.Store(true)
	}
}

// Observe notes a beat that a READ posted at the given time has shown. It
// returns how far the reclaim list must be known before the lease can be used
// (behind is false if it is known far enough and the lease is in force now).
func (l *Lease) Observe(b layout.Beat, posted int64) (reclaim uint64, behind bool) {
	if l.Off {
		return 0, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var proved int64
	switch {
	case b.Counter > l.counter:
		// The server beat again after l.posted.
		proved = l.posted + l.Length
		l.counter, l.posted = b.Counter, posted
	case b.Counter == l.counter:
		l.posted = max(l.posted, posted) // the same beat, seen later still
	default:
		// Completions of two READs were handled out of order: a higher
		// counter than this one has been seen, so this READ has its proof.
		proved = posted + l.Length
	}
	// Whatever was retired before a post is in the reclaim version of *that*
	// READ. The one that proves the lease may have been posted before the one
	// it counts from, so the versions of all of them are kept.
	l.pendingReclaim = max(l.pendingReclaim, b.ReclaimVersion)
	current := l.current.Load()
	l.pending = max(l.pending, proved)
	if l.pending <= current.deadline {
		return 0, false
	}
	if l.pendingReclaim > current.Retired.Version {
		return l.pendingReclaim, true
	}
	l.renewLocked(current.Retired)
	return 0, false
}

// reclaimed takes the pending lease into use once the reclaim list has been
// read as far as the log says.
func (l *Lease) reclaimed(log *places.Retired) {
	l.mu.Lock()
	defer l.mu.Unlock()
	current := l.current.Load()
	if log.Version < current.Retired.Version {
		return // another goroutine has read further
	}
	if l.pending > current.deadline && l.pendingReclaim <= log.Version {
		l.renewLocked(log)
		return
	}
	// No later deadline yet, but what is known to be retired is retired.
	l.current.Store(&Grant{deadline: current.deadline, Retired: log})
}

func (l *Lease) renewLocked(log *places.Retired) {
	l.current.Store(&Grant{deadline: l.pending, Retired: log})
}

// wanted returns the reclaim version that the pending lease waits for, if any.
func (l *Lease) wanted() (reclaim uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	current := l.current.Load()
	return l.pendingReclaim, l.pending > current.deadline && l.pendingReclaim > current.Retired.Version
}

// lastPost is when the newest beat was asked for.
func (l *Lease) lastPost() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.posted
}

// Holds decides about a result: g is the grant that was loaded before the
// first READ was posted, now was read after the last completion.
func (l *Lease) Holds(g *Grant, now int64) bool {
	return now < g.deadline
}
