package admit

import (
	"github.com/rdmakv/rdmakv/store/internal/base"
)

// What a write takes in the log is not known before it is judged, but bounded by what it was
// admitted with. Its record (package logged) has
//
//	+------+-----------+-----------------------+-----------------------------+-------+
//	| head | result of | for each part: a head | what it was admitted with:  | slot  |
//	|      | a request | of 4 words at most    | keys, values, forgotten ids |       |
//	+------+-----------+-----------------------+-----------------------------+-------+
//
// and an increment has a number for a value that nobody brought along. If a bound here were
// less than what the record comes to, writers would fill the room that is kept for deletes
// and facts, and a full log could not be emptied any more.
const (
	recordHead = 16 + resultLen + base.SlotKeyLen
	resultLen  = 64
	partHead   = 8 + 4*8
	numberLen  = 24
	perPart    = partHead + numberLen
)

// bodyOf bounds the bytes of the record of a write that was admitted with n bytes, in so
// many parts.
func bodyOf(n int64, parts int) int64 {
	return n + recordHead + int64(max(parts, 1))*perPart
}

// need bounds what a body takes of the log. One larger than a piece goes in pieces: each has a
// head and leaves the rest of a block; the record has their places. A value that goes in
// pieces has half a piece at least, so there are not more than that makes.
func (l *Log) need(body int64) int64 {
	if l.Piece <= 0 || body <= int64(l.Piece) {
		return l.Room.Cost(int(body))
	}
	pieces := 4*body/int64(l.Piece) + 1
	return body + (pieces+1)*2*l.Room.Cost(1)
}
