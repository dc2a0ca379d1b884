package shardmap

import (
	"context"
	"fmt"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// Later maps. Who makes them has agreed on them elsewhere, so there is one map of a version, and no node has to promise anything:
// each takes the highest version that it is told of, whenever that is, and may leave others out.
//
//	none         ── Follow(m of version 2 or more) ──▶ m in force   the node comes into a cluster that lives; it must be in m
//	promised p   ── Follow(m later than p) ──────────▶ m in force   the commit of p did not come this far; m shows that there was one
//	m in force   ── Follow(n later than m) ──────────▶ n in force
//	                                                   n without the node: it has left, and says so (Left)
//	left         ── Follow(n later than m) ──────────▶ n in force   with the node, if it holds nothing any more
//	m in force, which has no groups, and p promised, by which they begin
//	             ── Follow(p, or later than p) ──────▶ in force     another node has it, so all had promised p. Without the promise it is refused: the others may not have promised it either
//
// MAP has the map in force as a committed one; which node has left is seen by the map itself, so the file has nothing more.

// Follow makes a later map durable, and puts it in force. The one that is in force again is accepted.
//
// Errors: those of cluster.CheckChange, among them ErrOtherMap for an older map; ErrOtherMap, too, if a map is promised that this one
// does not follow; ErrNotPromised for a first map, which is prepared and committed; ErrShards; ErrNotIn if the node was never in a
// map; where the node comes in, what Options.Empty and Options.Suits say; the disk's error: then the map is not in force, and may
// be after a crash.
func (b *Book) Follow(ctx context.Context, m *cluster.Map) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.follow(ctx, m)
}

// follow is Follow under mu.
func (b *Book) follow(ctx context.Context, m *cluster.Map) error {
	now := b.Map()
	comes, err := b.mayFollow(now, m)
	if err != nil {
		return err
	}
	if same(now, m) && !b.unsure {
		return nil
	}
	if comes {
		if err := b.mayEnter(ctx, m); err != nil {
			return err
		}
	}
	if b.promised != nil {
		b.begun = true // the disk may have m, so the promise is not taken back
	}
	if err := b.write(m, nil); err != nil {
		return err
	}
	b.committed.Store(m)
	b.promise(nil)
	b.begun = false
	return nil
}

// mayFollow says whether m may follow what there is: now, or a promise. comes: the node is in none of these, and in m.
func (b *Book) mayFollow(now, m *cluster.Map) (comes bool, err error) {
	was := now
	switch {
	case now == nil:
		was = b.promised
	case m != nil && now.Replication == nil && m.Replication != nil && cluster.CheckChange(now, m) == nil:
		if b.promised == nil {
			return false, fmt.Errorf("%w: %v, by which this cluster gets groups: run kvclient cluster upgrade, which has every node promise it", ErrNotPromised, m)
		}
		was = b.promised
	}
	switch {
	case m == nil:
		return false, cluster.ErrNoMap
	case was != nil:
		if err := cluster.CheckChange(was, m); err != nil {
			if now == nil {
				return false, fmt.Errorf("%w: node %q has promised %v, and cannot follow another: %w", cluster.ErrOtherMap, b.opt.Node, was, err)
			}
			return false, err
		}
	default:
		if err := m.Check(); err != nil {
			return false, err
		}
		if m.Version > 1 && m.Replication == nil {
			return false, fmt.Errorf("%w (version %d was wanted)", cluster.ErrNotYet, m.Version)
		}
	}
	if m.Version == 1 && now == nil {
		return false, fmt.Errorf("%w: the first one is prepared at every node, and then committed", ErrNotPromised)
	}
	switch err := b.suits(m); {
	case err == nil:
		return was == nil || !was.Has(b.opt.Node), nil
	case was != nil && m.Name == b.opt.Name && len(m.Owner) == b.opt.Shards: // it leaves, or stays away
		return false, nil
	default:
		return false, err
	}
}
