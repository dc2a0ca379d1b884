package backup

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/store/layout"
)

// A piece (little endian):
//
//	┌"RDKVPCE1"┬record┬record┬…      record   ┌key length┬ 0 ┬value length┬expiry┬key┬value┐
//	└8         ┴…     ┴…     ┴                └2         ┴2  ┴4           ┴8     ┴…  ┴…    ┘
//
// Keys rise strictly, and there is at least one. expiry: microseconds since 1970, by the clocks of the cluster; 0: never. Keys are those of the
// disk: the value under a key may be the head of one in parts, and keys may be those of parts (package layout). The name of a piece, the SHA-256 of all its bytes, is its
// checksum.
const (
	pieceMagic = "RDKVPCE1"
	recordHead = 16

	// PieceBytes is what a piece has on average, and mostBytes where one ends at the latest, but for its last record.
	PieceBytes = 4 << 20
	mostBytes  = 4 * PieceBytes
	// leastBytes is what a piece has at least, unless it is its shard's last.
	leastBytes = PieceBytes / 16
	// MaxPiece bounds a piece in bytes: its last record may be of any size that a record can have.
	MaxPiece = mostBytes + recordHead + layout.MaxKeyLen + layout.MaxValueLen
)

// ErrPiece: bytes are no piece, or not the one that the manifest names.
var ErrPiece = errors.New("backup: a damaged piece")

// A Sum names a piece.
type Sum [sha256.Size]byte

// String is the name in 64 hexadecimal digits.
func (s Sum) String() string { return hex.EncodeToString(s[:]) }

// Name is where the piece stands in a target.
func (s Sum) Name() string {
	text := s.String()
	return "pieces/" + text[:2] + "/" + text
}

// A Record is a key with its value.
type Record struct {
	Key, Value []byte
	Expiry     uint64 // microseconds since 1970; 0: never
}

// A Piece is one that is whole.
type Piece struct {
	Sum   Sum
	Bytes []byte
	Keys  int
	First []byte // the first MaxFirst bytes of its first key, at most
}

// A Cutter makes pieces of the records of a shard. The zero Cutter is ready.
type Cutter struct {
	buf   []byte
	keys  int
	first []byte
}

// Add adds a record, whose key is above those before it, and returns the piece that ends with it, if one does. The piece's memory is the caller's.
func (c *Cutter) Add(r Record) *Piece {
	if c.keys == 0 {
		c.buf = append(make([]byte, 0, leastBytes), pieceMagic...)
		c.first = append([]byte(nil), r.Key[:min(len(r.Key), MaxFirst)]...)
	}
	le := binary.LittleEndian
	c.buf = le.AppendUint16(c.buf, uint16(len(r.Key)))
	c.buf = append(c.buf, 0, 0)
	c.buf = le.AppendUint32(c.buf, uint32(len(r.Value)))
	c.buf = le.AppendUint64(c.buf, r.Expiry)
	c.buf = append(append(c.buf, r.Key...), r.Value...)
	c.keys++
	if len(c.buf) < mostBytes && (len(c.buf) < leastBytes || !ends(r.Key, recordHead+len(r.Key)+len(r.Value))) {
		return nil
	}
	return c.End()
}

// ends says whether chance ends a piece behind a key. It is as likely as the record is large, so pieces have PieceBytes on average whatever the records are.
func ends(key []byte, size int) bool {
	return size >= PieceBytes || xxh3.Hash(key) < math.MaxUint64/PieceBytes*uint64(size)
}

// End returns the last piece of the shard, if there is one; the Cutter is ready for another shard then.
func (c *Cutter) End() *Piece {
	if c.keys == 0 {
		return nil
	}
	p := &Piece{Sum: sha256.Sum256(c.buf), Bytes: c.buf, Keys: c.keys, First: c.first}
	*c = Cutter{}
	return p
}

// Records reads the bytes of a piece that is said to have a sum and so many keys, and calls yield for each record until it returns an error. It takes any bytes. Records are views of
// b. Nothing is yielded of bytes that have another sum.
//
// Errors: ErrPiece, yield's.
func Records(b []byte, sum Sum, keys int, yield func(Record) error) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s: %s", ErrPiece, sum, fmt.Sprintf(format, args...))
	}
	if sha256.Sum256(b) != sum {
		return bad("its bytes have another SHA-256")
	}
	if len(b) < len(pieceMagic) || len(b) > MaxPiece || string(b[:len(pieceMagic)]) != pieceMagic {
		return bad("it begins with no mark of a piece")
	}
	b = b[len(pieceMagic):]
	le := binary.LittleEndian
	var last []byte
	for n := 0; len(b) > 0; n++ {
		if len(b) < recordHead {
			return bad("record %d is cut off", n)
		}
		nKey, nValue := int(le.Uint16(b)), int64(le.Uint32(b[4:]))
		r := Record{Expiry: le.Uint64(b[8:])}
		if b[2] != 0 || b[3] != 0 || nKey == 0 || nKey > layout.MaxKeyLen || nValue > layout.MaxValueLen || int64(len(b)-recordHead) < int64(nKey)+nValue {
			return bad("record %d has a key of %d bytes and a value of %d", n, nKey, nValue)
		}
		r.Key, r.Value = b[recordHead:recordHead+nKey], b[recordHead+nKey:recordHead+nKey+int(nValue)]
		if n >= keys || n > 0 && string(r.Key) <= string(last) {
			return bad("record %d is not behind the one before, or one too many", n)
		}
		last = r.Key
		if err := yield(r); err != nil {
			return err
		}
		b = b[recordHead+nKey+int(nValue):]
		if len(b) == 0 && n+1 != keys {
			return bad("%d records, and %d are to be there", n+1, keys)
		}
	}
	if last == nil {
		return bad("it has no record")
	}
	return nil
}
