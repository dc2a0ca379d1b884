package format

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// LivesFile is the name of the third file: which starts of its own directory a node knows of, and which start of each other node it has seen.
const LivesFile = "LIVES"

// An Opening is one start of a node on its data directory.
type Opening struct {
	Epoch       uint64 // of the versions that it gives out; no lower than that of the start before
	Incarnation uint64 // random, never 0
}

// MaxOpenings is how many starts of its own a node knows of at most.
const MaxOpenings = 64

// Lives is the content of LIVES.
type Lives struct {
	Own  []Opening // the newest first; at most MaxOpenings
	Seen []Seen    // by Node, rising; at most cluster.MaxNodes
}

// Seen is the newest start of another node that this one has let speak.
type Seen struct {
	Node string
	Opening
}

// livesVersion is that of LIVES.
const livesVersion = 1

var livesMagic = [8]byte{'r', 'k', 'v', ' ', 'l', 'i', 'v', livesVersion}

const (
	livesFixed  = 8 + 2 + 2 + 4
	openingSize = 8 + 8
	// MaxLives bounds LIVES, in bytes.
	MaxLives = livesFixed + MaxOpenings*openingSize + cluster.MaxNodes*(1+cluster.MaxName+openingSize) + sha256.Size
)

// AppendLives appends the content of LIVES:
//
//	┌magic and version┬own count┬seen count┬ 0 ┬own: epoch┬incarnation┬…┬seen: length┬node┬epoch┬incarnation┬…┬SHA-256┐
//	└8                ┴2        ┴2         ┴4  ┴8         ┴8          ┴…┴1           ┴…   ┴8    ┴8          ┴…┴32     ┘
func AppendLives(dst []byte, l Lives) []byte {
	start := len(dst)
	dst = append(dst, livesMagic[:]...)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(l.Own)))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(l.Seen)))
	dst = append(dst, 0, 0, 0, 0)
	put := func(o Opening) {
		dst = binary.LittleEndian.AppendUint64(dst, o.Epoch)
		dst = binary.LittleEndian.AppendUint64(dst, o.Incarnation)
	}
	for _, o := range l.Own {
		put(o)
	}
	for _, s := range l.Seen {
		dst = append(dst, byte(len(s.Node)))
		dst = append(dst, s.Node...)
		put(s.Opening)
	}
	sum := sha256.Sum256(dst[start:])
	return append(dst, sum[:]...)
}

// ParseLives reads LIVES. Errors wrap ErrDamaged or ErrNewer.
func ParseLives(b []byte) (l Lives, err error) {
	if len(b) < livesFixed+sha256.Size || len(b) > MaxLives || !bytes.Equal(b[:7], livesMagic[:7]) {
		return l, fmt.Errorf("%w: it does not begin as it should", ErrDamaged)
	}
	end := len(b) - sha256.Size
	if sum := sha256.Sum256(b[:end]); !bytes.Equal(sum[:], b[end:]) {
		return l, fmt.Errorf("%w: the checksum does not fit", ErrDamaged)
	}
	if b[7] > livesVersion {
		return l, ErrNewer
	}
	own, seen := int(binary.LittleEndian.Uint16(b[8:])), int(binary.LittleEndian.Uint16(b[10:]))
	rest, sound := b[livesFixed:end], own <= MaxOpenings && seen <= cluster.MaxNodes
	opening := func() (o Opening) {
		if len(rest) < openingSize {
			sound = false
			return o
		}
		o = Opening{binary.LittleEndian.Uint64(rest), binary.LittleEndian.Uint64(rest[8:])}
		rest, sound = rest[openingSize:], sound && o.Incarnation != 0
		return o
	}
	for i := 0; i < own && sound; i++ {
		l.Own = append(l.Own, opening())
	}
	for i := 0; i < seen && sound; i++ {
		if len(rest) == 0 || len(rest) < 1+int(rest[0]) {
			sound = false
			break
		}
		s := Seen{Node: string(rest[1 : 1+rest[0]])}
		rest = rest[1+len(s.Node):]
		s.Opening = opening()
		sound = sound && cluster.CheckNodeID(s.Node) == nil && (i == 0 || l.Seen[i-1].Node < s.Node)
		l.Seen = append(l.Seen, s)
	}
	if !sound || len(rest) > 0 || b[7] != livesVersion || !bytes.Equal(b[12:livesFixed], make([]byte, 4)) {
		return Lives{}, fmt.Errorf("%w: its content makes no sense", ErrDamaged)
	}
	return l, nil
}
