package driver

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

// An intake has the places for snapshots that a node receives. A sender has MaxOfSender of them at most, because one that is slow, or means harm, would
// hold them all otherwise, and no group whose leader is elsewhere would get its snapshot.
//
// Who finds no place waits for one, and is not refused: a sender counts a snapshot as over, and begins the next one, when it has given it up or
// has ended the way, which this node may hear of later.
type intake struct {
	mu      sync.Mutex
	taken   map[string]int // by sender
	all     int
	waiting []*claim // in the order in which they came
}

// A claim is a snapshot that waits for a place.
type claim struct {
	node string
	has  chan struct{} // closed: it has one
}

// enter waits for a place, for so long at most. It returns nil when there is one, which leave gives back.
func (i *intake) enter(ctx context.Context, node string, most time.Duration) error {
	c := &claim{node, make(chan struct{})}
	i.mu.Lock()
	i.waiting = append(i.waiting, c)
	i.fillLocked()
	i.mu.Unlock()
	late := time.NewTimer(most)
	defer late.Stop()
	var err error
	select {
	case <-c.has:
		return nil
	case <-late.C:
		err = fmt.Errorf("%w: no place for a snapshot of node %s has been free for %v", consensus.ErrBusy, node, most)
	case <-ctx.Done():
		err = ctx.Err()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	before := len(i.waiting)
	if i.waiting = slices.DeleteFunc(i.waiting, func(w *claim) bool { return w == c }); len(i.waiting) == before {
		return nil // it has got one meanwhile
	}
	return err
}

// leave gives a place back.
func (i *intake) leave(node string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.all--
	if i.taken[node]--; i.taken[node] == 0 {
		delete(i.taken, node)
	}
	i.fillLocked()
}

// fillLocked gives the free places to those who wait, in the order in which they came. Who may have no more is passed over.
func (i *intake) fillLocked() {
	if i.taken == nil {
		i.taken = map[string]int{}
	}
	i.waiting = slices.DeleteFunc(i.waiting, func(c *claim) bool {
		if i.all >= MaxReceiving || i.taken[c.node] >= MaxOfSender {
			return false
		}
		i.all++
		i.taken[c.node]++
		close(c.has)
		return true
	})
}
