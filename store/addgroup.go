package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/internal/checkpoint"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/entry"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/layout"
)

// How a store comes to have a replica that it did not have, while it is open:
//
//	the shards are the group's      from here on nobody writes to them as to the store's own
//	  what was under way is done
//	the base has what is published
//	they have no key                and no results of requests, which are in the order of other numbers; else they stay the store's own
//	Create                          the engine has the replica's log
//	                                no checkpoint runs
//	  Found                         the base knows of the group: from here on each start knows, too
//	  Begin                         the shards number as the group does; checkpoints take in what it publishes
//	Start                           the replica takes part
//
// A crash in between leaves the shards the store's own, or the group's: AddGroup is called again then. What a replica before it has left, which was
// given up (RemoveGroup), is gone by then.
//
// A group that adopts the store's own shards (Group.Adopts) begins with what they have:
//
//	the base has what is published  while the store's own writes go on, so that little is left to be taken in below
//	the shards are the group's      as above
//	the base has the rest           the log's own stream has nothing more of these shards, so the group begins behind what the log has
//	BaseOf                          what that is in few bytes (recovergroup.go, R19)
//	Create, Found, Begin, Start     as above; the base has the group and that digest by one ingest, which leaves the keys where they are
//
// The group numbers from above everything that the store has given out in these shards, so every version rises. Writes, and reads that ask, wait in between: for the rest of the log, and for one pass over the keys.

// AddGroup gives a store a replica, until RemoveGroup. Its id is above those of all replicas of the group that the store has given up. Its shards stay withheld if
// they are (Release). It returns when that is durable, and the replica takes part, or will once no reader
// believes the memory of the store's last life. A replica that the store has already is no error, if it is the same.
//
// Errors: ErrGroups (another replica of the group is there, or one that is being given up, or one of that id or a later one was given up, its shards have keys or results of requests, or are another group's, the store has no
// Config.Engine, or is no place for replicas), consensus.ErrConfig, consensus.ErrNoLog, ErrClosed, ErrFatal, ctx's, and those of log and base.
func AddGroup(ctx context.Context, s *Store, c Group) error {
	g := s.groups
	if err := c.check(s); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.ctx, cancel)()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return s.fence.Or(ErrClosed)
	}
	shards := slices.Sorted(slices.Values(c.Shards))
	for _, m := range g.members {
		if m.group == c.ID {
			if m.id != c.Replica || !slices.Equal(m.found.Shards, shards) {
				return fmt.Errorf("%w: replica %d of group %d is here, of shards %v", ErrGroups, m.id, m.group, m.found.Shards)
			}
			if m.gone {
				return fmt.Errorf("%w: replica %d of group %d is being given up: remove it, and add one with another id", ErrGroups, m.id, m.group)
			}
			return nil
		}
	}
	if former, err := s.disk.Former(uint32(c.ID)); err != nil {
		return err
	} else if uint64(c.Replica) <= former {
		return fmt.Errorf("%w: replica %d of group %d was given up here, so none of an id up to that comes back: add one with a higher id", ErrGroups, former, c.ID)
	}
	if err := g.dropOrphans(s, c.ID); err != nil {
		return err
	}
	m := &member{group: c.ID, id: c.Replica, found: entry.State{Shards: shards}}
	m.found.Turn.Next = 1
	if len(c.Founders.Voters) > 0 {
		m.found.State = consensus.State{Applied: 1, Term: 1, Config: c.Founders}
	}
	for _, id := range shards {
		if o := g.of[id].Load(); o != nil {
			return fmt.Errorf("%w: shard %d is of group %d", ErrGroups, id, o.group)
		}
	}
	begin := m.begin
	if c.Adopts {
		begin = m.adopt
		if err := s.ckpt.Now(ctx); err != nil {
			return err
		}
		m.found.Turn.Next = newestOwn(s, shards).Number() + adoptGap
		if m.found.Turn.Next > layout.MaxNumber-adoptRoom {
			return ErrEpochs
		}
	}
	m.follow(s, g)
	claim(s, shards, m)
	if err := begin(ctx, s, g); err != nil {
		claim(s, shards, nil)
		m.cancel()
		if ended := g.ctx.Err(); ended != nil {
			return s.fence.Or(ErrClosed)
		}
		return err
	}
	s.Events.begin(m.group, shards, m.found.Turn.Newest(0))
	for _, id := range shards {
		g.left[id].Store(nil)
	}
	g.members = append(g.members, m)
	m.has.Store(true)
	m.live(s, g)
	if s.before.over.Load() && s.cfg.TakePart == nil {
		return g.engine.Start(m.ctx, m.group, m.id, &machine{m, s})
	}
	s.life.Go(func() {
		if g.mayTakePart(s) {
			m.takePart(s, g)
		}
	})
	return nil
}

