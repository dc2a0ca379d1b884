package member

import (
	"fmt"
	"sync"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/feature"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/shardmap"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/membership"
)

// Levels is the feature level of the cluster, as a node has heard of it, and what the node's program reads. The level stands in NODE, so a program that does
// not read it refuses the directory before it touches anything there. Safe for concurrent use.
type Levels struct {
	Reads feature.Range // what the node's program reads
	Hold  bool          // its operator wants the level to stay

	id        string // of the node
	dir       *Dir
	log       *base.Log
	standDown func(error)
	members   func() *membership.Members

	mu sync.Mutex // held while the disk is waited for
	at feature.Level
}

// newLevels are those of a node that is being made.
func newLevels(c *Member) *Levels {
	l := &Levels{Reads: feature.Here(), Hold: c.cfg.HoldLevel, id: c.id.Node, dir: &c.dir, log: c.log, standDown: c.node.StandDown, members: c.Members}
	if c.cfg.Reads != nil {
		l.Reads = *c.cfg.Reads
	}
	return l
}

// At is the level of the cluster, as far as the node has heard.
func (l *Levels) At() feature.Level {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at
}

// open looks which level the directory says. *feature.UnreadError: the program does not read it.
func (l *Levels) open() error {
	id, err := shardmap.ReadIdentity(l.dir.FS, l.dir.Path)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at = id.Level
	return l.unread(id.Level)
}

// unread says why the node's program cannot be part of a cluster of a level; nil: it can.
func (l *Levels) unread(at feature.Level) error {
	if err := l.Reads.Check(at); err != nil {
		return fmt.Errorf("server: node %q: %w", l.id, err)
	}
	return nil
}

// Raise notes durably that the cluster is at a level, which the meta group has agreed on (package change); nothing happens if the node has heard of it. A node whose program does not read the
// level stands down, and notes nothing: if it is started again it looks again, so what it has stood down for ends with its process should it not have been true, and NODE
// never has a level that no program at hand reads.
//
// Errors: *feature.UnreadError; those of the disk, and then the level is as before.
func (l *Levels) Raise(to feature.Level) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if to <= l.at {
		return l.unread(l.at)
	}
	if err := l.unread(to); err != nil {
		l.standDown(err)
		return err
	}
	at, err := shardmap.Raise(l.dir.FS, l.dir.Path, to)
	if err != nil {
		return err
	}
	l.at = at
	l.log.Info("the feature level of the cluster has risen: programs that do not read it do not start on this directory any more", "level", at)
	return nil
}

// ReadsOf is the newest level that the program of a node reads, by gossip; false: gossip does not know the node.
func (l *Levels) ReadsOf(node string) (newest feature.Level, known bool) {
	members := l.members()
	if members == nil {
		return 0, false
	}
	m := members.View().Member(node)
	if m == nil || m.State == cluster.Dead || m.State == cluster.Left {
		return 0, false
	}
	return feature.Level(m.Reads), true
}

// status is what the node says of levels to its operator.
func (l *Levels) status() *wire.LevelStatus {
	return &wire.LevelStatus{Level: uint8(l.At()), Oldest: uint8(l.Reads.Oldest), Newest: uint8(l.Reads.Newest), Hold: l.Hold}
}
