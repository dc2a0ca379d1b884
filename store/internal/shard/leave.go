package shard

import (
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/layout"
)

// What happens in a shard when a checkpoint has brought its writes into the base: they are
// not newer than the base any more, and leave the set of those that are. A reader that asks
// the set under the shard's lock finds a key there, or in the base if it asks that behind it.
//
//	the base shows the range  ->  Leave, in steps  ->  Relist  ->  the log may free the range

// Leave raises the clean mark towards clean: the base shows all writes up to it. Not more
// than about most keys leave under this hold of the lock; more says that others are left.
//
// If anything leaves, a chunk of the fill that is read from the base is void from here on:
// its snapshot may be older than what has left, and without an entry in the set nobody could
// tell that what it says is old. Nobody else has to be told. A probe (promotion, repair, a
// condition) begins while no write of its key is in flight, is told of those ordered
// since, and asks the base behind its look at the set. So what it reads is the newest, on
// whichever side of a Leave it looks.
//
// Caller does not hold Mu.
func (sh *Shard) Leave(clean layout.Version, most int) (more bool) {
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	before, _ := sh.Dirty.Counts()
	to := sh.Dirty.Step(clean, most)
	sh.Dirty.Leave(to, nil)
	if after, _ := sh.Dirty.Counts(); after != before && sh.fill.touched != nil {
		sh.fill.over = true
	}
	return to < clean
}

// Relist says that the base lists keys of the shard from a second on which it did not list
// before: the expirer looks there again. It is called behind the ingest. If it were called
// before, the expirer could look in between, find nothing, and never come back.
func (sh *Shard) Relist(second uint64) {
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	sh.nextDue = min(sh.nextDue, second)
	sh.relisted = min(sh.relisted, second)
}

// TakeDue says whether a listed key may be due at the second now, and takes the mark:
// it is lowered again by what is listed from here on (Relist), and by DueAt.
func (sh *Shard) TakeDue(now uint64) bool {
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	if sh.nextDue > now {
		return false
	}
	sh.nextDue = clock.NeverDue
	return true
}

// TakeRelisted is for the expirer, which walks the base's list behind a mark of its own: it
// returns the earliest second under which keys were listed since the last call;
// clock.NeverDue: none was. It is asked before the list is read: what is listed while that is
// read is for the next time.
func (sh *Shard) TakeRelisted() (second uint64) {
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	second, sh.relisted = sh.relisted, clock.NeverDue
	return second
}

// DueAt says that a listed key is due at a second.
func (sh *Shard) DueAt(second uint64) {
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	sh.nextDue = min(sh.nextDue, second)
}

// DirtyCounts returns how many writes the base does not have yet, and the memory that their
// keys take.
func (sh *Shard) DirtyCounts() (writes int, bytes int64) {
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	return sh.Dirty.Counts()
}