// MayAddGroups says whether AddGroup would find shards of s as it needs them: they are in no group, and have neither keys nor results of requests, or adopts says that a group is to begin with those.
// It returns nil, or an error that says what is in the way; what comes to them afterwards it does not see.
//
// Errors: ErrGroups, ErrShard, ctx's, and those of log and base.
func MayAddGroups(ctx context.Context, s *Store, shards []uint16, adopts bool) error {
	if err := s.cfg.mayHaveGroups(); err != nil {
		return err
	}
	for _, id := range shards {
		if int(id) >= len(s.shards) {
			return ErrShard
		}
		if m := s.groups.of[id].Load(); m != nil {
			return fmt.Errorf("%w: shard %d is of group %d", ErrGroups, id, m.group)
		}
	}
	if adopts {
		if newestOwn(s, shards).Number() > layout.MaxNumber-adoptRoom-adoptGap {
			return ErrEpochs
		}
		return nil
	}
	if err := s.ckpt.Now(ctx); err != nil {
		return err
	}
	for _, id := range shards {
		if err := isEmpty(s, id); err != nil {
			return err
		}
	}
	return nil
}

// check holds a group to its rules.
func (c *Group) check(s *Store) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: group %d: %s", ErrGroups, c.ID, fmt.Sprintf(format, args...))
	}
	switch {
	case s.groups.engine == nil:
		return bad("the store has nothing that runs replicas")
	case c.ID == 0:
		return bad("it is the meta group, and no store's")
	case c.Replica == 0:
		return bad("replica 0: ids begin at 1")
	case len(c.Shards) == 0:
		return bad("it has no shards")
	}
	for i, id := range c.Shards {
		if int(id) >= len(s.shards) {
			return bad("shard %d of %d", id, len(s.shards))
		}
		if slices.Contains(c.Shards[:i], id) {
			return bad("shard %d twice", id)
		}
	}
	if len(c.Founders.Voters)+len(c.Founders.Learners) > 0 {
		if err := c.Founders.Check(); err != nil {
			return fmt.Errorf("group %d: its founders: %w", c.ID, err)
		}
		if c.Founders.Index != 1 {
			return bad("its founders' configuration has index %d, not 1", c.Founders.Index)
		}
	}
	if v := c.Founders.Voters; c.Adopts && (len(v) != 1 || v[0].ID != c.Replica || len(c.Founders.Learners) != 0) {
		return bad("it adopts what the store has, with %d founders: it needs one, because nobody else has that", len(v)+len(c.Founders.Learners))
	}
	return s.cfg.mayHaveGroups()
}

// claim says whose the writes of shards are; nil: the store's own.
func claim(s *Store, shards []uint16, m *member) {
	for _, id := range shards {
		sh := s.shards[id]
		sh.Mu.Lock()
		s.groups.of[id].Store(m)
		sh.Mu.Unlock()
	}
}

// begin tells engine and base of the replica, once its shards are empty and nothing is under way in them.
func (m *member) begin(ctx context.Context, s *Store, g *groupSide) error {
	if err := m.settle(ctx, s); err != nil {
		return err
	}
	return s.ckpt.Alone(ctx, func() error {
		for _, id := range m.found.Shards {
			if err := isEmpty(s, id); err != nil {
				return err
			}
		}
		if err := g.create(s, m); err != nil {
			return err
		}
		to, err := s.disk.Tables(ctx, 0)
		if err != nil {
			return err
		}
		if err := checkpoint.Found(to, m.group, m.id, m.told(), &m.found, nil); err != nil {
			return errors.Join(err, to.Abort())
		}
		if _, err := to.Commit(ctx); err != nil {
			return err
		}
		for _, id := range m.found.Shards {
			shard.Begin(s.shards[id], m.found.Turn.Newest(id))
			if m.floor != 0 {
				s.shards[id].Await()
			}
		}
		if m.found.Applied != 0 {
			g.keptOf(m.group).shown = 0 // the group begins anew, and its entries do
		}
		s.ckpt.AddGroup(m, m.found)
		return nil
	})
}

