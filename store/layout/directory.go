package layout

import "fmt"

// The root table in region 0 has one word per shard, which says where the
// shard's directory is. From the top:
//
//	root word        │ place 40 │ depth 6 │ tag 18          │
//	directory entry  │ place 40 │ depth 6 │ step 2 │ tag 16 │
//
// A directory of depth d is 2^d entries of 8 bytes in units of 4 KiB; the
// entry of a key is the one at its hash's Prefix(d). An entry names a segment
// with its own depth (at most d) and step; entries that share a segment are
// equal. The tags keep zeroed memory, and one kind of word in place of the
// other, from parsing.
//
// Both are hints: a reader may hold old ones, and only bucket headers decide.
const (
	dirPlacePos = 24
	dirDepthPos = 18
	dirDepthMax = 1<<6 - 1
	dirStepPos  = 16

	rootTag     = 0x2524f // 18 bits
	rootTagMask = 1<<18 - 1
	dirTag      = 0xd12e // 16 bits
	dirTagMask  = 1<<16 - 1

	// DirPageEntries is the number of directory entries in one page.
	DirPageEntries = PageSize / wordSize
)

// MakeRoot makes a root word.
func MakeRoot(p Place, depth uint8) uint64 {
	checkDir(p, depth, 0)
	return uint64(p)<<dirPlacePos | uint64(depth)<<dirDepthPos | rootTag
}

// ParseRoot takes a root word apart; zero is none.
func ParseRoot(w uint64) (p Place, depth uint8, ok bool) {
	depth = uint8(w>>dirDepthPos) & dirDepthMax
	if w&rootTagMask != rootTag || depth > MaxDepth {
		return 0, 0, false
	}
	return Place(w >> dirPlacePos), depth, true
}

// MakeDirEntry makes a directory entry.
func MakeDirEntry(p Place, depth, step uint8) uint64 {
	checkDir(p, depth, step)
	return uint64(p)<<dirPlacePos | uint64(depth)<<dirDepthPos | uint64(step)<<dirStepPos | dirTag
}

// ParseDirEntry takes a directory entry apart; zero is none.
func ParseDirEntry(w uint64) (p Place, depth, step uint8, ok bool) {
	depth = uint8(w>>dirDepthPos) & dirDepthMax
	if w&dirTagMask != dirTag || depth > MaxDepth {
		return 0, 0, 0, false
	}
	return Place(w >> dirPlacePos), depth, uint8(w>>dirStepPos) & (SegmentSteps - 1), true
}

func checkDir(p Place, depth, step uint8) {
	if p > MaxPlace || depth > MaxDepth || step >= SegmentSteps {
		panic(fmt.Sprintf("layout: directory word out of range: place %#x depth %d step %d", uint64(p), depth, step))
	}
}

// DirBytes is the memory of a directory of that depth, in bytes: whole pages.
func DirBytes(depth uint8) int {
	if depth > MaxDepth {
		panic(fmt.Sprintf("layout: depth %d exceeds %d", depth, MaxDepth))
	}
	return max(PageSize, wordSize<<depth)
}

// RootSlot is the byte offset in region 0 of a shard's root word.
func RootSlot(rootOffset uint32, shard uint16) uint64 {
	return uint64(rootOffset) + uint64(shard)*wordSize
}
