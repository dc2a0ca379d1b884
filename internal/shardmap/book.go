package shardmap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/shardmap/format"
	"github.com/rdmakv/rdmakv/internal/wholefile"
)

// Options say where a Book is and to which node it belongs.
type Options struct {
	FS   vfs.FS // default: the machine's
	Dir  string // exists
	Node string // this node's id
	Name string // the cluster's
	// Shards is the number of shards of the node's store.
	Shards int
	// Empty returns nil if the node holds no keys, else an error that says so. It
	// is asked under the Book's lock whenever a map is prepared: a node may enter
	// a cluster only without keys, because another node may own theirs. It is not asked
	// if groups of the map begin with what its nodes have.
	Empty func(context.Context) error
	// Suits, if not nil, returns nil if the node can be what a map makes of it, else an error
	// that says what is in the way. It is asked as Empty is.
	Suits func(context.Context, *cluster.Map) error
}

// Errors of the steps, beside those of package cluster.
var (
	// ErrCommitted: a committed map is never given up.
	ErrCommitted = errors.New("shardmap: a map is committed, and stays")
	// ErrNotPromised: a map is committed only where it was prepared.
	ErrNotPromised = errors.New("shardmap: this map was not prepared here")
	// ErrNotIn: the map has no shards for this node.
	ErrNotIn = errors.New("shardmap: this node is not in the map")
	// ErrShards: the map is of another number of shards.
	ErrShards = errors.New("shardmap: another number of shards")
)

// A Book keeps the map of one node. It implements cluster.Authority. All
// methods are safe for concurrent use.
type Book struct {
	opt Options

	mu       sync.Mutex // serialises the steps; held while the disk is waited for
	promised *cluster.Map
	// unsure: the last step failed at the disk, so the file may be newer than
	// what is known here. Every step writes the whole file, which settles it.
	unsure bool
	// begun: a commit was asked for and failed at the disk. The disk may have it,
	// and other nodes may have committed, so the promise is not taken back.
	begun bool
	// refused are digests of maps that were refused for the sake of another one.
	// They stay refused for as long as the process lives. Other nodes take their
	// promises of such a map back because of this refusal, so it must be true
	// from then on, also for a run that has received their promises before.
	refused []uint64

	committed atomic.Pointer[cluster.Map]
	known     atomic.Pointer[cluster.Map] // promised, for readers that do not take mu
}

var _ cluster.Authority = (*Book)(nil)

