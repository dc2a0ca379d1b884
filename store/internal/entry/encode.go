package entry

import (
	"encoding/binary"
	"fmt"

	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/logged"
)

// AppendMarker appends a marker.
func AppendMarker(b []byte, life, term uint64) []byte {
	if life == 0 || term == 0 {
		panic(fmt.Sprintf("entry: a marker of life %d in term %d", life, term))
	}
	b = appendHead(b, Marker, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, life)
	return binary.LittleEndian.AppendUint64(b, term)
}

// AppendCheck appends a check.
func AppendCheck(b []byte, id uint64) []byte {
	if id == 0 {
		panic("entry: a check without an id")
	}
	return binary.LittleEndian.AppendUint64(appendHead(b, Check, 0, 0), id)
}

// appendHead appends what stands in front of every entry.
func appendHead(b []byte, k Kind, count uint32, reign uint64) []byte {
	b = append(b, Format, byte(k), 0, 0)
	b = binary.LittleEndian.AppendUint32(b, count)
	return binary.LittleEndian.AppendUint64(b, reign)
}

// Head is what an entry of writes has in front of them, in bytes.
const Head = writesHead

// Cost bounds what a write takes in an entry: what it was admitted with, the heads of its
// body, its effects, its result.
func Cost(f *flight.Flight) int64 { return f.Charge + 192 + 64*int64(len(f.Effects)) }

// AppendWrites appends an entry of a reign with these writes, which were judged and numbered, in
// the order of their numbers and without a gap: first is the number of the first of them, and
// next the one behind the last.
func AppendWrites(b []byte, reign, first, next uint64, writes []*flight.Flight) []byte {
	if reign == 0 || first == 0 || next <= first || next-first > MostNumbers {
		panic(fmt.Sprintf("entry: numbers from %d to %d in reign %d", first, next, reign))
	}
	le, head := binary.LittleEndian, len(b)
	b = appendHead(b, Writes, 0, reign)
	b = le.AppendUint64(b, first)
	b = le.AppendUint64(b, next-first)
	count := uint32(0)
	for _, f := range writes {
		n := logged.Size(f)
		if n == 0 {
			continue
		}
		count++
		b = le.AppendUint64(b, uint64(n))
		at := len(b)
		b = append(b, make([]byte, padded(uint64(n)))...)
		logged.Put(b[at:at+n:at+n], f)
	}
	le.PutUint32(b[head+offCount:], count)
	return b
}
