package layout

import (
	"fmt"

	"github.com/zeebo/xxh3"
)

// The reclaim ring in region 0 lists item pages that were retired, so that a
// client can drop its cached places there before it uses a newer lease. The
// entry of version v stands at index v mod entries:
//
//	 0 │ version (1 is the first)
//	 8 │ place of the page 40 │ pages of 4 KiB 24
//	16 │ checksum of both
//	24 │ reserved, zero
//
// The checksum is there for the reader that lags: without it the version of one
// entry and the place of the entry that overwrites it, sampled in one READ,
// would pass for a whole one, and the page of the first would stay in the
// reader's cache.
const (
	// RetiredSize is the size of an entry, in bytes.
	RetiredSize = 32

	retiredPageBits = 24
	// MaxRetiredPages bounds one entry, in units of PageSize (64 GiB).
	MaxRetiredPages = 1<<retiredPageBits - 1

	offRetiredVersion = 0
	offRetiredPlace   = offRetiredVersion + wordSize
	offRetiredSum     = offRetiredPlace + wordSize

	retiredSumSeed = 0x72657469_72656431
)

// Retired is one entry: Pages pages of PageSize bytes from Place on.
type Retired struct {
	Version uint64 // the reclaim version that this retirement made
	Place   Place
	Pages   uint32
}

// Contains reports whether p lies in the retired pages.
func (r Retired) Contains(p Place) bool {
	return p >= r.Place && uint64(p-r.Place)*wordSize < uint64(r.Pages)*PageSize
}

// RetiredOffset is where the entry of a version stands, as a byte offset in
// region 0.
func RetiredOffset(h RegionHeader, version uint64) uint64 {
	return retiredOffset(h.ReclaimOffset, h.ReclaimEntries, version)
}

func retiredOffset(off, entries uint32, version uint64) uint64 {
	return uint64(off) + version%uint64(entries)*RetiredSize
}

// PutRetired writes the entry of r.Version into mem, the memory of region 0
// that h describes. Raise the reclaim version afterwards.
func PutRetired(mem []byte, h RegionHeader, r Retired) {
	if r.Version == 0 || r.Place > MaxPlace || r.Pages == 0 || r.Pages > MaxRetiredPages {
		panic(fmt.Sprintf("layout: bad retirement %+v", r))
	}
	off := int(RetiredOffset(h, r.Version))
	w := uint64(r.Place)<<retiredPageBits | uint64(r.Pages)
	StoreWord(mem, off+offRetiredVersion, r.Version)
	StoreWord(mem, off+offRetiredPlace, w)
	StoreWord(mem, off+offRetiredSum, retiredSum(r.Version, w))
}

// ParseRetired reads one entry. It fails with ErrShort, with ErrFormat for an
// entry that was never written, and with ErrTorn. The caller compares the
// version with the one that it asked for: a higher one means that the caller
// lags behind the whole ring and must drop every cached place.
func ParseRetired(b []byte) (Retired, error) {
	if len(b) < RetiredSize {
		return Retired{}, ErrShort
	}
	version, w := getWord(b, offRetiredVersion), getWord(b, offRetiredPlace)
	r := Retired{Version: version, Place: Place(w >> retiredPageBits), Pages: uint32(w & MaxRetiredPages)}
	if r.Version == 0 || r.Pages == 0 {
		return Retired{}, ErrFormat
	}
	if getWord(b, offRetiredSum) != retiredSum(version, w) {
		return Retired{}, ErrTorn
	}
	return r, nil
}

func retiredSum(version, w uint64) uint64 {
	var b [2 * wordSize]byte
	setWord(b[:], 0, version)
	setWord(b[:], wordSize, w)
	return xxh3.HashSeed(b[:], retiredSumSeed)
}
