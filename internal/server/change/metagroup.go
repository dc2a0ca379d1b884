package change

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/document"
	"github.com/rdmakv/rdmakv/internal/feature"
	"github.com/rdmakv/rdmakv/internal/meta"
	"github.com/rdmakv/rdmakv/internal/server/base"
)

// The node's replica of the meta group, in a file for each id: META.7 is that of replica 7. At most one runs. One that the map has not any more is given up, its file
// last; a file that is left of one is found at the next start, or when the next replica is made, and given up then.

// metaGroup is the group's id.
const metaGroup consensus.GroupID = 0

// metaFile begins the names of its files.
const metaFile = "META."

// A metagroup is the replica, if there is one. What is behind running is host's alone, and Stop's behind it.
type metagroup struct {
	running atomic.Pointer[document.Replica] // nil: none takes part
	r       *document.Replica                // nil: the node has none
	id      consensus.ReplicaID
}

// A content is a state as the replica has it, at a node whose program reads some feature levels.
type content struct {
	*meta.State
	by feature.Range
}

// Apply makes the next content. nil: the node's program does not read it, so the replica stops.
func (c content) Apply(entry []byte) (document.Content, []byte) {
	next, answer := c.State.Apply(entry)
	if next == nil {
		return nil, answer
	}
	if err := next.Readable(c.by); err != nil {
		return nil, []byte(err.Error())
	}
	return content{next, c.by}, answer
}

// load reads a content that was saved, or came from another replica.
func (c *Changer) load(b []byte) (document.Content, error) {
	s, err := meta.Parse(b)
	if err == nil {
		err = s.Readable(c.env.Levels.Reads)
	}
	if err != nil {
		return nil, err
	}
	return content{s, c.env.Levels.Reads}, nil
}

// state is that of the replica here, which may be older than that of the one that leads; nil: there is none.
func (g *metagroup) state() *meta.State {
	if r := g.running.Load(); r != nil {
		if c, ok := r.Content().(content); ok {
			return c.State
		}
	}
	return nil
}

func (g *metagroup) stop(log *base.Log) {
	g.running.Store(nil)
	if g.r == nil {
		return
	}
	if err := g.r.Stop(false); err != nil {
		log.Warn(base.LogInternal, "the replica of the meta group has not ended well", "err", err)
	}
	g.r = nil
}

// How often it is tried again to have the replica that the map wants.
const (
	againFirst = 100 * time.Millisecond
	againMost  = 5 * time.Second
)

// host brings the replica to what the map wants, and the map to what the meta group has agreed on, until the node ends.
func (c *Changer) host() {
	told := ""
	for rest := againFirst; ; rest = min(2*rest, againMost) {
		err := c.hostNow()
		if err == nil {
			told = ""
			rest = againFirst / 2
		} else if text := err.Error(); text != told && c.ctx.Err() == nil {
			told = text
			c.env.Log.Error(base.LogAlways, "the replica of the meta group is not as the shard map wants it; it is tried again", "err", err)
		}
		var again <-chan time.Time
		if err != nil {
			again = time.After(rest)
		}
		select {
		case <-again:
		case <-c.wake:
		case <-c.ctx.Done():
			return
		}
	}
}

func (c *Changer) hostNow() error {
	select { // first, because the node may hear of a later map until then
	case <-c.env.MayTakePart:
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
	s := c.meta.state()
	if s != nil {
		if err := c.env.Levels.Raise(s.Level); err != nil {
			return err
		}
	}
	if s != nil && s.Map.Version > c.now.Load().m.Version {
		if err := c.env.Follow(c.ctx, s.Map); err != nil {
			return fmt.Errorf("the map that the meta group has agreed on: %w", err)
		}
	}
	m := c.now.Load().m
	want := consensus.ReplicaID(0)
	if i := m.IndexOf(c.env.Node); i >= 0 {
		want = consensus.ReplicaID(m.Replication.Meta.At(i))
	}
	g := &c.meta
	if g.running.Load() != nil && g.id == want {
		return nil
	}
	if g.r != nil && g.id != want {
		err := g.r.Stop(g.running.Swap(nil) != nil)
		g.r = nil // if it failed, too: a replica that was stopped starts no more, and forgetOthers gives up what is left
		if err != nil {
			return err
		}
	}
	if err := c.forgetOthers(want); err != nil || want == 0 {
		return err
	}
	if g.r == nil {
		r, err := c.open(want)
		if err != nil {
			return err
		}
		state, first := founders(m, &c.env.Levels)
		if err := r.Create(state, first); err != nil {
			return errors.Join(err, r.Stop(false))
		}
		g.r, g.id = r, want
	}
	c.env.MetaReplica(want)
	if err := g.r.Start(c.ctx); err != nil {
		return err
	}
	g.running.Store(g.r)
	return nil
}

func (c *Changer) open(id consensus.ReplicaID) (*document.Replica, error) {
	c.env.MetaReplica(id)
	return document.Open(document.Config{
		Group: metaGroup, Replica: id, Engine: c.env.Engine(), FS: c.env.FS, Dir: c.env.Dir, File: metaFile + strconv.FormatUint(uint64(id), 10),
		Load: c.load, Changed: func(document.Content) { c.poke() }, Led: func(bool, uint64) { c.lead.poke() }, Logger: c.env.Logger,
	})
}

// founders are what the meta group of a first map begins with, or of the first one of a generation, of which it is made anew (recovermeta.go); nothing: a later map has made the replica, which gets its
// state from the others.
func founders(m *cluster.Map, l *Levels) (s consensus.State, first document.Content) {
	if !m.BornBy() && !m.BeginsGeneration() {
		return s, nil
	}
	s = consensus.State{Applied: 1, Term: 1, Config: consensus.Config{Index: 1}}
	for _, p := range m.Replication.Meta.Replicas {
		s.Config.Voters = append(s.Config.Voters, consensus.Member{ID: consensus.ReplicaID(p.ID), Node: m.Nodes[p.Node].ID})
	}
	slices.SortFunc(s.Config.Voters, func(a, b consensus.Member) int { return int(int64(a.ID) - int64(b.ID)) })
	begins := meta.Begin(m)
	if m.BeginsGeneration() {
		begins.Level = l.At() // and not 0, because programs may be in the cluster that do not read level 0 any more
	}
	// Groups that begin with what nodes have stand in a form of map that needs a level. Every node has read it when it promised the map.
	begins.Level = max(begins.Level, feature.Needs(feature.ShardMap, m.Form()))
	return s, content{begins, l.Reads}
}

// forgetOthers gives up what is left of replicas that the map has not, its log first. Nothing of it is read: a file that is damaged, or that a newer program has written, must not keep
// the node from the replica that the map gives it now.
func (c *Changer) forgetOthers(want consensus.ReplicaID) error {
	names, err := c.env.FS.List(c.env.Dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		text, is := strings.CutPrefix(name, metaFile)
		id, err := strconv.ParseUint(text, 10, 64)
		if !is || err != nil || id == 0 || consensus.ReplicaID(id) == want {
			continue
		}
		err = c.env.DropMeta(consensus.ReplicaID(id))
		if err == nil {
			err = document.RemoveFile(c.env.FS, c.env.Dir, name)
		}
		if err != nil {
			return fmt.Errorf("replica %d of the meta group, which the shard map has not any more: %w", id, err)
		}
	}
	return nil
}

// agree has the meta group take the next state. nil: it has.
func (c *Changer) agree(ctx context.Context, r *document.Replica, next *meta.State) error {
	answer, err := r.Do(ctx, meta.AppendEntry(nil, next))
	if err != nil {
		return err
	}
	return meta.Outcome(answer)
}
