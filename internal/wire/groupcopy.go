package wire

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/store/layout"
)

// Bounds of a copy of a group (AdminCopy).
const (
	// MaxCopyQuestion bounds the argument: a key in hexadecimal, and what stands before it.
	MaxCopyQuestion = 2*layout.MaxKeyLen + 64
	// CopyPage is where a page of small records ends, in bytes of keys and values; one record more at most is in it.
	CopyPage = 1 << 20
	// CopyPiece is how many bytes of one value a page has at most: a value that is longer comes in several pages.
	CopyPiece = 1 << 20
	// MaxCopyPage bounds a page in bytes.
	MaxCopyPage = copyHead + CopyPage + copyRecord + layout.MaxKeyLen + CopyPiece + copySum
)

// A CopyQuestion is the argument of AdminCopy: text, so that it can be asked by hand. A copy is what a group had at one entry of its log.
//
//	open GROUP                     of the leader: a CopyAnswer
//	read ID SHARD OFFSET [KEY]     a CopyPage: OFFSET 0: what is behind KEY in a shard; else the value of KEY from there on. KEY is in hexadecimal
//	close ID                       a CopyAnswer; a copy that nobody reads closes by itself
type CopyQuestion struct {
	Do     string // CopyOpen, CopyRead or CopyClose
	Group  uint32 // open: not 0
	ID     uint64 // read, close: not 0
	Shard  uint16 // read
	Offset uint32 // read
	Key    []byte // read; nil: the first record of the shard is the next
}

// What a CopyQuestion asks for.
const (
	CopyOpen  = "open"
	CopyRead  = "read"
	CopyClose = "close"
)

// String is the argument.
func (q *CopyQuestion) String() string {
	switch q.Do {
	case CopyOpen:
		return fmt.Sprintf("open %d", q.Group)
	case CopyClose:
		return fmt.Sprintf("close %d", q.ID)
	}
	text := fmt.Sprintf("read %d %d %d", q.ID, q.Shard, q.Offset)
	if len(q.Key) > 0 {
		text += " " + hex.EncodeToString(q.Key)
	}
	return text
}

// ParseCopyQuestion reads the argument of AdminCopy. It takes any bytes, and of each question one form alone. ErrRange.
func ParseCopyQuestion(b []byte) (CopyQuestion, error) {
	bad := func() (CopyQuestion, error) {
		return CopyQuestion{}, fmt.Errorf("%w: %.60q, and it is \"open GROUP\", \"read ID SHARD OFFSET [KEY]\" or \"close ID\"", ErrRange, b)
	}
	if len(b) > MaxCopyQuestion {
		return bad()
	}
	words := strings.Split(string(b), " ")
	q := CopyQuestion{Do: words[0]}
	numbers, bits := words[1:], []int{64}
	switch {
	case q.Do == CopyOpen && len(words) == 2:
		bits[0] = 32
	case q.Do == CopyClose && len(words) == 2:
	case q.Do == CopyRead && (len(words) == 4 || len(words) == 5):
		numbers, bits = words[1:4], []int{64, 16, 32}
	default:
		return bad()
	}
	var n [3]uint64
	for i, word := range numbers {
		var err error
		if n[i], err = strconv.ParseUint(word, 10, bits[i]); err != nil {
			return bad()
		}
	}
	if n[0] == 0 {
		return bad()
	}
	if q.ID, q.Shard, q.Offset = n[0], uint16(n[1]), uint32(n[2]); q.Do == CopyOpen {
		q.Group, q.ID = uint32(n[0]), 0
	}
	if len(words) == 5 {
		var err error
		if q.Key, err = hex.DecodeString(words[4]); err != nil || len(q.Key) == 0 || len(q.Key) > layout.MaxKeyLen {
			return bad()
		}
	}
	if q.Offset > layout.MaxValueLen || q.Offset != 0 && q.Key == nil || q.String() != string(b) {
		return bad()
	}
	return q, nil
}

// A CopyAnswer is the JSON that AdminCopy answers to open and close. Fields are only ever added.
type CopyAnswer struct {
	Group  uint32 `json:"group"`
	State  string `json:"state"`            // one of the words below
	Leader string `json:"leader,omitempty"` // the node that leads, with CopyNotLeader: a hint; empty: it is not known
	ID     uint64 `json:"id,omitempty"`     // with CopyOpened; not 0
	Index  uint64 `json:"index,omitempty"`  // with CopyOpened: the entry up to which the copy has all, and behind which nothing
	Term   uint64 `json:"term,omitempty"`   // of that entry
	// Shards are those of the group, rising, with CopyOpened.
	Shards []uint16 `json:"shards,omitempty"`
	Why    string   `json:"why,omitempty"` // with CopyBusy
}

// States of a CopyAnswer.
const (
	CopyOpened    = "open"
	CopyClosed    = "closed"
	CopyNotLeader = "not-leader" // nothing was opened: another node leads
	CopyBusy      = "busy"       // not now: too many copies are open, or the disk is not as far as the log yet. Ask again
)

