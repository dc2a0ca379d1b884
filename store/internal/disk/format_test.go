package disk

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/store/layout"
)

func TestRecord(t *testing.T) {
	for _, tc := range []struct {
		name string
		r    Record
	}{
		{"empty", Record{Version: 1}},
		{"plain", Record{Version: layout.MakeVersion(3, 9), Value: []byte("value")}},
		{"expiry", Record{Version: layout.MaxVersion, Expiry: 17, Value: []byte("value")}},
		{"meta", Record{Value: []byte("fact")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pkey := AppendKey(nil, 7, KindData, []byte("key"))
			b := make([]byte, RecordSize(len(tc.r.Value), tc.r.Expiry != 0))
			PutRecord(b, pkey, tc.r)
			got, err := ParseRecord(b, pkey)
			if err != nil || got.Version != tc.r.Version || got.Expiry != tc.r.Expiry || !bytes.Equal(got.Value, tc.r.Value) {
				t.Fatalf("parsed %+v, %v; wrote %+v", got, err, tc.r)
			}
			// No byte may change, no byte may be missing, and another key's
			// record is not this key's.
			for i := range b {
				for bit := range 8 {
					b[i] ^= 1 << bit
					if _, err := ParseRecord(b, pkey); err == nil {
						t.Fatalf("byte %d bit %d flipped: accepted", i, bit)
					}
					b[i] ^= 1 << bit
				}
				if _, err := ParseRecord(b[:i], pkey); err == nil {
					t.Fatalf("cut to %d bytes: accepted", i)
				}
			}
			for _, other := range [][]byte{AppendKey(nil, 8, KindData, []byte("key")), AppendKey(nil, 7, KindDedup, []byte("key")), AppendKey(nil, 7, KindData, []byte("kez"))} {
				if _, err := ParseRecord(b, other); err == nil {
					t.Fatalf("under key %x: accepted", other)
				}
			}
		})
	}
}

// TestFormatPinned fails when the bytes on the disk change: that needs a new
// format version and a way to read the old one.
func TestFormatPinned(t *testing.T) {
	pkey := AppendKey(nil, 0x0102, KindData, []byte("k"))
	if want := "\x01\x02\x01k"; string(pkey) != want {
		t.Errorf("key %x, want %x", pkey, want)
	}
	b := make([]byte, RecordSize(1, true))
	PutRecord(b, pkey, Record{Version: 5, Expiry: 9, Value: []byte("v")})
	head := "\x01\x01\x00\x00\x00\x00\x00\x00" + "\x05\x00\x00\x00\x00\x00\x00\x00" + "\x09\x00\x00\x00\x00\x00\x00\x00"
	if !strings.HasPrefix(string(b), head) || b[32] != 'v' || len(b) != 33 {
		t.Errorf("record %x", b)
	}
	if sum := recordSum([]byte("a"), []byte("b"), []byte("c")); sum != recordSumPinned {
		t.Errorf("checksum %#x, want %#x", sum, uint64(recordSumPinned))
	}
}

const recordSumPinned = 0x2bb3cb5943acaea8

func TestKeyBounds(t *testing.T) {
	for _, tc := range []struct{ prefix, lower, upper string }{
		{"", "\x00\x07\x01", "\x00\x07\x02"},
		{"ab", "\x00\x07\x01ab", "\x00\x07\x01ac"},
		{"a\xff", "\x00\x07\x01a\xff", "\x00\x07\x01b"},
		{"\xff\xff", "\x00\x07\x01\xff\xff", "\x00\x07\x02"},
	} {
		lower, upper := PrefixBounds(7, []byte(tc.prefix))
		if string(lower) != tc.lower || string(upper) != tc.upper {
			t.Errorf("prefixBounds(%q) = %q, %q; want %q, %q", tc.prefix, lower, upper, tc.lower, tc.upper)
		}
	}
}

