package disk

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/layout"
)

// TestNoted: a record whose value stands apart is read as it was written, and no other
// bytes are; ParseRecord refuses it.
func TestNoted(t *testing.T) {
	value := bytes.Repeat([]byte("v"), SeparateFrom)
	pkey := AppendKey(nil, 7, KindData, []byte("key"))
	for _, expiry := range []uint64{0, 17} {
		b := make([]byte, NotedSize(expiry != 0))
		PutNoted(b, pkey, 9, expiry, NoteOf(value))
		r, n, apart, err := ParseNoted(b, pkey)
		if err != nil || !apart || r.Version != 9 || r.Expiry != expiry || n != NoteOf(value) || r.Value != nil {
			t.Fatalf("read %+v, %+v, %v, %v", r, n, apart, err)
		}
		if _, err := ParseRecord(b, pkey); err == nil {
			t.Fatal("ParseRecord takes a record whose value stands apart")
		}
		for i := range b {
			for bit := range 8 {
				b[i] ^= 1 << bit
				if _, _, _, err := ParseNoted(b, pkey); err == nil {
					t.Fatalf("byte %d bit %d flipped: accepted", i, bit)
				}
				b[i] ^= 1 << bit
			}
			if _, _, _, err := ParseNoted(b[:i], pkey); err == nil {
				t.Fatalf("cut to %d bytes: accepted", i)
			}
		}
		if _, _, _, err := ParseNoted(append(b, 0), pkey); err == nil {
			t.Fatal("a byte too many: accepted")
		}
	}
	b := make([]byte, RecordSize(3, true))
	PutRecord(b, pkey, Record{Version: 3, Expiry: 4, Value: []byte("abc")})
	if r, _, apart, err := ParseNoted(b, pkey); err != nil || apart || string(r.Value) != "abc" || r.Expiry != 4 {
		t.Fatalf("a record with its value: %+v, %v, %v", r, apart, err)
	}
}

// TestNotedPinned fails when the bytes on the disk change.
func TestNotedPinned(t *testing.T) {
	pkey := AppendKey(nil, 0x0102, KindData, []byte("k"))
	b := make([]byte, NotedSize(true))
	PutNoted(b, pkey, 5, 9, Note{Length: 0x1000, Sum: 0x1122334455667788})
	const want = "0103000000000000" + "0500000000000000" + "0900000000000000" + notedSumPinned + "0010000000000000" + "8877665544332211"
	if got := hex.EncodeToString(b); got != want {
		t.Errorf("record %s, want %s", got, want)
	}
	if KindValue != 5 || KindValue <= KindExpiry {
		t.Errorf("kind value is %d: it must stand behind all others of its shard", KindValue)
	}
}

const notedSumPinned = "4d87964592b68bc7"

// TestMatches: a value of another version, length or content is refused.
func TestMatches(t *testing.T) {
	n := NoteOf([]byte("value"))
	for _, tc := range []struct {
		v     layout.Version
		value Record
		good  bool
	}{
		{3, Record{Version: 3, Value: []byte("value")}, true},
		{4, Record{Version: 3, Value: []byte("value")}, false},
		{3, Record{Version: 3, Value: []byte("valu")}, false},
		{3, Record{Version: 3, Value: []byte("valuf")}, false},
	} {
		if err := n.Matches(tc.v, tc.value); (err == nil) != tc.good {
			t.Errorf("version %v with %+v: %v", tc.v, tc.value, err)
		}
	}
}

func FuzzParseNoted(f *testing.F) {
	for _, expiry := range []uint64{0, 2} {
		placed := make([]byte, PlacedSize(expiry != 0))
		PutPlaced(placed, []byte("pkey"), 1, expiry, &base.Bytes{Table: 9, Number: 4, Length: 70_000, Sum: 3})
		f.Add(placed, []byte("pkey"))
		b := make([]byte, NotedSize(expiry != 0))
		PutNoted(b, []byte("pkey"), 1, expiry, Note{Length: 1024, Sum: 3})
		f.Add(b, []byte("pkey"))
	}
	f.Add([]byte{1, 2}, []byte{})
	f.Fuzz(func(t *testing.T, b, pkey []byte) {
		r, n, apart, err := ParseNoted(b, pkey)
		if err != nil || !apart {
			return
		}
		// What parses is what would be written, but for reserved bytes and for an expiry
		// of zero.
		again, end := make([]byte, NotedSize(r.Expiry != 0)), noteLen
		PutNoted(again, pkey, r.Version, r.Expiry, n)
		if n.Table != 0 {
			again, end = make([]byte, PlacedSize(r.Expiry != 0)), noteLen+placeLen
			PutPlaced(again, pkey, r.Version, r.Expiry, &base.Bytes{Table: n.Table, Number: n.Number, Length: n.Length, Sum: n.Sum})
		}
		if r.Expiry != 0 && len(again) != len(b) || !bytes.Equal(again[len(again)-end:], b[len(b)-end:]) {
			t.Fatalf("%x parsed, %x written", b, again)
		}
	})
}