// adopt tells engine and base of a replica that begins with what the store has in its shards. Nobody writes to them any more as to the store's own.
func (m *member) adopt(ctx context.Context, s *Store, g *groupSide) error {
	if err := m.settle(ctx, s); err != nil {
		return err
	}
	begins, err := m.begins(ctx, s)
	if err != nil {
		return err
	}
	return s.ckpt.Alone(ctx, func() error {
		for _, id := range m.found.Shards {
			if n, _ := s.shards[id].DirtyCounts(); n > 0 {
				return fmt.Errorf("%w: the log has %d writes of shard %d that the base has not", ErrGroups, n, id)
			}
		}
		if newest := newestOwn(s, m.found.Shards); newest >= m.found.Turn.Newest(0) {
			return fmt.Errorf("%w: version %v was given out while the group was made, which begins behind number %d", ErrGroups, newest, m.found.Turn.Next)
		}
		if err := g.create(s, m); err != nil {
			return err
		}
		to, err := s.disk.Tables(ctx, 0)
		if err != nil {
			return err
		}
		// What the tables have to wait for comes before the locks.
		if err := errors.Join(checkpoint.Found(to, m.group, m.id, m.told(), &m.found, &begins), to.Ready(ctx)); err != nil {
			return errors.Join(err, to.Abort())
		}
		if err := s.journal.Change(&s.ckpt.Leaving, func() error {
			if _, err := to.Commit(ctx); err != nil {
				return err
			}
			for _, id := range m.found.Shards {
				shard.Begin(s.shards[id], m.found.Turn.Newest(id))
			}
			return nil
		}); err != nil {
			return err
		}
		s.ckpt.AddGroup(m, m.found)
		return nil
	})
}

// newestOwn is the newest version that was given out in shards which are the store's own, or a newer one: a start gives out none below those of all lives before.
func newestOwn(s *Store, shards []uint16) (newest layout.Version) {
	for _, id := range shards {
		newest = max(newest, s.shards[id].Marks().Ordered)
	}
	return newest
}

const (
	// adoptGap is by how many numbers a group begins above what its shards have when it is made: each has 4,096 versions of the store's own, which writes on until the shards are the group's.
	adoptGap = 1 << 16
	// adoptRoom is how many numbers a group is to have left when it begins. A group that gives out a million a second has enough for twelve days then, and each recovery takes 2^32 (recoverGap).
	adoptRoom = 1 << 40
)

// settle waits until nothing is under way in the replica's shards as in the store's own, and the base has all of it.
func (m *member) settle(ctx context.Context, s *Store) error {
	for _, id := range m.found.Shards {
		if err := s.shards[id].WaitPublished(ctx, s.shards[id].Marks().Ordered); err != nil {
			return err
		}
	}
	return s.ckpt.Now(ctx)
}

// isEmpty returns an error for a shard that has something, in log or base: the log first, because keys leave it for the base.
func isEmpty(s *Store, shard uint16) error {
	if n, _ := s.shards[shard].DirtyCounts(); n > 0 {
		return fmt.Errorf("%w: shard %d has keys", ErrGroups, shard)
	}
	records, err := s.disk.Records(disk.AppendKey(nil, shard, 0, nil), disk.AppendKey(nil, shard+1, 0, nil))
	if err != nil {
		return err
	}
	if records.First() {
		err = fmt.Errorf("%w: shard %d has keys", ErrGroups, shard)
		if _, kind, _, ok := disk.ParseKey(records.Key()); ok && kind == disk.KindDedup {
			err = fmt.Errorf("%w: shard %d has results of requests, which are kept for %v: it may be a group's when they are gone", ErrGroups, shard, dedup.ForgetAfter)
		}
	}
	return errors.Join(err, records.Error(), records.Close())
}