// ParseCopyAnswer reads the answer to open. ErrRange: it is none.
func ParseCopyAnswer(b []byte, group uint32) (a CopyAnswer, err error) {
	if err := json.Unmarshal(b, &a); err != nil {
		return a, fmt.Errorf("%w: the answer to an open copy: %v", ErrRange, err)
	}
	opened := a.State == CopyOpened
	fits := a.Group == group && opened == (a.ID != 0) && opened == (a.Index != 0) && opened == (len(a.Shards) > 0)
	for i := 1; i < len(a.Shards); i++ {
		fits = fits && a.Shards[i-1] < a.Shards[i]
	}
	if !fits || !opened && a.State != CopyNotLeader && a.State != CopyBusy {
		return a, fmt.Errorf("%w: the answer to an open copy of group %d: group %d, %.20q, entry %d", ErrRange, group, a.Group, a.State, a.Index)
	}
	return a, nil
}

// A CopyRecord is a key of a copied group, or a piece of its value. Keys are those of the disk: values in parts are their parts and a head (package layout).
type CopyRecord struct {
	Key    []byte
	Expiry uint64 // microseconds since 1970, server time; 0: never
	Size   uint32 // bytes of the whole value
	Offset uint32 // where in the value Data begins
	Data   []byte
}

// Whole says whether the record has all of its value.
func (r *CopyRecord) Whole() bool { return r.Offset == 0 && int(r.Size) == len(r.Data) }

// A page of a copy (little endian):
//
//	 0       4      5     8       12
//	┌magic  ┬more ┬ 0   ┬count  ┬record …┬XXH3-64 of all before┐
//	└"RKCP" ┴1    ┴3    ┴4      ┴…       ┴8                    ┘
//
//	record   ┌key length┬ 0 ┬bytes here┬value length┬offset┬expiry┬key┬bytes┐
//	         └2         ┴2  ┴4         ┴4           ┴4     ┴8     ┴…  ┴…    ┘
//
// Keys rise strictly. A record that has not all of its value is alone in its page. more: the shard may have further records, or the value has further bytes.
const (
	copyHead   = 12
	copyRecord = 24
	copySum    = 8
	copyMagic  = "RKCP"
)

// BeginCopyPage returns an empty page.
func BeginCopyPage(dst []byte) []byte {
	return append(append(dst, copyMagic...), 0, 0, 0, 0, 0, 0, 0, 0)
}

// AppendCopyRecord appends a record to a page.
func AppendCopyRecord(dst []byte, r *CopyRecord) []byte {
	dst = le.AppendUint16(dst, len16(r.Key))
	dst = append(dst, 0, 0)
	dst = le.AppendUint32(dst, len32(r.Data))
	dst = le.AppendUint32(dst, r.Size)
	dst = le.AppendUint32(dst, r.Offset)
	dst = le.AppendUint64(dst, r.Expiry)
	return append(append(dst, r.Key...), r.Data...)
}

// EndCopyPage ends a page of so many records. The page is all of dst.
func EndCopyPage(dst []byte, count int, more bool) []byte {
	dst[len(copyMagic)] = bit(more)
	le.PutUint32(dst[8:], uint32(count))
	return le.AppendUint64(dst, xxh3.Hash(dst))
}

// ParseCopyPage reads a page. It takes any bytes. The records are views of b. ErrRange, ErrShort.
func ParseCopyPage(b []byte) (records []CopyRecord, more bool, err error) {
	bad := func(what string) ([]CopyRecord, bool, error) {
		return nil, false, fmt.Errorf("%w: a page of a copy: %s", ErrRange, what)
	}
	if len(b) < copyHead+copySum || len(b) > MaxCopyPage || string(b[:4]) != copyMagic {
		return bad(fmt.Sprintf("%d bytes", len(b)))
	}
	body := b[:len(b)-copySum]
	if le.Uint64(b[len(body):]) != xxh3.Hash(body) {
		return bad("its checksum does not fit")
	}
	f := fields{b: body[len(copyMagic):]}
	more = f.flag()
	f.zero(3)
	count := f.u32()
	if f.err == nil && uint64(count)*copyRecord > uint64(len(f.b)) {
		return bad(fmt.Sprintf("%d records in %d bytes", count, len(f.b)))
	}
	for range count {
		n := f.u16()
		f.zero(2)
		here := f.u32()
		r := CopyRecord{Size: f.u32(), Offset: f.u32(), Expiry: f.u64()}
		r.Key, r.Data = f.take(uint64(n)), f.take(uint64(here))
		switch last := len(records) - 1; {
		case f.err != nil:
			return nil, false, f.err
		case n == 0 || n > layout.MaxKeyLen || r.Size > layout.MaxValueLen || uint64(r.Offset)+uint64(here) > uint64(r.Size),
			!r.Whole() && (count != 1 || here == 0), last >= 0 && string(records[last].Key) >= string(r.Key):
			return bad(fmt.Sprintf("record %d cannot be", len(records)))
		}
		records = append(records, r)
	}
	if err := f.done(); err != nil {
		return nil, false, err
	}
	if more && count == 0 {
		return bad("it leads nowhere")
	}
	return records, more, nil
}
