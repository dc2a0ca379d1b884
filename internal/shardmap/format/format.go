// Package format is the bytes of the files that tell a node of a cluster,
// after any crash, its identity, what it has promised, and whom it has seen. It does not access
// the disk, so tools may read the files without the package that keeps them
// (package shardmap).
//
//	NODE   text: the node's id and the cluster's name, written once; and the cluster's feature level, when that rises
//	MAP    the shard map that the node has promised or committed, or both: one in force, and the next one
//	LIVES  which starts of its own a node knows of, and which of other nodes it has seen (lives.go)
//
// All end in a checksum over everything before it, so a damaged file is found,
// and never half believed.
package format

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/feature"
)

// Names of the files in the data directory.
const (
	NodeFile = "NODE"
	MapFile  = "MAP"
)

// MaxFile bounds either file, in bytes. MAP has two maps at most.
const MaxFile = 2*cluster.MaxMap + 1024

// ErrDamaged: a file is not as it was written.
var ErrDamaged = errors.New("damaged")

// ErrNewer: a file was written by a newer version of this program.
var ErrNewer = errors.New("written by a newer version of this program")

// version of MAP with one map, and of NODE at feature level 0: see AppendIdentity. versionBoth is that of MAP with a map in force and the next one.
const (
	version     = 1
	versionBoth = 2
)

// An Identity says to which node a data directory belongs.
type Identity struct {
	Node    string // node_id
	Cluster string // cluster.name
	// Level is the highest feature level of the cluster that the node has heard of. A program that does not read it does not start on the directory.
	Level feature.Level
}

const nodeMagic = "rdmakv node"

// AppendIdentity appends the content of NODE: lines of "name value", the last
// one with the SHA-256 of those above it.
//
//	rdmakv node
//	format 1            2 at feature levels above 0, which programs refuse that know no levels
//	node NODE
//	cluster NAME
//	level LEVEL         in format 2 alone
//	sum SHA-256
func AppendIdentity(dst []byte, id Identity) []byte {
	start := len(dst)
	dst = fmt.Appendf(dst, "%s\nformat %d\nnode %s\ncluster %s\n", nodeMagic, feature.Of(id.Level).Node, id.Node, id.Cluster)
	if id.Level > 0 {
		dst = fmt.Appendf(dst, "level %d\n", id.Level)
	}
	sum := sha256.Sum256(dst[start:])
	return fmt.Appendf(dst, "sum %x\n", sum)
}

// ParseIdentity reads NODE. Errors wrap ErrDamaged or ErrNewer.
func ParseIdentity(b []byte) (id Identity, err error) {
	text, found := strings.CutPrefix(string(b), nodeMagic+"\nformat ")
	if !found || len(b) > 1024 {
		return id, fmt.Errorf("%w: it does not begin as it should", ErrDamaged)
	}
	var v int
	if n, err := fmt.Sscanf(text, "%d\n", &v); n == 1 && err == nil && v > int(feature.Of(feature.Here().Newest).Node) {
		return id, ErrNewer
	}
	at := strings.LastIndex(string(b), "sum ")
	if at < 0 {
		return id, fmt.Errorf("%w: it has no checksum", ErrDamaged)
	}
	lines := strings.Split(text, "\n")
	if len(lines) == 6 {
		level, err := strconv.ParseUint(strings.TrimPrefix(lines[3], "level "), 10, 8)
		if err != nil {
			return id, fmt.Errorf("%w: its feature level makes no sense", ErrDamaged)
		}
		id.Level = feature.Level(level)
	}
	if len(lines) == 5 || len(lines) == 6 {
		id.Node = strings.TrimPrefix(lines[1], "node ")
		id.Cluster = strings.TrimPrefix(lines[2], "cluster ")
	}
	// Equal to what would be written, to the last byte, or not ours.
	if !bytes.Equal(AppendIdentity(nil, id), b) || cluster.CheckNodeID(id.Node) != nil || cluster.CheckName(id.Cluster) != nil {
		return Identity{}, fmt.Errorf("%w: the checksum does not fit", ErrDamaged)
	}
	return id, nil
}

// A State is how far a map has come at this node.
type State uint8

const (
	Promised  State = 1 // this map and no other
	Committed State = 2 // in force
)

var mapMagic = [8]byte{'r', 'k', 'v', ' ', 'm', 'a', 'p', version}

const mapFixed = 8 + 1 + 3 + 4

