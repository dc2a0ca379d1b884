package layout

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The key of a part:
//
//	 0 │ mark 16                                    │
//	16 │ {  │ nonce, 8 digits in hexadecimal  │  }  │
//	26 │ id of the upload 16                        │
//	42 │ number 4, big endian: from 1 on            │
//
// What stands between the braces decides the shard of a key, so the nonce is the smallest
// with which that is the shard of the key that the value belongs to. So a part is where its head
// is: with the same node, behind the same lock.
//
// Number 0 is the upload itself: its record names the key and the shape, so that whoever
// finds parts knows what they belong to, also after a crash.
//
// No client can name such a key for itself: a server refuses requests for keys that begin
// with the mark, but for the few that an upload and a get are made of.
const (
	offPartNonce  = markLen + 1
	nonceDigits   = 8
	offPartID     = offPartNonce + nonceDigits + 1
	offPartNumber = offPartID + UploadIDLen
	// PartKeyLen is the length of the key of a part, in bytes.
	PartKeyLen = offPartNumber + 4

	// maxNonce bounds the search. Of MaxShards shards one is missed by so many tries once in
	// e^256 times.
	maxNonce = 1 << 20

	// UploadPart is the number of the record of an upload.
	UploadPart = 0
)

// PartKeys makes the keys of the parts of one upload.
type PartKeys [PartKeyLen]byte

// NewPartKeys finds the nonce with which same says yes: whether a key is in the shard of the
// key that the parts belong to. ok is false if there is none.
func NewPartKeys(id UploadID, same func(key []byte) bool) (k PartKeys, ok bool) {
	copy(k[:], partMark)
	k[offPartNonce-1], k[offPartID-1] = '{', '}'
	copy(k[offPartID:], id[:])
	for n := range uint32(maxNonce) {
		putNonce(k[offPartNonce:offPartNonce+nonceDigits], n)
		if same(k[:]) {
			return k, true
		}
	}
	return k, false
}

func putNonce(b []byte, n uint32) {
	for i := nonceDigits - 1; i >= 0; i-- {
		b[i] = "0123456789abcdef"[n&15]
		n >>= 4
	}
}

// Key returns the key of a part, or of the upload, in memory of its own.
func (k PartKeys) Key(number int) []byte {
	binary.BigEndian.PutUint32(k[offPartNumber:], uint32(number))
	return k[:]
}

// IsPartKey says whether a key begins as those of parts do: it is that of a part, or no
// key at all.
func IsPartKey(key []byte) bool { return isPartKey(key) }

// PartPrefix is what the keys of all parts begin with.
func PartPrefix() []byte { return []byte(partMark) }

// ParsePartKey reads the key of a part. It may be any bytes. The nonce is not compared: that takes
// the key that the part belongs to (NewPartKeys).
func ParsePartKey(key []byte) (id UploadID, number int, ok bool) {
	if len(key) != PartKeyLen || !isPartKey(key) {
		return id, 0, false
	}
	n := binary.BigEndian.Uint32(key[offPartNumber:])
	copy(id[:], key[offPartID:])
	return id, int(n), n <= MaxParts
}

// An Upload is what the record of an upload says. Total bounds the value, whose length is known
// when all of it was there.
type Upload struct {
	Shape
	Key []byte // that the value belongs to
}

// ErrUpload: bytes are no record of an upload.
var ErrUpload = errors.New("layout: not the record of an upload")

// The record: bytes of the whole value at most 8, of a part 8, key.
const uploadHead = 16

// AppendUpload appends the record of an upload.
func AppendUpload(dst []byte, u Upload) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(u.Total))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(u.PartLen))
	return append(dst, u.Key...)
}

// ParseUpload reads the record of an upload, which may be any bytes. Key aliases it. The error
// wraps ErrUpload.
func ParseUpload(b []byte) (Upload, error) {
	le := binary.LittleEndian
	if len(b) <= uploadHead || len(b) > uploadHead+MaxKeyLen {
		return Upload{}, fmt.Errorf("%w: %d bytes", ErrUpload, len(b))
	}
	total, part := le.Uint64(b), le.Uint64(b[8:])
	if total > MaxWholeLen || part > MaxPartLen {
		return Upload{}, fmt.Errorf("%w: %d bytes in parts of %d", ErrUpload, total, part)
	}
	u := Upload{Shape: Shape{Total: int64(total), PartLen: int(part)}, Key: b[uploadHead:]}
	if err := u.Check(); err != nil {
		return Upload{}, fmt.Errorf("%w: %w", ErrUpload, err)
	}
	if isPartKey(u.Key) {
		return Upload{}, fmt.Errorf("%w: of a value that belongs to a part", ErrUpload)
	}
	return u, nil
}
