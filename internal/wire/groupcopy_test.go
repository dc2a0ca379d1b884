package wire

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/store/layout"
)

// TestCopyQuestions: each question has one form, and everything else is refused.
func TestCopyQuestions(t *testing.T) {
	for _, text := range []string{"open 1", "open 4294967295", "close 1", "read 1 0 0", "read 18446744073709551615 65535 0 6b", "read 1 2 67108864 00ff"} {
		if q, err := ParseCopyQuestion([]byte(text)); err != nil || q.String() != text {
			t.Errorf("%q: %q, %v", text, q.String(), err)
		}
	}
	for _, text := range []string{
		"", "open", "open 0", "open 01", "open 4294967296", "open 1 ", "open 1 1", "Open 1", "close 0", "close -1", "close 1 1", "read", "read 0 0 0", "read 1 0", "read 1 65536 0",
		"read 1 0 4294967296 6b", "read 1 0 67108865 6b", "read 1 0 1", "read 1 0 0 ", "read 1 0 0 6", "read 1 0 0 6B", "read 1 0 0 6b 6b", "read 1 0 0 6b ", "at 1 1",
		"read 1 0 0 " + strings.Repeat("00", layout.MaxKeyLen+1), "read 1 0 0 " + strings.Repeat("0", MaxCopyQuestion),
	} {
		if q, err := ParseCopyQuestion([]byte(text)); !errors.Is(err, ErrRange) {
			t.Errorf("%.40q: %+v, %v", text, q, err)
		}
	}
}

func TestCopyAnswers(t *testing.T) {
	for text, want := range map[string]bool{
		`{"group":1,"state":"open","id":5,"index":7,"term":2,"shards":[0,3]}`: true,
		`{"group":1,"state":"busy","why":"x"}`:                                true,
		`{"group":1,"state":"not-leader","leader":"n2"}`:                      true,
		`{"group":1,"state":"not-leader","id":4}`:                             false,
		`{"group":2,"state":"busy"}`:                                          false,
		`{"group":1,"state":"closed"}`:                                        false,
		`{"group":1,"state":"open","id":5,"index":7}`:                         false,
		`{"group":1,"state":"open","index":7,"shards":[0]}`:                   false,
		`{"group":1,"state":"open","id":5,"index":7,"shards":[3,0]}`:          false,
		`{"group":1,"state":"open","id":5,"index":7,"shards":[3,3]}`:          false,
		`{"group":1,"state":"open","id":5,"shards":[0]}`:                      false,
		`[]`: false, ``: false,
	} {
		if a, err := ParseCopyAnswer([]byte(text), 1); (err == nil) != want || err != nil && !errors.Is(err, ErrRange) {
			t.Errorf("%s: %+v, %v", text, a, err)
		}
	}
}

// pageOf is a page of records.
func pageOf(more bool, records ...CopyRecord) []byte {
	b := BeginCopyPage(nil)
	for i := range records {
		b = AppendCopyRecord(b, &records[i])
	}
	return EndCopyPage(b, len(records), more)
}

// resum makes the checksum of an altered page fit.
func resum(b []byte) []byte {
	body := b[:len(b)-copySum]
	return le.AppendUint64(body, xxh3.Hash(body))
}

func TestCopyPages(t *testing.T) {
	a, b := CopyRecord{Key: []byte("a"), Size: 1, Data: []byte("x"), Expiry: 9}, CopyRecord{Key: []byte("b"), Data: []byte{}}
	piece := CopyRecord{Key: []byte("c"), Size: 10, Offset: 4, Data: []byte("123")}
	for name, page := range map[string][]byte{"none": pageOf(false), "two": pageOf(true, a, b), "a piece": pageOf(true, piece)} {
		records, more, err := ParseCopyPage(page)
		if err != nil || !bytes.Equal(pageOf(more, records...), page) {
			t.Errorf("%s: %v, %v", name, records, err)
		}
		for i := range page { // no bit may be another one
			bad := bytes.Clone(page)
			bad[i] ^= 1
			if _, _, err := ParseCopyPage(bad); err == nil {
				t.Errorf("%s: byte %d is not looked at", name, i)
			}
			if _, _, err := ParseCopyPage(page[:i]); err == nil {
				t.Errorf("%s: %d bytes of %d are enough", name, i, len(page))
			}
		}
	}
	many := pageOf(false, a)
	le.PutUint32(many[8:], 1<<31)
	odd := pageOf(false, a)
	odd[5] = 1
	for name, page := range map[string][]byte{
		"more of nothing": pageOf(true), "the same key twice": pageOf(false, a, a), "falling keys": pageOf(false, b, a), "no key": pageOf(false, CopyRecord{}),
		"a piece that is not alone": pageOf(false, a, piece), "a piece without bytes": pageOf(true, CopyRecord{Key: []byte("c"), Size: 3}),
		"a piece beyond its value": pageOf(true, CopyRecord{Key: []byte("c"), Size: 3, Offset: 2, Data: []byte("12")}),
		"a value too large":        pageOf(true, CopyRecord{Key: []byte("c"), Size: layout.MaxValueLen + 1, Data: []byte("1")}),
		"a key too large":          pageOf(false, CopyRecord{Key: make([]byte, layout.MaxKeyLen+1)}),
		"two billion records":      resum(many), "an odd byte": resum(odd),
		"more behind the records": EndCopyPage(append(BeginCopyPage(nil), 1, 2, 3), 0, false),
	} {
		if _, _, err := ParseCopyPage(page); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func FuzzCopy(f *testing.F) {
	f.Add([]byte("read 1 2 3 6b"))
	f.Add(pageOf(true, CopyRecord{Key: []byte("a"), Size: 1, Data: []byte("x")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if q, err := ParseCopyQuestion(b); err == nil && q.String() != string(b) {
			t.Errorf("%q is taken for %q", b, q.String())
		}
		if len(b) >= copySum {
			b = resum(bytes.Clone(b))
		}
		if records, more, err := ParseCopyPage(b); err == nil && !bytes.Equal(pageOf(more, records...), b) {
			t.Errorf("%x is taken for %v", b, records)
		}
	})
}
