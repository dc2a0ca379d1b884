package logged

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Size returns how many bytes Put writes. 0: the write changes nothing on the disk, and
// has no record. The flight has been judged, and numbered.
func Size(f *flight.Flight) int { return size(f, split{}) }

// size is Size of a write of whose values some stand apart.
func size(f *flight.Flight, s split) int {
	n := 0
	next := first(f)
	for _, e := range f.Effects {
		if !stands(e) {
			continue
		}
		flags := flagsOf(e, next)
		n += effectLen + 8*bits.OnesCount8(flags&flagsOfWords) + len(e.Key)
		if flags&flagKeeps == 0 {
			n += s.valueLen(e)
			next = e.Version
		}
		next++
	}
	if f.Recorded() {
		var r [dedup.ValueLen]byte
		n += 8*bits.OnesCount8(resultOf(f, &r)) + base.SlotKeyLen
	}
	n += len(f.Forget) * base.SlotKeyLen
	if n == 0 {
		return 0
	}
	return headLen + n
}

// Put writes a write into b, of exactly Size bytes.
//
// It panics if the flight is none that a store judges and numbers: if it has effects in
// another shard, versions that do not rise up to its own, keys that no store takes. A reader
// would take those for another write, or refuse them when nothing else is left of it.
func Put(b []byte, f *flight.Flight) { encode(b, f, split{}, nil) }

// encode is Put of a write of whose values some stand apart, in pieces at these positions.
func encode(b []byte, f *flight.Flight, s split, pieces []uint64) {
	le := binary.LittleEndian
	at, words := headLen, uint8(0)
	if f.Recorded() {
		var r [dedup.ValueLen]byte
		words = resultOf(f, &r)
		for i := range resultWords {
			le.PutUint64(b[at:], le.Uint64(r[8*i:])) // a slot stands behind, so there is room
			at += int(words >> i & 1 << 3)
		}
	}
	effects, at, data := putHeads(b, at, f, s)
	slots := len(f.Forget)
	if words != 0 {
		slots++
	}
	if n := at + data + slots*base.SlotKeyLen; n != len(b) || effects > base.MaxParts || len(f.Forget) > maxForgets {
		panic(fmt.Sprintf("store: a write of %d bytes, with %d keys and %d forgotten results, in %d bytes", n, effects, len(f.Forget), len(b)))
	}
	for _, e := range f.Effects {
		if !stands(e) {
			continue
		}
		at += copy(b[at:], e.Key)
		if n := s.pieces(e); n > 0 {
			putDescription(b[at:], e.Value, pieces[:n])
			at, pieces = at+describedLen(n), pieces[n:]
			continue
		}
		if inTable(e) {
			putBytes(b[at:], e.Bytes)
			at += bytesLen
			continue
		}
		at += copy(b[at:], valueOf(e))
	}
	if words != 0 {
		k := f.Op.ID.SlotKey()
		k.Append(b[at:at])
		at += base.SlotKeyLen
	}
	for i := range f.Forget {
		f.Forget[i].Append(b[at:at])
		at += base.SlotKeyLen
	}
	le.PutUint64(b[offFormat:], uint64(f.Version)<<formatBits|Format)
	b[offFlags], b[offWords] = 0, words
	le.PutUint16(b[offShard:], f.Shard)
	le.PutUint16(b[offEffects:], uint16(effects))
	le.PutUint16(b[offForgets:], uint16(len(f.Forget)))
}

// maxForgets is how many results one write can forget: as many as the head can count.
const maxForgets = 1<<16 - 1

// putHeads writes the heads of the effects from a place on; it returns how many there are,
// the place behind them, and how many bytes their keys and values have.
func putHeads(b []byte, at int, f *flight.Flight, s split) (effects, end, data int) {
	le := binary.LittleEndian
	next := first(f)
	var last layout.Version
	for _, e := range f.Effects {
		if !stands(e) {
			continue
		}
		if e.Shard != f.Shard || e.Kind > kindMask || len(e.Key) == 0 || len(e.Key) > layout.MaxKeyLen {
			panic(fmt.Sprintf("store: a %v in shard %d, of a key of %d bytes, in a write of shard %d", e.Kind, e.Shard, len(e.Key), f.Shard))
		}
		flags, more, value := flagsOf(e, next), uint8(0), len(valueOf(e))
		if inTable(e) {
			more, value = moreBytes, bytesLen
		}
		if n := s.pieces(e); n > 0 {
			flags, value = flags|flagApart, describedLen(n)
		}
		h := b[at : at+effectLen]
		h[offEffectFlags], h[offEffectMore] = flags, more
		le.PutUint16(h[offKeyLen:], uint16(len(e.Key)))
		le.PutUint32(h[offValueLen:], uint32(value))
		at += effectLen
		data += len(e.Key) + value
		if flags&flagsOfWords != 0 {
			at = putWords(b, at, e, flags)
		}
		if flags&flagKeeps == 0 {
			if e.Version <= last || e.Version > f.Version {
				panic(fmt.Sprintf("store: an effect of version %v behind one of %v in a write of %v", e.Version, last, f.Version))
			}
			last, next = e.Version, e.Version
		}
		next++
		effects++
	}
	return effects, at, data
}

// putWords writes the words that the flags of an effect stand for, and returns the place
// behind them.
func putWords(b []byte, at int, e *flight.Effect, flags uint8) int {
	for _, w := range [...]struct {
		flag  uint8
		value uint64
	}{{flagExpiry, e.Expiry}, {flagUnlist, e.Unlist}, {flagDue, e.Due}, {flagVersion, uint64(e.Version)}} {
		if flags&w.flag != 0 {
			binary.LittleEndian.PutUint64(b[at:], w.value)
			at += 8
		}
	}
	return at
}

// stands says whether an effect is in the body: if it changes its key, or takes an entry
// off the list of the expirer.
func stands(e *flight.Effect) bool { return !e.Noop || e.Due != 0 }

// first is the version that the first effect has if none of the parts is without effect.
func first(f *flight.Flight) layout.Version {
	v := f.Version + 1
	for _, e := range f.Effects {
		if stands(e) {
			v--
		}
	}
	return v
}

// flagsOf returns the flags of an effect, whose version need not be named if it is next.
// One that keeps its key has nothing but the entry that is due: what its evaluation found
// besides, as the expiry that it would have replaced, was not done.
func flagsOf(e *flight.Effect, next layout.Version) uint8 {
	flags := uint8(e.Kind)
	if e.Due != 0 {
		flags |= flagDue
	}
	if e.Noop {
		return flags | flagKeeps
	}
	if e.Expiry != 0 {
		flags |= flagExpiry
	}
	if e.Unlist != 0 {
		flags |= flagUnlist
	}
	if e.Version != next {
		flags |= flagVersion
	}
	return flags
}

// inTable says whether the value that an effect puts stands in a table of values.
func inTable(e *flight.Effect) bool { return e.Bytes != nil && e.Puts() }

// valueOf returns what an effect puts.
func valueOf(e *flight.Effect) []byte {
	if e.Puts() {
		return e.Value
	}
	return nil
}

// resultOf writes the record of a write's result, and says which words are not zero. There
// is always one: that of the request's number, of which 0 is none.
func resultOf(f *flight.Flight, b *[dedup.ValueLen]byte) (words uint8) {
	r := dedup.ResultOf(&f.Op.ID, f.Result)
	r.Encode(b[:])
	for i := range resultWords {
		if binary.LittleEndian.Uint64(b[8*i:]) != 0 {
			words |= 1 << i
		}
	}
	return words
}
