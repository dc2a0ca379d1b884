package doctor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/feature"
	"github.com/rdmakv/rdmakv/internal/shardmap/format"
)

// doNewer is what helps where a file is of a newer program: nothing is wrong with it, so it is not to be replaced.
const doNewer = "run kvserver and kvclient of the release that the cluster's other nodes have, and leave the directory as it is (docs/operations.md#upgrade)"

// otherNode finds a data directory that belongs to another node or cluster, and
// reads the shard map that is in it. A directory without either is new, or that
// of a server that was alone.
func (e *exam) otherNode(dir string) (stop bool) {
	const name = "data directory"
	if e.set.Gossip == "" {
		if _, err := os.Stat(filepath.Join(dir, format.NodeFile)); err == nil {
			e.bad(Fail, name, dir, CodeDataOther, "gossip.bind and node_id, as before; or another data_dir", "it is that of a node of a cluster, and here gossip.bind is empty")
			return true
		}
		return false
	}
	text, err := readSmall(filepath.Join(dir, format.NodeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	var id format.Identity
	if err == nil {
		id, err = format.ParseIdentity(text)
	}
	if err == nil {
		err = feature.Here().Check(id.Level)
	}
	if errors.Is(err, format.ErrNewer) || errors.Is(err, feature.ErrUnread) {
		e.bad(Fail, name, dir, CodeDataDir, doNewer, "the file %s, which says whose it is: %v", format.NodeFile, err)
		return true
	}
	if err != nil {
		e.bad(Fail, name, dir, CodeDataDir, "from a backup; its content is that of no other node", "the file %s, which says whose it is: %v", format.NodeFile, err)
		return true
	}
	if id.Node != e.set.NodeID || id.Cluster != e.set.Cluster {
		e.bad(Fail, name, dir, CodeDataOther, "another data_dir, or the node_id and cluster.name that it has; never move one node's data under another's name",
			"it is that of node %s of the cluster %s, and not of node %s of %s", id.Node, id.Cluster, e.set.NodeID, e.set.Cluster)
		return true
	}
	return e.shardMap(dir)
}

// shardMap looks at the map that the node has promised or committed.
func (e *exam) shardMap(dir string) (stop bool) {
	text, err := readSmall(filepath.Join(dir, format.MapFile))
	if errors.Is(err, fs.ErrNotExist) {
		e.ok("shard map", dir, "none yet (kvclient cluster init, once all nodes run)")
		return false
	}
	var m, promised *cluster.Map
	if err == nil {
		if m, promised, err = format.ParseMap(text); m == nil {
			m = promised
		}
	}
	switch {
	case errors.Is(err, format.ErrNewer):
		e.bad(Fail, "shard map", dir, CodeDataDir, doNewer, "%v", err)
		return true
	case err != nil:
		e.bad(Fail, "shard map", dir, CodeDataDir, fmt.Sprintf("copy %s from the data directory of any other node of the cluster: it is the same on all", format.MapFile), "%v", err)
		return true
	case !m.Has(e.set.NodeID):
		e.bad(Fail, "shard map", dir, CodeDataOther, "another data_dir", "node %s is not in it: %v", e.set.NodeID, m)
		return true
	case promised != nil && m != promised:
		e.bad(Warn, "shard map", dir, CodeMapPromised, "kvclient cluster upgrade again, which finishes what it has begun", "in force: %v; promised, and not yet in force: %v", m, promised)
	case promised != nil:
		e.bad(Warn, "shard map", dir, CodeMapPromised, "kvclient cluster init again, with the same nodes", "promised, and not yet in force: %v", m)
	default:
		e.ok("shard map", dir, "%v, %d of the shards are this node's", m, len(m.Shards(e.set.NodeID)))
	}
	return false
}

// readSmall reads a file of bounded size.
func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, format.MaxFile+1))
	if err == nil && len(data) > format.MaxFile {
		err = fmt.Errorf("is larger than %d bytes", format.MaxFile)
	}
	return data, err
}
