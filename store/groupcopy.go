package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/internal/checkpoint"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/layout"
)

// How a group is copied for a backup. The replica that leads takes a snapshot of its base at one entry, and the snapshot is read page by page:
//
//	Confirm  this store leads, so what was acknowledged before the call is applied here
//	Reach    checkpoints bring the base to what is applied
//	Alone    no checkpoint runs: the snapshot has all up to one entry, which its state names, and nothing behind it
//
// Without Confirm a leader that was deposed would copy a state that lacks acknowledged writes. While a copy is open the disk keeps what is written over or
// deleted meanwhile, so there are few at a time, one that nobody reads is closed, and none lives for ever.

const (
	// MaxGroupCopies is how many copies of groups a store has open at a time.
	MaxGroupCopies = 4
	// copyIdle is after what time a copy is closed that nobody reads. It is longer than a client takes to write a piece to its target.
	copyIdle = 5 * time.Minute
	// copyYields is after what time without a read a copy gives its room to another one, if there is no other room: else whoever was killed while it
	// copied would be in the way of its next run.
	copyYields = 30 * time.Second
	// copyLife is after what time a copy is closed, whoever reads it.
	copyLife = 24 * time.Hour
)

var (
	// ErrNoCopy: there is no such copy: it was closed, nobody has read it for five minutes (half of one, where others are waited for), or it was a day old.
	// Open another one, and begin anew.
	ErrNoCopy = errors.New("store: no such copy of a group: open another one")
	// ErrCopies: MaxGroupCopies are open. It is an ErrOverloaded.
	ErrCopies = fmt.Errorf("%w: %d copies of groups are open", ErrOverloaded, MaxGroupCopies)
)

// A GroupCopy says what a copy of a group is.
type GroupCopy struct {
	ID          uint64 // not 0
	Index, Term uint64 // of the last entry that it has
	Shards      []uint16
}

// A CopyRecord is a key of a copy. Keys are those of the disk: a value in parts is a head and its parts (package layout).
type CopyRecord struct {
	Key    []byte
	Value  []byte
	Expiry uint64 // microseconds since 1970; 0: never. It may be past.
}

// copies are the copies that a store has open.
type copies struct {
	mu     sync.Mutex
	open   map[uint64]*openCopy // nil: one that is being opened
	closed bool
}

// An openCopy is one of them.
type openCopy struct {
	shards []uint16
	timer  *time.Timer // closes it
	ends   time.Time   // when it is closed, whoever reads it
	asked  time.Time   // when it was opened or last asked for; guarded by copies.mu

	mu   sync.Mutex // held while it is read
	snap disk.Snapshot
	over bool // snap is closed
}