// AppendMap appends the content of MAP:
//
//	┌magic and version┬state┬ 0 ┬length┬map, see cluster.AppendMap┬SHA-256┐
//	└8                ┴1    ┴3  ┴4     ┴…                         ┴32     ┘
//
// It is the same on every node of a cluster.
func AppendMap(dst []byte, s State, m *cluster.Map) []byte {
	start := len(dst)
	body := cluster.AppendMap(nil, m)
	dst = append(dst, mapMagic[:]...)
	dst = append(dst, byte(s), 0, 0, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(body)))
	dst = append(dst, body...)
	sum := sha256.Sum256(dst[start:])
	return append(dst, sum[:]...)
}

// AppendBoth appends the content of MAP at a node that has a map in force and has promised the next one. A program that knows no such promise does not start on it, because the others may put
// that map in force.
//
//	┌magic and version 2┬1┬ 0 ┬length┬map in force┬length┬the promised one┬SHA-256┐
//	└8                  ┴1┴3  ┴4     ┴…           ┴4     ┴…               ┴32     ┘
func AppendBoth(dst []byte, inForce, promised *cluster.Map) []byte {
	start := len(dst)
	dst = append(dst, mapMagic[:7]...)
	dst = append(dst, versionBoth, byte(Promised), 0, 0, 0)
	for _, m := range [...]*cluster.Map{inForce, promised} {
		body := cluster.AppendMap(nil, m)
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(body)))
		dst = append(dst, body...)
	}
	sum := sha256.Sum256(dst[start:])
	return append(dst, sum[:]...)
}

// ParseMap reads MAP: the map in force and the one that is promised, one of which may be nil. Errors wrap ErrDamaged or ErrNewer.
func ParseMap(b []byte) (inForce, promised *cluster.Map, err error) {
	if len(b) > 7 && b[7] == versionBoth && bytes.Equal(b[:7], mapMagic[:7]) {
		return parseBoth(b)
	}
	s, m, err := parseOne(b)
	if s == Committed {
		return m, nil, err
	}
	return nil, m, err
}

// parseBoth reads what AppendBoth wrote.
func parseBoth(b []byte) (inForce, promised *cluster.Map, err error) {
	end := len(b) - sha256.Size
	if len(b) > MaxFile || end < 12 {
		return nil, nil, fmt.Errorf("%w: it does not begin as it should", ErrDamaged)
	}
	if sum := sha256.Sum256(b[:end]); !bytes.Equal(sum[:], b[end:]) {
		return nil, nil, fmt.Errorf("%w: the checksum does not fit", ErrDamaged)
	}
	if State(b[8]) != Promised || b[9]|b[10]|b[11] != 0 {
		return nil, nil, fmt.Errorf("%w: its head makes no sense", ErrDamaged)
	}
	var maps [2]*cluster.Map
	rest := b[12:end]
	for i := range maps {
		if len(rest) < 4 || uint64(binary.LittleEndian.Uint32(rest)) > uint64(len(rest)-4) {
			return nil, nil, fmt.Errorf("%w: it ends within a map", ErrDamaged)
		}
		n := int(binary.LittleEndian.Uint32(rest))
		if maps[i], err = cluster.ParseMap(rest[4 : 4+n]); err != nil {
			return nil, nil, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		rest = rest[4+n:]
	}
	if len(rest) > 0 {
		return nil, nil, fmt.Errorf("%w: it goes on behind its maps", ErrDamaged)
	}
	if err := cluster.CheckChange(maps[0], maps[1]); err != nil || maps[0].Version == maps[1].Version {
		return nil, nil, fmt.Errorf("%w: the map that is promised does not follow the one in force: %v", ErrDamaged, err)
	}
	return maps[0], maps[1], nil
}

// parseOne reads what AppendMap wrote.
func parseOne(b []byte) (State, *cluster.Map, error) {
	if len(b) < mapFixed+sha256.Size || len(b) > MaxFile || !bytes.Equal(b[:7], mapMagic[:7]) {
		return 0, nil, fmt.Errorf("%w: it does not begin as it should", ErrDamaged)
	}
	end := len(b) - sha256.Size
	if sum := sha256.Sum256(b[:end]); !bytes.Equal(sum[:], b[end:]) {
		return 0, nil, fmt.Errorf("%w: the checksum does not fit", ErrDamaged)
	}
	if b[7] > versionBoth {
		return 0, nil, ErrNewer
	}
	s := State(b[8])
	n := binary.LittleEndian.Uint32(b[12:])
	if b[7] != version || s != Promised && s != Committed || b[9]|b[10]|b[11] != 0 || uint64(n) != uint64(end-mapFixed) {
		return 0, nil, fmt.Errorf("%w: its head makes no sense", ErrDamaged)
	}
	m, err := cluster.ParseMap(b[mapFixed:end])
	if err != nil {
		return 0, nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return s, m, nil
}

// Short is the first bytes of a cluster's id, as people see it.
func Short(id [16]byte) string { return hex.EncodeToString(id[:4]) }
