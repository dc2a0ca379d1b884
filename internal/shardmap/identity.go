package shardmap

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/feature"
	"github.com/rdmakv/rdmakv/internal/shardmap/format"
	"github.com/rdmakv/rdmakv/internal/wholefile"
)

// Identities that do not fit together.
var (
	// ErrOtherNode: the directory belongs to another node, or to the same one
	// in another cluster.
	ErrOtherNode = errors.New("shardmap: the data directory belongs to another node")
	// ErrClustered: the directory belongs to a node of a cluster that has a map,
	// and a server that is alone would answer for keys which are not here.
	ErrClustered = errors.New("shardmap: the data directory belongs to a node of a cluster")
)

// ReadIdentity says to which node the directory belongs. It changes nothing, and
// a server may be running on it. The error is fs.ErrNotExist if it belongs to no
// node; else that of format.ParseIdentity.
func ReadIdentity(fsys vfs.FS, dir string) (format.Identity, error) {
	if fsys == nil {
		fsys = vfs.Default
	}
	path := fsys.PathJoin(dir, format.NodeFile)
	b, err := wholefile.Read(fsys, path, format.MaxFile)
	if err != nil {
		return format.Identity{}, err
	}
	id, err := format.ParseIdentity(b)
	if err != nil {
		return id, fmt.Errorf("shardmap: %s is %w", path, err)
	}
	return id, nil
}

// CheckIdentity says whether want may use the directory, whatever its Level: it belongs to no node
// yet, or to this very node. It changes nothing, so it can be asked before a
// store is opened. The errors are ErrOtherNode and those of reading.
func CheckIdentity(fsys vfs.FS, dir string, want format.Identity) error {
	id, err := ReadIdentity(fsys, dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case id.Node != want.Node || id.Cluster != want.Cluster:
		return fmt.Errorf("%w: %s is node %q of cluster %q, and this server was to be node %q of cluster %q: give it its own data_dir, or node_id and cluster.name of before",
			ErrOtherNode, dir, id.Node, id.Cluster, want.Node, want.Cluster)
	}
	return nil
}

// Raise notes durably in the directory of a node that its cluster is at a feature level, unless it says so of that one or of a higher one already, and returns the level
// that it says now. A crash leaves the old one or the new one. The caller lets nobody else write NODE meanwhile. Errors: those of ReadIdentity and of the disk; then the level that was read before is
// in force, and the new one may be after a crash.
func Raise(fsys vfs.FS, dir string, level feature.Level) (feature.Level, error) {
	if fsys == nil {
		fsys = vfs.Default
	}
	id, err := ReadIdentity(fsys, dir)
	if err != nil || id.Level >= level {
		return id.Level, err
	}
	was := id.Level
	id.Level = level
	if err := wholefile.Replace(fsys, dir, format.NodeFile, format.AppendIdentity(nil, id)); err != nil {
		return was, fmt.Errorf("shardmap: the cluster's feature level cannot be made durable: %w", err)
	}
	return level, nil
}

// Claim makes the directory belong to want, durably, unless it does already.
func Claim(fsys vfs.FS, dir string, want format.Identity) error {
	if err := CheckIdentity(fsys, dir, want); err != nil {
		return err
	}
	if fsys == nil {
		fsys = vfs.Default
	}
	if _, err := ReadIdentity(fsys, dir); err == nil {
		return nil
	}
	if err := wholefile.Replace(fsys, dir, format.NodeFile, format.AppendIdentity(nil, want)); err != nil {
		return fmt.Errorf("shardmap: the node's identity cannot be made durable: %w", err)
	}
	return nil
}

// CheckAlone says whether a server without a cluster may use the directory. It
// may not if the directory has a map, or the promise of one: ErrClustered.
func CheckAlone(fsys vfs.FS, dir string) error {
	if fsys == nil {
		fsys = vfs.Default
	}
	if _, err := fsys.Stat(fsys.PathJoin(dir, format.MapFile)); err != nil {
		return nil // none; if a directory cannot be read, the store reports it
	}
	id, _ := ReadIdentity(fsys, dir)
	return fmt.Errorf("%w: %s is node %q of cluster %q and holds a part of the keys: start it with its node_id and gossip.bind, or make a store of its own out of it with kvserver backup and restore",
		ErrClustered, dir, id.Node, id.Cluster)
}
