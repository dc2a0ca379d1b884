package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// A manifest is text, a JSON object a line, with no other order of fields than this:
//
//	{"format":"rdmakv cluster backup","version":1,"cluster":NAME,"cluster_id":32 hex digits,"map_version":N,"shards":N,"began":MS,"ended":MS}
//	{"group":1,"index":N,"term":N,"leader":NODE,"shards":[…]}              for each group, by id
//	{"shard":0,"piece":64 hex digits,"bytes":N,"keys":N,"first":BASE64}    for each piece, by shard and key
//	{"groups":N,"pieces":N,"keys":N,"bytes":N,"sha256":64 hex digits}      the end: sha256 is of all lines before
//
// A group is consistent in itself: its pieces have what it had at its entry index, and nothing behind that. Groups are of different moments between began and ended. Times
// are milliseconds since 1970 by the clock of whoever made the backup.
//
// A manifest has one form: what Parse takes is the same bytes when it is encoded again. Another version is refused, because what it leaves out is not known.
const (
	manifestFormat = "rdmakv cluster backup"
	// Version is that of the formats of manifest and piece.
	Version = 1

	// MaxFirst bounds Entry.First, in bytes. It is longer than the key of a part, so that by it a part is found.
	MaxFirst = 64
	// MaxPieces and MaxManifest bound a manifest: 4 TiB in pieces of PieceBytes, and 300 bytes a line.
	MaxPieces   = 1 << 20
	MaxManifest = 320 << 20

	maxGroups = 4096
	maxShards = 1 << 16
	maxLine   = 512 << 10 // a group of all shards
	maxName   = 1024
)

var (
	// ErrManifest: bytes are no manifest, or a damaged one. Nothing of it is used.
	ErrManifest = errors.New("backup: a damaged manifest")
	// ErrVersion: the manifest is of another version of this program.
	ErrVersion = errors.New("backup: a manifest of another version")
)

// A Manifest says what a backup consists of.
type Manifest struct {
	Head
	Groups []Group // by id
	Pieces []Entry // by shard and key
}

// A Head says of what a backup is, and of when.
type Head struct {
	Format     string `json:"format"`
	Version    int    `json:"version"`
	Cluster    string `json:"cluster"`
	ClusterID  string `json:"cluster_id"`
	MapVersion uint64 `json:"map_version"`
	Shards     int    `json:"shards"` // that the cluster's keys are spread over
	Began      int64  `json:"began"`
	Ended      int64  `json:"ended"`
}

// A Group is one group of the cluster.
type Group struct {
	Group  uint32   `json:"group"`
	Index  uint64   `json:"index"`
	Term   uint64   `json:"term"`
	Leader string   `json:"leader"` // the node that it was copied from
	Shards []uint16 `json:"shards"` // rising
}

// An Entry is one piece.
type Entry struct {
	Shard uint16 `json:"shard"`
	Piece string `json:"piece"`
	Bytes int64  `json:"bytes"`
	Keys  int    `json:"keys"`
	First []byte `json:"first"` // of the first key the first MaxFirst bytes
}

// Sum is the name of the piece. The entry is a parsed manifest's.
func (e *Entry) Sum() (s Sum) {
	_, _ = hex.Decode(s[:], []byte(e.Piece))
	return s
}

// Totals are the sums over all pieces.
type Totals struct {
	Groups int   `json:"groups"`
	Pieces int   `json:"pieces"`
	Keys   int64 `json:"keys"`
	Bytes  int64 `json:"bytes"`
}

type end struct {
	Totals
	SHA256 string `json:"sha256"`
}

// Totals returns the sums over all pieces.
func (m *Manifest) Totals() Totals {
	t := Totals{Groups: len(m.Groups), Pieces: len(m.Pieces)}
	for i := range m.Pieces {
		t.Keys += int64(m.Pieces[i].Keys)
		t.Bytes += m.Pieces[i].Bytes
	}
	return t
}

// Encode returns the bytes of a manifest, whose lists are in order. Format and Version are filled in.
//
// Errors: ErrManifest if Parse would refuse them.
func (m *Manifest) Encode() ([]byte, error) {
	m.Format, m.Version = manifestFormat, Version
	b := encode(m)
	if _, err := Parse(b); err != nil {
		return nil, err
	}
	return b, nil
}

// encode is Encode without the look at what comes out.
func encode(m *Manifest) []byte {
	var b bytes.Buffer
	line := func(v any) {
		text, _ := json.Marshal(v) // plain structs: it never fails
		b.Write(append(text, '\n'))
	}
	line(&m.Head)
	for i := range m.Groups {
		line(&m.Groups[i])
	}
	for i := range m.Pieces {
		line(&m.Pieces[i])
	}
	sum := sha256.Sum256(b.Bytes())
	line(&end{m.Totals(), hex.EncodeToString(sum[:])})
	return b.Bytes()
}

