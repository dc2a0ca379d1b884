package journal

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/log"
)

// factNames are the facts of a store, which are records of the log, by number. A checkpoint
// brings each into the base under its name in kind meta.
var factNames = disk.FactNames()

// number is the inverse of factNames.
func number(name string) (uint16, error) {
	for n, s := range factNames {
		if s == name {
			return n, nil
		}
	}
	return 0, fmt.Errorf("store: the log has no number for fact %q", name)
}

// patience is how long Note waits for room.
const patience = 10 * time.Second

// Found returns the newest epoch that the log knows, and whether its last life ended by a
// clean stop.
func (j *Journal) Found() (epoch uint64, clean bool) { return j.found.Epoch, j.found.Clean }

// Fact returns the newest value of a fact in the log; ok says whether there is one.
func (j *Journal) Fact(name string) (value []byte, ok bool) {
	n, err := number(name)
	if err != nil {
		return nil, false
	}
	return j.log.Fact(Stream, n)
}

// Note writes a fact into the log. It returns when the fact has its place behind all that is
// published; with wait, when it is durable under every policy but Off, which promises nothing
// about a crash of the machine. It waits for room in the log, which is kept for facts, but
// not for ever: at the end of a life no checkpoint comes any more, and on a full disk none
// makes room. It must not be called by those who publish.
//
// Errors: log.ErrFull, what made the log fail, what fenced the store.
func (j *Journal) Note(name string, value []byte, wait bool) error {
	n, err := number(name)
	if err != nil {
		return err
	}
	room := j.log.Cost(len(value))
	over := time.NewTimer(cmp.Or(j.c.Patience, patience))
	defer over.Stop()
	for err = j.log.Reserve(room, log.Facts); errors.Is(err, log.ErrFull); err = j.log.Reserve(room, log.Facts) {
		_, more := j.log.Room(log.Facts)
		select {
		case <-more:
		case <-over.C:
			return err
		case <-j.c.Fence.Down:
			return j.c.Fence.Failed()
		}
	}
	if err != nil {
		return err
	}
	frame := j.log.Begin()
	if err := frame.AddFact(Stream, n, value); err != nil {
		frame.Drop()
		j.log.Unreserve(room)
		return err
	}
	_, err = j.pass(frame)
	j.log.Unreserve(room)
	if err == nil && wait && j.c.Sync == log.Interval {
		err = j.log.Sync()
	}
	return err
}

// Start begins a life of the log, with the store's epoch. Both are durable when it returns.
func (j *Journal) Start(epoch uint64) error { return j.log.Start(epoch) }

// SetEpoch makes a higher epoch durable.
func (j *Journal) SetEpoch(epoch uint64) error { return j.log.SetEpoch(epoch) }

// Durable returns up to where the log is durable.
func (j *Journal) Durable() log.Position { return j.log.Durable() }
