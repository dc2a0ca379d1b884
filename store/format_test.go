package store

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
		r    record
	}{
		{"empty", record{version: 1}},
		{"plain", record{version: layout.MakeVersion(3, 9), value: []byte("value")}},
		{"expiry", record{version: layout.MaxVersion, expiry: 17, value: []byte("value")}},
		{"meta", record{value: []byte("fact")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pkey := appendKey(nil, 7, kindData, []byte("key"))
			b := make([]byte, recordSize(len(tc.r.value), tc.r.expiry != 0))
			putRecord(b, pkey, tc.r)
			got, err := parseRecord(b, pkey)
			if err != nil || got.version != tc.r.version || got.expiry != tc.r.expiry || !bytes.Equal(got.value, tc.r.value) {
				t.Fatalf("parsed %+v, %v; wrote %+v", got, err, tc.r)
			}
			// No byte may change, no byte may be missing, and another key's
			// record is not this key's.
			for i := range b {
				for bit := range 8 {
					b[i] ^= 1 << bit
					if _, err := parseRecord(b, pkey); err == nil {
						t.Fatalf("byte %d bit %d flipped: accepted", i, bit)
					}
					b[i] ^= 1 << bit
				}
				if _, err := parseRecord(b[:i], pkey); err == nil {
					t.Fatalf("cut to %d bytes: accepted", i)
				}
			}
			for _, other := range [][]byte{appendKey(nil, 8, kindData, []byte("key")), appendKey(nil, 7, kindDedup, []byte("key")), appendKey(nil, 7, kindData, []byte("kez"))} {
				if _, err := parseRecord(b, other); err == nil {
					t.Fatalf("under key %x: accepted", other)
				}
			}
		})
	}
}

// TestFormatPinned fails when the bytes on the disk change: that needs a new
// format version and a way to read the old one.
func TestFormatPinned(t *testing.T) {
	pkey := appendKey(nil, 0x0102, kindData, []byte("k"))
	if want := "\x01\x02\x01k"; string(pkey) != want {
		t.Errorf("key %x, want %x", pkey, want)
	}
	b := make([]byte, recordSize(1, true))
	putRecord(b, pkey, record{version: 5, expiry: 9, value: []byte("v")})
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
		lower, upper := prefixBounds(7, []byte(tc.prefix))
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
	b := make([]byte, recordSize(3, true))
	putRecord(b, []byte("pkey"), record{version: 1, expiry: 2, value: []byte("abc")})
	f.Add(b, []byte("pkey"))
	f.Add([]byte{1}, []byte{})
	f.Fuzz(func(t *testing.T, b, pkey []byte) {
		r, err := parseRecord(b, pkey)
		if err != nil {
			return
		}
		// What parses is what would be written, but for reserved bytes.
		again := make([]byte, recordSize(len(r.value), r.expiry != 0 || b[offFlags]&flagExpiry != 0))
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
	f.Add(appendKey(nil, 1, kindData, []byte("k")))
	f.Fuzz(func(t *testing.T, b []byte) {
		if shard, k, key, ok := parseKey(b); ok && !bytes.Equal(appendKey(nil, shard, k, key), b) {
			t.Fatalf("%x became %x", b, appendKey(nil, shard, k, key))
		}
	})
}
