package layout

import "encoding/binary"

// A Peek is what stands at a place at the moment, as far as it can be told
// without holding it still: for the server, when it looks for something to
// evict. Nothing is verified; who acts on it looks again under the shard's lock.
type Peek struct {
	Version Version
	State   State
	Shard   uint16
	Size    int    // of the item, bytes
	Expiry  uint64 // microseconds since 1970; 0: never
	Key     []byte // in the buffer that was handed in
}

// PeekItem reads version, state, shard and key of the item at mem by aligned
// atomic loads, while others may be writing there. The key is copied to buf,
// which grows if it must. ok is false where no live item begins.
func PeekItem(mem, buf []byte) (p Peek, ok bool) {
	w0, w1 := LoadWord(mem, offItemWord0), LoadWord(mem, offItemWord1)
	p = Peek{Version: Version(w0 >> stateBits), State: State(w0 & stateMask), Shard: uint16(w1>>shardPos) & (MaxShards - 1)}
	keyLen, valLen := int(w1>>keyLenPos), int(w1>>valLenPos&(1<<valLenBits-1))
	if p.State != Live || keyLen < 1 || keyLen > MaxKeyLen || valLen > MaxValueLen {
		return Peek{}, false
	}
	sh := shapeOf(keyLen, valLen, w1&flagExpiry != 0)
	if sh.size > len(mem) {
		return Peek{}, false
	}
	p.Size = sh.size
	if sh.expiry {
		p.Expiry = LoadWord(mem, ItemHeaderSize)
	}
	// The key begins on a word: everything before it is words.
	buf = buf[:0]
	for off := sh.keyOff; off < sh.keyOff+keyLen; off += wordSize {
		buf = binary.LittleEndian.AppendUint64(buf, LoadWord(mem, off))
	}
	p.Key = buf[:keyLen]
	return p, true
}
