package dedup

import (
	"encoding/binary"
	"fmt"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/layout"
)

// An outcome is how a write ended, as it is recorded.
type outcome uint8

const (
	outcomeDone outcome = iota
	outcomeCondition
	outcomeNotNumber
	outcomeNumberRange
	numOutcomes
)

var outcomeErrs = [numOutcomes]error{
	outcomeCondition: base.ErrCondition, outcomeNotNumber: base.ErrNotNumber, outcomeNumberRange: base.ErrNumberRange,
}

func outcomeOf(err error) outcome {
	for o, e := range outcomeErrs {
		if e == err {
			return outcome(o)
		}
	}
	panic(fmt.Sprintf("store: no outcome for %v", err))
}

// A Result is what a retry is told.
type Result struct {
	seq     uint64
	owner   uint32
	version layout.Version
	actual  layout.Version
	number  int64
	part    uint16
	outcome outcome
	existed bool
}

// ResultOf is what a retry of a request is to be told.
func ResultOf(id *base.RequestID, r *base.Result) Result {
	return Result{
		seq: id.Seq, owner: id.Owner, version: r.Version, actual: r.Actual, number: r.Number,
		part: uint16(r.Part), outcome: outcomeOf(r.Err), existed: r.Existed,
	}
}

// give tells a retry.
func (r *Result) give(to *base.Result) {
	to.Version, to.Actual, to.Number = r.version, r.actual, r.number
	to.Part, to.Err, to.Existed = int(r.part), outcomeErrs[r.outcome], r.existed
}

// The record of a result, under the key client 16 | slot 2 (big endian):
//
//	 0        8        16       24        25      26     28
//	+--------+--------+--------+---------+-------+------+-----
//	| seq    | actual | number | outcome | flags | part | owner
//	| u64    | u64    | i64    | u8      | u8    | u16  | u32
//	+--------+--------+--------+---------+-------+------+-----
//
// The write's version stands in the record's header. Flag 1: the key existed.
const ValueLen = 32

// Encode writes a result into b, of ValueLen bytes.
func (r *Result) Encode(b []byte) {
	le := binary.LittleEndian
	le.PutUint64(b, r.seq)
	le.PutUint64(b[8:], uint64(r.actual))
	le.PutUint64(b[16:], uint64(r.number))
	b[24], b[25] = byte(r.outcome), 0
	if r.existed {
		b[25] = 1
	}
	le.PutUint16(b[26:], r.part)
	le.PutUint32(b[28:], r.owner)
}

// ParseResult reads what encode wrote.
func ParseResult(version layout.Version, b []byte) (r Result, ok bool) {
	if len(b) != ValueLen || outcome(b[24]) >= numOutcomes {
		return r, false
	}
	le := binary.LittleEndian
	return Result{
		seq: le.Uint64(b), owner: le.Uint32(b[28:]), version: version, actual: layout.Version(le.Uint64(b[8:])),
		number: int64(le.Uint64(b[16:])), outcome: outcome(b[24]), existed: b[25]&1 != 0, part: le.Uint16(b[26:]),
	}, true
}