// Open reads what the node has of a map. No other process may have the directory
// open. Errors: a file that is damaged, newer, or another cluster's; the file
// system's error.
func Open(opt Options) (*Book, error) {
	if opt.FS == nil {
		opt.FS = vfs.Default
	}
	b := &Book{opt: opt}
	data, err := wholefile.Read(opt.FS, opt.FS.PathJoin(opt.Dir, format.MapFile), format.MaxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err != nil {
		return nil, fmt.Errorf("shardmap: %w", err)
	}
	m, promised, err := format.ParseMap(data)
	if err != nil {
		return nil, fmt.Errorf("shardmap: %s is %w: every node of the cluster has the same file: stop one, and copy its %s here", opt.FS.PathJoin(opt.Dir, format.MapFile), err, format.MapFile)
	}
	for _, of := range [...]*cluster.Map{m, promised} {
		if of == nil {
			continue
		}
		if err := b.suits(of); err != nil && !(of == m && isLater(m) && errors.Is(err, ErrNotIn)) {
			return nil, fmt.Errorf("shardmap: %s holds a map that is not this node's: %w", opt.FS.PathJoin(opt.Dir, format.MapFile), err)
		}
	}
	b.committed.Store(m)
	b.promise(promised)
	return b, nil
}

// suits says whether a map can be this node's at all.
func (b *Book) suits(m *cluster.Map) error {
	switch {
	case m.Name != b.opt.Name:
		return fmt.Errorf("%w: the map is of cluster %q, this node belongs to %q (cluster.name)", cluster.ErrOtherCluster, m.Name, b.opt.Name)
	case len(m.Owner) != b.opt.Shards:
		return fmt.Errorf("%w: the map has %d shards, the store of node %q has %d (shards)", ErrShards, len(m.Owner), b.opt.Node, b.opt.Shards)
	case !m.Has(b.opt.Node):
		return fmt.Errorf("%w: node %q stands nowhere in it", ErrNotIn, b.opt.Node)
	}
	return nil
}

// isLater reports whether a map may have been followed. One of those need not have the node: then it has left.
func isLater(m *cluster.Map) bool { return m.Version > 1 && m.Replication != nil }

// Left reports whether the map in force does not have the node any more. It does not wait.
func (b *Book) Left() bool {
	m := b.Map()
	return m != nil && !m.Has(b.opt.Node)
}

// Map implements cluster.Authority. A node that has left has the map which says so.
func (b *Book) Map() *cluster.Map { return b.committed.Load() }

// Promised returns the map that was prepared and is not committed; nil if there
// is none. The one before it may be in force (Map). It does not wait.
func (b *Book) Promised() *cluster.Map { return b.known.Load() }

func (b *Book) promise(m *cluster.Map) {
	b.promised = m
	b.known.Store(m)
}

// Prepare promises a map: from here on this node commits it or none. The same map
// again is accepted, and so is the one that is committed. A map without replicas stays in force meanwhile,
// where the promise is that of the one by which its nodes get groups; any other map in force is followed by later ones, which nobody promises.
//
// Errors: those of cluster.CheckChange, ErrOtherMap if another one is promised or
// this one was refused for that reason before, ErrShards, ErrNotIn, what
// Options.Empty and Options.Suits say, what the disk says.
func (b *Book) Prepare(ctx context.Context, m *cluster.Map) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.check(m); err != nil || same(b.Map(), m) {
		return err
	}
	if same(b.promised, m) && !b.unsure {
		return nil
	}
	if b.promised != nil && !same(b.promised, m) {
		b.refuse(m.Digest())
		return fmt.Errorf("%w: node %q has promised %v; finish that one, or abandon it", cluster.ErrOtherMap, b.opt.Node, b.promised)
	}
	if slices.Contains(b.refused, m.Digest()) {
		return fmt.Errorf("%w: node %q has refused %v for another one, and others may have given it up; run it once more", cluster.ErrOtherMap, b.opt.Node, m)
	}
	if err := b.mayEnter(ctx, m); err != nil {
		return err
	}
	if err := b.write(b.Map(), m); err != nil {
		return err
	}
	b.promise(m)
	return nil
}

// upgrades says whether m is the map by which the nodes of one without replicas get groups (cluster.CheckChange).
func upgrades(now, m *cluster.Map) bool {
	return now != nil && now.Replication == nil && m.BornBy() && m.Replication.Adopts && m.Version == now.Version+1
}

// mayEnter asks whether the node can become one of the map's. b.mu is held.
func (b *Book) mayEnter(ctx context.Context, m *cluster.Map) error {
	if b.opt.Empty != nil && !(m.BornBy() && m.Replication.Adopts) { // such a map's groups begin with the keys that are here
		if err := b.opt.Empty(ctx); err != nil {
			return err
		}
	}
	if b.opt.Suits != nil {
		return b.opt.Suits(ctx, m)
	}
	return nil
}

// maxRefused bounds Book.refused; only a peer with the admin right that makes
// maps on purpose comes that far.
const maxRefused = 1024

// refuse records a map that is refused for good; the oldest is dropped beyond
// maxRefused.
func (b *Book) refuse(digest uint64) {
	if slices.Contains(b.refused, digest) {
		return
	}
	if len(b.refused) == maxRefused {
		b.refused = b.refused[:copy(b.refused, b.refused[1:])]
	}
	b.refused = append(b.refused, digest)
}

