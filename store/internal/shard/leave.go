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
// A chunk of the fill that is under way is void if anything leaves, because its snapshot of
// the base may be older than what has left, and nobody could tell any more that its values
// are old. Caller does not hold Mu.
func (sh *Shard) Leave(clean layout.Version, most int) (more bool) {
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	to := sh.Dirty.Step(clean, most)
	if sh.fill.touched != nil && to > sh.Dirty.Clean() {
		sh.fill.over = true
	}
	sh.Dirty.Leave(to, nil)
	return to < clean
}

// Relist says that the base lists keys of the shard from a second on which it did not list
// before: the expirer looks there again.
func (sh *Shard) Relist(second uint64) {
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	sh.nextDue = min(sh.nextDue, second)
	sh.relisted = min(sh.relisted, second)
}

// TakeRelisted is for the expirer, which walks the base's list behind a mark of its own: it
// returns the earliest second under which checkpoints have listed keys since
// the last call; clock.NeverDue: there was none.
func (sh *Shard) TakeRelisted() (second uint64) {
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	second, sh.relisted = sh.relisted, clock.NeverDue
	return second
}

// DirtyCounts returns how many writes the base does not have yet, and the memory that their
// keys take.
func (sh *Shard) DirtyCounts() (writes int, bytes int64) {
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	return sh.Dirty.Counts()
}
