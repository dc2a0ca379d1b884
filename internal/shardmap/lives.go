package shardmap

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/shardmap/format"
	"github.com/rdmakv/rdmakv/internal/wholefile"
)

// Lives is what tells a data directory from an older copy of it (R18). Each start of a node is noted in its own directory before anybody hears
// of it, and the newest start of each other node before anything counts that this node says in it:
//
//	a node      its directory knows of all its own starts, so it can tell them
//	the others  remember one of them
//
// A directory that was set back to an earlier state does not know of the starts since, however often it was started anew. A node that has
// forgotten what it promised in them must not be a replica: it could vote twice in a term, or make a majority without an entry that it had.
//
// Nothing is known of a directory that was set back to a state within the start that the others remember, as a snapshot of the disk of a
// running node is: its node has to be stopped while its directory is copied.
//
// Safe for concurrent use.
type Lives struct {
	fs  vfs.FS
	dir string
	own []format.Opening // the newest, which is this start, first

	mu   sync.Mutex // held while the disk is waited for
	seen []format.Seen
}

// ErrSetBack: a node's data directory does not know of a start that was seen of it.
var ErrSetBack = errors.New("shardmap: the data directory was set back")

// OpenLives reads what the directory has, and notes this start in it, durably. fsys nil: the machine's. No other process may have the
// directory open.
//
// Errors: a file that is damaged or newer; the file system's.
func OpenLives(fsys vfs.FS, dir string, this format.Opening) (*Lives, error) {
	if fsys == nil {
		fsys = vfs.Default
	}
	l := &Lives{fs: fsys, dir: dir}
	var had format.Lives
	data, err := wholefile.Read(fsys, fsys.PathJoin(dir, format.LivesFile), format.MaxFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("shardmap: %w", err)
	default:
		if had, err = format.ParseLives(data); err != nil {
			return nil, fmt.Errorf("shardmap: %s is %w: it says which starts of nodes were seen, and without it this node's replicas are not believed: put it back from the disk's newest copy",
				fsys.PathJoin(dir, format.LivesFile), err)
		}
	}
	l.own = append([]format.Opening{this}, had.Own...)
	l.own = l.own[:min(len(l.own), format.MaxOpenings)]
	l.seen = had.Seen
	return l, l.write(l.seen)
}

// Own are the starts of this directory that it knows of, this one first. Not to be changed.
func (l *Lives) Own() []format.Opening { return l.own }

// Admit notes, durably, that a node is in the newest of its openings, which is the first, and returns nil if it may speak in it.
//
// Errors: ErrSetBack, if the node has been in one that is none of its openings, which is returned; an opening that is older than all of a
// full list is taken to be one of them. What the disk says: then the node must not be heard, and may ask again.
func (l *Lives) Admit(node string, openings []format.Opening) (seen format.Opening, err error) {
	if len(openings) == 0 || openings[0].Incarnation == 0 {
		return seen, fmt.Errorf("shardmap: node %.64q tells of no start of its own", node)
	}
	if err := cluster.CheckNodeID(node); err != nil { // with such a name the file could not be read again
		return seen, fmt.Errorf("shardmap: a node that cannot be in a cluster: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	i, found := slices.BinarySearchFunc(l.seen, node, func(s format.Seen, node string) int { return cmp.Compare(s.Node, node) })
	if found {
		seen = l.seen[i].Opening
		if seen == openings[0] {
			return seen, nil
		}
		last := openings[len(openings)-1]
		if !slices.Contains(openings, seen) && (len(openings) < format.MaxOpenings || last.Epoch <= seen.Epoch) {
			return seen, fmt.Errorf("%w: node %q does not know of its own start in epoch %d", ErrSetBack, node, seen.Epoch)
		}
	} else if len(l.seen) >= cluster.MaxNodes {
		return seen, fmt.Errorf("shardmap: %d nodes have been seen, and more cannot be in a cluster", len(l.seen))
	}
	next := slices.Clone(l.seen)
	if !found {
		next = slices.Insert(next, i, format.Seen{Node: node})
	}
	next[i].Opening = openings[0]
	if err := l.write(next); err != nil {
		return seen, err
	}
	l.seen = next
	return openings[0], nil
}

// write makes the content of LIVES durable.
func (l *Lives) write(seen []format.Seen) error {
	if err := wholefile.Replace(l.fs, l.dir, format.LivesFile, format.AppendLives(nil, format.Lives{Own: l.own, Seen: seen})); err != nil {
		return fmt.Errorf("shardmap: what was seen of other nodes cannot be made durable: %w", err)
	}
	return nil
}