// check says whether a map may be this node's by the two steps, now: as the first one, as the one by which it gets groups, or as the one that is in force.
func (b *Book) check(m *cluster.Map) error {
	now := b.Map()
	if err := cluster.CheckChange(now, m); err != nil {
		return err
	}
	switch {
	case now == nil, upgrades(now, m):
		return b.suits(m)
	case !same(now, m):
		return fmt.Errorf("%w: %v; a later one is followed, not prepared", cluster.ErrOtherMap, now)
	}
	return nil
}

// Commit puts the promised map in force. The committed one again is accepted.
//
// Errors: those of cluster.CheckChange, ErrNotPromised, the disk's error: then
// the map is not in force, and may be after a crash.
func (b *Book) Commit(m *cluster.Map) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.commit(m)
}

// commit is Commit under mu.
func (b *Book) commit(m *cluster.Map) error {
	if err := b.check(m); err != nil || same(b.Map(), m) {
		return err
	}
	if !same(b.promised, m) {
		return fmt.Errorf("%w: prepare it at every node first", ErrNotPromised)
	}
	b.begun = true
	if err := b.write(b.promised, nil); err != nil {
		return err
	}
	b.committed.Store(b.promised)
	b.promise(nil)
	b.begun = false
	return nil
}

// Abandon drops the promise of a map, so that another one can be agreed on. If
// there is no promise it succeeds; a committed map stays: ErrCommitted, if it is that one or one that the map cannot follow.
func (b *Book) Abandon(m *cluster.Map) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.Map()
	switch {
	case now != nil && (cluster.CheckChange(now, m) != nil || !upgrades(now, m)):
		return fmt.Errorf("%w: %v", ErrCommitted, now)
	case b.promised != nil && !same(b.promised, m):
		return fmt.Errorf("%w: node %q has promised %v", cluster.ErrOtherMap, b.opt.Node, b.promised)
	case b.begun:
		return fmt.Errorf("%w: its commit has begun; ask for it again", ErrCommitted)
	case b.promised == nil && !b.unsure:
		return nil
	}
	var err error
	if now != nil {
		err = b.write(now, nil)
	} else {
		err = b.remove()
	}
	if err != nil {
		return err
	}
	b.promise(nil)
	return nil
}

// Change implements cluster.Authority: both steps at this node alone, or Follow. The
// previous map must be the one in force (nil: none).
func (b *Book) Change(ctx context.Context, previous, next *cluster.Map) error {
	if now := b.Map(); !same(now, previous) {
		return fmt.Errorf("%w: %v", cluster.ErrOtherMap, describe(now))
	}
	if previous != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		if now := b.Map(); !same(now, previous) && !same(now, next) { // another one was followed meanwhile
			return fmt.Errorf("%w: %v", cluster.ErrOtherMap, describe(now))
		}
		return b.follow(ctx, next)
	}
	if err := b.Prepare(ctx, next); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.commit(next)
}

func describe(m *cluster.Map) string {
	if m == nil {
		return "none is in force"
	}
	return m.String()
}

// same reports whether both are nil, or the same map.
func same(a, b *cluster.Map) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Version == b.Version && a.Digest() == b.Digest()
}

// write makes the content of MAP durable: a map in force, a promise, or both; nil: there is none. b.mu is held.
func (b *Book) write(inForce, promised *cluster.Map) error {
	var data []byte
	switch {
	case inForce == nil:
		data = format.AppendMap(nil, format.Promised, promised)
	case promised == nil:
		data = format.AppendMap(nil, format.Committed, inForce)
	default:
		data = format.AppendBoth(nil, inForce, promised)
	}
	b.unsure = true
	if err := wholefile.Replace(b.opt.FS, b.opt.Dir, format.MapFile, data); err != nil {
		return fmt.Errorf("shardmap: the map cannot be made durable: %w", err)
	}
	b.unsure = false
	return nil
}

// remove takes the promise away from the disk. mu is held.
func (b *Book) remove() error {
	b.unsure = true
	if err := wholefile.Remove(b.opt.FS, b.opt.Dir, format.MapFile); err != nil {
		return fmt.Errorf("shardmap: the promise cannot be taken back: %w", err)
	}
	b.unsure = false
	return nil
}
