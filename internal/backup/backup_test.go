package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/store/layout"
)

// cut makes the pieces of records, which have rising keys.
func cut(records []Record) (pieces []*Piece) {
	var c Cutter
	for _, r := range records {
		if p := c.Add(r); p != nil {
			pieces = append(pieces, p)
		}
	}
	if p := c.End(); p != nil {
		pieces = append(pieces, p)
	}
	return pieces
}

func recordsOf(n, size int) (list []Record) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		v := make([]byte, size)
		for j := range v {
			v[j] = byte(rng.Uint32())
		}
		list = append(list, Record{Key: fmt.Appendf(nil, "key %08d", 2*i), Value: v, Expiry: uint64(i % 3)})
	}
	return list
}

// TestPieces: pieces have all records, once and in order, of bounded size, and what is not the piece that was named is refused.
func TestPieces(t *testing.T) {
	all := recordsOf(20_000, 2000)
	all = append(all, Record{Key: []byte("long"), Value: make([]byte, mostBytes+1)}, Record{Key: []byte("longer")})
	pieces := cut(all)
	n := 0
	for i, p := range pieces {
		if i < len(pieces)-1 && len(p.Bytes) < leastBytes || len(p.Bytes) > MaxPiece {
			t.Errorf("piece %d has %d bytes", i, len(p.Bytes))
		}
		err := Records(p.Bytes, p.Sum, p.Keys, func(r Record) error {
			if want := all[n]; !bytes.Equal(r.Key, want.Key) || !bytes.Equal(r.Value, want.Value) || r.Expiry != want.Expiry {
				return fmt.Errorf("record %d is %q", n, r.Key)
			}
			n++
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n != len(all) || len(pieces) < 5 || len(pieces) > 40 {
		t.Errorf("%d records in %d pieces", n, len(pieces))
	}
	small := cut(all[:3])[0]
	for i := range small.Bytes {
		bad := bytes.Clone(small.Bytes)
		bad[i] ^= 1
		err := Records(bad, small.Sum, small.Keys, func(Record) error { t.Fatal("a record of a damaged piece"); return nil })
		if !errors.Is(err, ErrPiece) {
			t.Fatalf("byte %d is not looked at: %v", i, err)
		}
	}
	for _, keys := range []int{0, 2, 4} {
		if err := Records(small.Bytes, small.Sum, keys, func(Record) error { return nil }); !errors.Is(err, ErrPiece) {
			t.Errorf("%d keys of 3: %v", keys, err)
		}
	}
	stop := errors.New("stop")
	if err := Records(small.Bytes, small.Sum, 3, func(Record) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
}

// TestPiecesStay: a key that is written, comes or goes makes few other pieces.
func TestPiecesStay(t *testing.T) {
	all := recordsOf(40_000, 1000)
	before := make(map[Sum]bool)
	for _, p := range cut(all) {
		before[p.Sum] = true
	}
	if len(before) < 6 {
		t.Fatalf("%d pieces", len(before))
	}
	for name, change := range map[string]func([]Record) []Record{
		"written": func(l []Record) []Record {
			l[3].Value = []byte("other")
			return l
		},
		"comes": func(l []Record) []Record {
			return append(l[:4:4], append([]Record{{Key: []byte("key 00000007"), Value: []byte("v")}}, l[4:]...)...)
		},
		"goes": func(l []Record) []Record { return append(l[:4:4], l[5:]...) },
	} {
		other := 0
		for _, p := range cut(change(append([]Record(nil), all...))) {
			if !before[p.Sum] {
				other++
			}
		}
		if other < 1 || other > 2 {
			t.Errorf("a key %s: %d of %d pieces are others", name, other, len(before))
		}
	}
}

// FuzzPiece: Records takes any bytes.
func FuzzPiece(f *testing.F) {
	f.Add(cut(recordsOf(2, 5))[0].Bytes, 2)
	f.Add([]byte(pieceMagic), 0)
	f.Fuzz(func(t *testing.T, b []byte, keys int) {
		var again Cutter
		err := Records(b, sha256.Sum256(b), keys, func(r Record) error {
			again.Add(r)
			return nil
		})
		if err != nil && !errors.Is(err, ErrPiece) {
			t.Error(err)
		}
		if p := again.End(); err == nil && (p == nil || p.Sum != sha256.Sum256(b)) {
			t.Errorf("%x is taken, and has another form", b)
		}
	})
}

func manifestOf(pieces ...Entry) *Manifest {
	return &Manifest{
		Head:   Head{Cluster: "c", ClusterID: "000102030405060708090a0b0c0d0e0f", MapVersion: 1, Shards: 3, Began: 1000, Ended: 2000},
		Groups: []Group{{Group: 1, Index: 7, Term: 1, Leader: "n1", Shards: []uint16{0, 2}}, {Group: 2, Index: 9, Term: 3, Leader: "n2", Shards: []uint16{1}}},
		Pieces: pieces,
	}
}

func entryOf(shard uint16, first string) Entry {
	sum := sha256.Sum256([]byte(first))
	return Entry{Shard: shard, Piece: hex.EncodeToString(sum[:]), Bytes: 100, Keys: 2, First: []byte(first)}
}

// seal makes the end of a manifest fit what is before it.
func seal(m *Manifest) []byte {
	if m.Format == "" {
		m.Format, m.Version = manifestFormat, Version
	}
	return encode(m)
}

// TestManifest: what was encoded is parsed, nothing that was altered is, and nothing that cannot be is, though its checksum fits.
func TestManifest(t *testing.T) {
	b, err := manifestOf(entryOf(0, "a"), entryOf(0, "m"), entryOf(2, "b")).Encode()
	if err != nil {
		t.Fatal(err)
	}
	m, err := Parse(b)
	if err != nil || m.Totals() != (Totals{Groups: 2, Pieces: 3, Keys: 6, Bytes: 300}) || m.Pieces[1].Sum().String() != m.Pieces[1].Piece {
		t.Fatal(m, err)
	}
	for key, want := range map[string]int{"a": 0, "b": 0, "lzz": 0, "m": 1, "z": 1, "A": -1} {
		if e := m.Holding(0, []byte(key)); (e == nil) != (want < 0) || e != nil && e != &m.Pieces[want] {
			t.Errorf("%q: %v", key, e)
		}
	}
	if e := m.Holding(1, []byte("z")); e != nil {
		t.Errorf("a shard without pieces: %v", e)
	}
	for i := range b {
		bad := bytes.Clone(b)
		bad[i] ^= 1
		if _, err := Parse(bad); !errors.Is(err, ErrManifest) && !errors.Is(err, ErrVersion) {
			t.Errorf("byte %d is not looked at: %v", i, err)
		}
		if _, err := Parse(b[:i]); !errors.Is(err, ErrManifest) && !errors.Is(err, ErrVersion) {
			t.Errorf("%d bytes are enough: %v", i, err)
		}
	}
	for name, spoil := range map[string]func(m *Manifest){
		"no shards":            func(m *Manifest) { m.Shards = 0 },
		"too many shards":      func(m *Manifest) { m.Shards = 1 << 17 },
		"a shard of no group":  func(m *Manifest) { m.Groups[1].Shards = nil },
		"a shard of two":       func(m *Manifest) { m.Groups[1].Shards = []uint16{1, 2} },
		"a shard twice":        func(m *Manifest) { m.Groups[1].Shards = []uint16{1, 1} },
		"falling shards":       func(m *Manifest) { m.Groups[0].Shards = []uint16{2, 0} },
		"a shard that is none": func(m *Manifest) { m.Groups[1].Shards = []uint16{1, 3} },
		"a missing group":      func(m *Manifest) { m.Groups = m.Groups[:1] },
		"a group twice":        func(m *Manifest) { m.Groups[1].Group = 1 },
		"group 0":              func(m *Manifest) { m.Groups[0].Group = 0 },
		"no entry":             func(m *Manifest) { m.Groups[0].Index = 0 },
		"no cluster":           func(m *Manifest) { m.ClusterID = "" },
		"no time":              func(m *Manifest) { m.Began = 0 },
		"an end before":        func(m *Manifest) { m.Ended = 999 },
		"a long name":          func(m *Manifest) { m.Cluster = strings.Repeat("x", maxName+1) },
		"a name that blinks":   func(m *Manifest) { m.Cluster = "\x1b[5mc" },
		"a name of two lines":  func(m *Manifest) { m.Groups[0].Leader = "n1\nn2" },
		"a name of a piece":    func(m *Manifest) { m.Pieces[0].Piece = "../../../etc/passwd" },
		"capitals":             func(m *Manifest) { m.Pieces[0].Piece = strings.ToUpper(m.Pieces[0].Piece) },
		"a short name":         func(m *Manifest) { m.Pieces[0].Piece = m.Pieces[0].Piece[2:] },
		"a shard's piece":      func(m *Manifest) { m.Pieces[2].Shard = 3 },
		"a small piece":        func(m *Manifest) { m.Pieces[0].Bytes = 3 },
		"a large piece":        func(m *Manifest) { m.Pieces[0].Bytes = MaxPiece + 1 },
		"no keys":              func(m *Manifest) { m.Pieces[0].Keys = 0 },
		"too many keys":        func(m *Manifest) { m.Pieces[0].Keys = 99 },
		"no first key":         func(m *Manifest) { m.Pieces[0].First = nil },
		"a long first key":     func(m *Manifest) { m.Pieces[0].First = make([]byte, MaxFirst+1) },
		"falling keys":         func(m *Manifest) { m.Pieces[1].First = []byte("A") },
		"falling pieces":       func(m *Manifest) { m.Pieces[1].Shard = 2 },
		"another format":       func(m *Manifest) { m.Format = "x" },
	} {
		m := manifestOf(entryOf(0, "a"), entryOf(0, "m"), entryOf(2, "b"))
		m.Format, m.Version = manifestFormat, Version
		spoil(m)
		if _, err := Parse(seal(m)); !errors.Is(err, ErrManifest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, text := range map[string][]byte{
		"a field that nobody knows": bytes.Replace(b, []byte(`"map_version":1,`), []byte(`"map_version":1,"x":1,`), 1),
		"a space":                   bytes.Replace(b, []byte(`"map_version":1,`), []byte(`"map_version": 1,`), 1),
		"a piece twice":             bytes.Replace(b, []byte("\n{\"shard\":2"), []byte("\n{\"shard\":0}\n{\"shard\":2"), 1),
	} {
		if _, err := Parse(resealed(text)); !errors.Is(err, ErrManifest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	later := manifestOf()
	later.Format, later.Version = manifestFormat, Version+1
	if _, err := Parse(seal(later)); !errors.Is(err, ErrVersion) {
		t.Errorf("another version: %v", err)
	}
}

// FuzzManifest: Parse takes any bytes, whose checksum fits, too.
func FuzzManifest(f *testing.F) {
	f.Add(seal(manifestOf(entryOf(0, "a"), entryOf(2, "b"))))
	f.Add(seal(manifestOf()))
	f.Add([]byte("{}\n{}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, resealed(b)} {
			m, err := Parse(b)
			if err != nil {
				if !errors.Is(err, ErrManifest) && !errors.Is(err, ErrVersion) {
					t.Error(err)
				}
				continue
			}
			if !bytes.Equal(encode(m), b) {
				t.Errorf("%q is taken, and has another form", b)
			}
			for i := range m.Pieces {
				if e := &m.Pieces[i]; e.Sum().String() != e.Piece || m.Holding(e.Shard, e.First) == nil || e.Bytes > MaxPiece {
					t.Errorf("piece %d: %+v", i, e)
				}
			}
		}
	})
}

// resealed has the checksum of what is before the last line in it, if there is one.
func resealed(b []byte) []byte {
	b = bytes.Clone(b)
	if len(b) < 80 {
		return b
	}
	at := bytes.LastIndexByte(b[:len(b)-1], '\n') + 1
	if i := bytes.LastIndex(b, []byte(`"sha256":"`)); i >= at && len(b) >= i+10+64 {
		sum := sha256.Sum256(b[:at])
		copy(b[i+10:], hex.EncodeToString(sum[:]))
	}
	return b
}

// TestMostPieceHoldsAnyRecord: the largest record that there can be is a piece that is taken.
func TestMostPieceHoldsAnyRecord(t *testing.T) {
	var c Cutter
	key := bytes.Repeat([]byte("k"), layout.MaxKeyLen)
	p := c.Add(Record{Key: key, Value: make([]byte, layout.MaxValueLen)})
	if p == nil || Records(p.Bytes, p.Sum, 1, func(Record) error { return nil }) != nil || len(p.First) != MaxFirst {
		t.Error("it is not")
	}
}