func TestParseSmall(t *testing.T) {
	id := identity{format: 1, reader: 1, shards: 32, id: [16]byte{1, 2, 0xff}}
	got, err := parseIdentity(id.encode())
	if err != nil || got != id {
		t.Errorf("identity %+v, %v", got, err)
	}
	for _, bad := range []string{"", "rdmakv", "rdmakv store", "rdmakv store\nformat x\n", "rdmakv store\nformat 1\n",
		"rdmakv store\nformat 1\nreader 1\nid 00\n", "rdmakv store\nformat 1\nreader 1\nid " + strings.Repeat("zz", 16),
		"rdmakv store\nformat 99999999999\nreader 1\n"} {
		if _, err := parseIdentity([]byte(bad)); err == nil {
			t.Errorf("identity %q accepted", bad)
		}
	}
	if got, err := parseIdentity([]byte("rdmakv store\nformat 2\nreader 1\nshards 4\nmood good\n")); err != nil || got.format != 2 {
		t.Errorf("a newer identity with an unknown line: %+v, %v", got, err)
	}

	book := ledgerText{state: ledgerRunning, beat: 77, lines: []ledgerLine{
		{"000001.log", 17, "0123456789abcdef"}, {"000002.sst", 99, noSum}, {"/a disk/000003.log", 1, "0123456789abcdef"}}}
	text := book.encode()
	back, err := parseLedger(text)
	if err != nil || !reflect.DeepEqual(back, book) {
		t.Errorf("ledger %v, %v", back, err)
	}
	for i := range text {
		text[i] ^= 4
		if _, err := parseLedger(text); err == nil && i < len(text)-1 {
			t.Errorf("ledger with byte %d flipped accepted", i)
		}
		text[i] ^= 4
		if _, err := parseLedger(text[:i]); err == nil && i < len(text)-1 {
			t.Errorf("ledger cut to %d bytes accepted", i)
		}
	}

	mark := cleanMark{version: 77, keys: []uint64{1, 0, 1 << 40}}
	m, err := parseCleanMark(mark.encode())
	if err != nil || m.version != 77 || len(m.keys) != 3 || m.keys[2] != 1<<40 {
		t.Errorf("clean mark %+v, %v", m, err)
	}
	if _, err := parseCleanMark(make([]byte, 9)); err == nil {
		t.Error("clean mark of 9 bytes accepted")
	}
}

func FuzzParseRecord(f *testing.F) {
	b := make([]byte, RecordSize(3, true))
	PutRecord(b, []byte("pkey"), Record{Version: 1, Expiry: 2, Value: []byte("abc")})
	f.Add(b, []byte("pkey"))
	f.Add([]byte{1}, []byte{})
	f.Fuzz(func(t *testing.T, b, pkey []byte) {
		r, err := ParseRecord(b, pkey)
		if err != nil {
			return
		}
		// What parses is what would be written, but for reserved bytes.
		again := make([]byte, RecordSize(len(r.Value), r.Expiry != 0 || b[offFlags]&flagExpiry != 0))
		if len(again) != len(b) {
			t.Fatalf("%d bytes parsed, %d written", len(b), len(again))
		}
	})
}

func FuzzParseIdentity(f *testing.F) {
	f.Add(identity{format: 1, reader: 1, shards: 32}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, err := parseIdentity(b); err == nil {
			if again, err := parseIdentity(d.encode()); err != nil || again != d {
				t.Fatalf("%+v became %+v, %v", d, again, err)
			}
		}
	})
}

func FuzzParseLedger(f *testing.F) {
	f.Add(ledgerText{state: ledgerWhole, beat: 1, lines: []ledgerLine{{"a", 1, noSum}}}.encode())
	old := []byte("rdmakv ledger 1\na 1 -\n")
	f.Add(fmt.Appendf(old, "end 1 %016x\n", xxh3.Hash(old)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if l, err := parseLedger(b); err == nil {
			if again, err := parseLedger(l.encode()); err != nil || !reflect.DeepEqual(again, l) {
				t.Fatalf("%+v became %+v, %v", l, again, err)
			}
		}
	})
}

func FuzzParseKey(f *testing.F) {
	f.Add(AppendKey(nil, 1, KindData, []byte("k")))
	f.Fuzz(func(t *testing.T, b []byte) {
		if shard, k, key, ok := ParseKey(b); ok && !bytes.Equal(AppendKey(nil, shard, k, key), b) {
			t.Fatalf("%x became %x", b, AppendKey(nil, shard, k, key))
		}
	})
}