// CopyGroup opens a copy of a group, which this store must lead. All that was acknowledged before the call is in it. Whoever has it reads it by
// ReadCopy and ends it by CloseCopy. It waits for a checkpoint; ctx bounds that, and a call after that goes on with the same checkpoint. Safe for
// concurrent use.
//
// Errors: a *NotLeaderError; consensus.ErrNoGroup: the store has no replica of the group; ErrCopies; ErrOverloaded; ErrClosed; ErrFatal; *CorruptError; ctx's.
func CopyGroup(ctx context.Context, s *Store, group consensus.GroupID) (GroupCopy, error) {
	g := s.groups
	m, err := g.memberOf(s, group)
	if err != nil {
		return GroupCopy{}, err
	}
	id, err := g.copies.reserve()
	if err != nil {
		return GroupCopy{}, s.fence.Or(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(m.ctx, cancel)()
	c := GroupCopy{ID: id, Shards: slices.Clone(m.found.Shards)}
	snap, err := c.take(ctx, s, m)
	if err == nil {
		err = g.copies.begin(id, &openCopy{shards: c.Shards, snap: snap})
	}
	if err != nil {
		g.copies.drop(id)
		if g.ctx.Err() != nil {
			err = s.fence.Or(ErrClosed)
		}
		return GroupCopy{}, err
	}
	return c, nil
}

// take takes the snapshot, and says of what.
func (c *GroupCopy) take(ctx context.Context, s *Store, m *member) (snap disk.Snapshot, err error) {
	if err := Confirm(ctx, s, c.Shards[0]); err != nil {
		return snap, err
	}
	has := m.State().Applied
	if err := s.ckpt.Reach(ctx, m.group, has); err != nil {
		return snap, err
	}
	err = s.ckpt.Alone(ctx, func() error {
		snap = s.disk.Snapshot()
		return nil
	})
	if err != nil {
		return snap, err
	}
	state, err := checkpoint.StateOf(snap, m.group)
	if err == nil && state.Applied < has {
		err = fmt.Errorf("%w: the disk is at entry %d of group %d, and %d was to be reached", ErrOverloaded, state.Applied, m.group, has)
	}
	if err != nil {
		return snap, errors.Join(err, snap.Close())
	}
	c.Index, c.Term = state.Applied, state.Term
	return snap, nil
}

// ReadCopy calls yield for the records of a shard of a copy, in the order of their keys, until it returns false or there are no more. The first is the
// one behind a key, or with from that key itself; nil: the first of the shard. What yield gets is good until it returns. Every record is compared with
// its checksum. One call at a time reads a copy, others wait. Calls after this one may begin anywhere, so one that failed may be made again.
//
// Errors: ErrNoCopy, ErrShard (it is none of the copy's), *CorruptError, those of the disk, ctx's.
func ReadCopy(ctx context.Context, s *Store, id uint64, shard uint16, key []byte, from bool, yield func(CopyRecord) bool) error {
	c := s.groups.copies.get(id)
	if c == nil {
		return ErrNoCopy
	}
	if !slices.Contains(c.shards, shard) {
		return ErrShard
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return ErrNoCopy
	}
	lower, upper := disk.KindBounds(shard, disk.KindData)
	if key != nil {
		lower = disk.AppendKey(nil, shard, disk.KindData, key)
	}
	walk, err := c.snap.Records(lower, upper)
	if err != nil {
		return err
	}
	err = readRecords(ctx, &walk, key, from, yield)
	return errors.Join(err, walk.Close())
}

// readRecords is ReadCopy of a walk.
func readRecords(ctx context.Context, walk *disk.Records, key []byte, from bool, yield func(CopyRecord) bool) error {
	for there := walk.First(); there; there = walk.Next() {
		_, _, at, _ := disk.ParseKey(walk.Key())
		if key != nil && !from && bytes.Equal(at, key) {
			continue
		}
		rec, damage, err := walk.Whole()
		if err == nil && damage != nil {
			err = damage
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if isUpload(at) { // it is for the store that takes the parts, and says nothing of the value
			continue
		}
		if !yield(CopyRecord{Key: at, Value: rec.Value, Expiry: rec.Expiry}) {
			return nil
		}
	}
	return walk.Error()
}

// isUpload says whether a key is that of the record of an upload.
func isUpload(key []byte) bool {
	_, number, ok := layout.ParsePartKey(key)
	return ok && number == layout.UploadPart
}

// CloseCopy closes a copy. It waits for a call that reads it. ErrNoCopy: it is closed already.
func CloseCopy(s *Store, id uint64) error {
	if !s.groups.copies.drop(id) {
		return ErrNoCopy
	}
	return nil
}

// reserve makes room for a copy. If there is none, the copy gives its own up that nobody has asked for since the longest time, if that is copyYields.
//
// Errors: ErrCopies, ErrClosed.
func (cs *copies) reserve() (id uint64, err error) {
	id, idle, err := cs.reserved()
	if idle != nil {
		idle.close()
	}
	return id, err
}

// reserved is reserve. idle is a copy that has no room any more, and is to be closed.
func (cs *copies) reserved() (id uint64, idle *openCopy, err error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.closed {
		return 0, nil, ErrClosed
	}
	if len(cs.open) == MaxGroupCopies {
		of := uint64(0)
		for at, c := range cs.open {
			if c != nil && time.Since(c.asked) >= copyYields && (idle == nil || c.asked.Before(idle.asked)) {
				idle, of = c, at
			}
		}
		if idle == nil {
			return 0, nil, ErrCopies
		}
		delete(cs.open, of)
	}
	if cs.open == nil {
		cs.open = make(map[uint64]*openCopy)
	}
	for _, taken := cs.open[id]; id == 0 || taken; _, taken = cs.open[id] {
		id = rand.Uint64()
	}
	cs.open[id] = nil
	return id, idle, nil
}

// begin puts a copy into its room, and closes it if there is none any more. ErrClosed.
func (cs *copies) begin(id uint64, c *openCopy) error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.closed {
		return errors.Join(ErrClosed, c.snap.Close())
	}
	c.asked, c.ends = time.Now(), time.Now().Add(copyLife)
	c.timer = time.AfterFunc(copyIdle, func() { cs.drop(id) })
	cs.open[id] = c
	return nil
}

// get is an open copy, which lives on because of that; nil: there is none.
func (cs *copies) get(id uint64) *openCopy {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.open[id]
	if c == nil {
		return nil
	}
	c.asked = time.Now()
	c.timer.Reset(max(0, min(copyIdle, c.ends.Sub(c.asked))))
	return c
}

// drop closes a copy, and gives its room back. false: there was no copy.
func (cs *copies) drop(id uint64) bool {
	cs.mu.Lock()
	c := cs.open[id]
	delete(cs.open, id)
	cs.mu.Unlock()
	if c != nil {
		c.close()
	}
	return c != nil
}

// close lets the snapshot go.
func (c *openCopy) close() {
	c.timer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.over = true
		_ = c.snap.Close() // nothing was written
	}
}

// end closes all, before the disk is closed: a snapshot that is open then makes that fail. No other one is opened.
func (cs *copies) end() {
	cs.mu.Lock()
	all := cs.open
	cs.open, cs.closed = nil, true
	cs.mu.Unlock()
	for _, c := range all {
		if c != nil {
			c.close()
		}
	}
}