// Parse reads a manifest. It takes any bytes, and needs memory for what they have, at most MaxManifest. Every piece is of a shard of one of the groups, which have each shard once; sizes and numbers are bounded.
//
// Errors: ErrManifest, ErrVersion.
func Parse(b []byte) (*Manifest, error) {
	bad := func(format string, args ...any) (*Manifest, error) {
		return nil, fmt.Errorf("%w: %s", ErrManifest, fmt.Sprintf(format, args...))
	}
	if len(b) == 0 || len(b) > MaxManifest || b[len(b)-1] != '\n' {
		return bad("%d bytes, and no end of a line", len(b))
	}
	m := new(Manifest)
	head, rest, _ := bytes.Cut(b, []byte("\n"))
	if len(head) > maxLine || json.Unmarshal(head, &m.Head) != nil || m.Format != manifestFormat {
		return bad("its first line is not that of a backup")
	}
	if m.Version != Version {
		return nil, fmt.Errorf("%w: version %d, and this program knows %d: use the release that made it", ErrVersion, m.Version, Version)
	}
	cut := bytes.LastIndexByte(b[:len(b)-1], '\n') + 1
	var e end
	if cut == 0 || len(b)-cut > maxLine || json.Unmarshal(b[cut:], &e) != nil {
		return bad("it has no end: it was cut off")
	}
	if sum := sha256.Sum256(b[:cut]); e.SHA256 != hex.EncodeToString(sum[:]) {
		return bad("its checksum does not fit")
	}
	rest = rest[:len(rest)-(len(b)-cut)]
	for n := 2; len(rest) > 0; n++ {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\n"))
		if len(line) > maxLine || len(m.Groups) > maxGroups || len(m.Pieces) > MaxPieces {
			return bad("line %d is too long, or there are too many", n)
		}
		var of any
		if bytes.HasPrefix(line, []byte(`{"group":`)) && len(m.Pieces) == 0 {
			m.Groups = append(m.Groups, Group{})
			of = &m.Groups[len(m.Groups)-1]
		} else {
			m.Pieces = append(m.Pieces, Entry{})
			of = &m.Pieces[len(m.Pieces)-1]
		}
		if err := json.Unmarshal(line, of); err != nil {
			return bad("line %d: %v", n, err)
		}
		if !isForm(line, of) {
			return bad("line %d has another form", n)
		}
	}
	if why := m.check(); why != "" {
		return bad("%s", why)
	}
	if e.Totals != m.Totals() || !isForm(head, &m.Head) || !isForm(b[cut:len(b)-1], &e) {
		return bad("its end does not fit what is before it, or it has another form")
	}
	return m, nil
}

// isForm says whether a line is what Encode makes of what it says.
func isForm(line []byte, of any) bool {
	text, err := json.Marshal(of)
	return err == nil && bytes.Equal(text, line)
}

// check says what is impossible in a manifest; "": nothing.
func (m *Manifest) check() string {
	id, err := hex.DecodeString(m.ClusterID)
	if err != nil || len(id) != 16 || m.Shards < 1 || m.Shards > maxShards || !isName(m.Cluster) || m.Began <= 0 || m.Ended < m.Began {
		return "its first line has what cannot be"
	}
	seen := make(map[uint16]bool)
	for i := range m.Groups {
		g := &m.Groups[i]
		if g.Group == 0 || i > 0 && m.Groups[i-1].Group >= g.Group || g.Index == 0 || len(g.Shards) == 0 || !slices.IsSorted(g.Shards) || !isName(g.Leader) {
			return fmt.Sprintf("group %d cannot be", g.Group)
		}
		for _, s := range g.Shards {
			if int(s) >= m.Shards || seen[s] {
				return fmt.Sprintf("group %d has shard %d, which is another's, or not there", g.Group, s)
			}
			seen[s] = true
		}
	}
	if len(seen) != m.Shards {
		return fmt.Sprintf("its groups have %d shards of %d", len(seen), m.Shards)
	}
	for i := range m.Pieces {
		p := &m.Pieces[i]
		sum, err := hex.DecodeString(p.Piece)
		switch {
		case err != nil || len(sum) != sha256.Size || p.Piece != hex.EncodeToString(sum), !seen[p.Shard]:
			return fmt.Sprintf("piece %d has no possible name or shard", i)
		case p.Bytes < int64(len(pieceMagic)+recordHead) || p.Bytes > MaxPiece || p.Keys < 1 || int64(p.Keys) > p.Bytes/(recordHead+1) || len(p.First) == 0 || len(p.First) > MaxFirst:
			return fmt.Sprintf("piece %d has no possible size", i)
		case i > 0 && (m.Pieces[i-1].Shard > p.Shard || m.Pieces[i-1].Shard == p.Shard && bytes.Compare(m.Pieces[i-1].First, p.First) > 0):
			return fmt.Sprintf("piece %d is not behind the one before", i)
		}
	}
	return ""
}

// isName says whether a text can be a name, which is shown as it is: nothing in it makes a terminal do anything.
func isName(text string) bool {
	return len(text) <= maxName && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

// Holding returns the piece that has a key of a shard, if any has; nil: none can have it. The key has MaxFirst bytes at most.
func (m *Manifest) Holding(shard uint16, key []byte) *Entry {
	i, found := slices.BinarySearchFunc(m.Pieces, key, func(e Entry, key []byte) int {
		if e.Shard != shard {
			return int(e.Shard) - int(shard)
		}
		return bytes.Compare(e.First, key)
	})
	if !found {
		i--
	}
	if i < 0 || m.Pieces[i].Shard != shard {
		return nil
	}
	return &m.Pieces[i]
}
