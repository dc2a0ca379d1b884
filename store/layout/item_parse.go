package layout

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// An ItemView is a verified item over the caller's buffer: nothing is copied,
// and the view is good as long as the buffer is. The zero view is no item.
//
// Verified means: the checksum held for this place, incarnation and version.
// The state is that of the first word; a reader accepts Live only (or Held,
// where the server gave it the place).
type ItemView struct {
	Version Version
	State   State
	// ValLen is the length of the value in bytes, Chunks the number of its
	// chunks: 0 if the value is not chunked.
	ValLen, Chunks int
	// Expiry is in microseconds since 1970, server time; 0 means never.
	Expiry uint64
	// Shard is the shard that the item belongs to.
	Shard uint16
	// Size is that of the whole item, in bytes, a multiple of 8.
	Size int

	b               []byte // exactly the part under the checksum, and more of a chunked item if it was there
	inc             uint64
	place           Place
	sum             uint64
	keyOff, valOff  int
	sumsOff, keyLen int
	need            int
}

// Key is the item's key, in the buffer.
func (v *ItemView) Key() []byte { return v.b[v.keyOff : v.keyOff+v.keyLen : v.keyOff+v.keyLen] }

// Value is the value, in the buffer; nil for a chunked item, whose value is
// verified chunk by chunk (Chunk, VerifyChunk).
func (v *ItemView) Value() []byte {
	if v.Chunks > 0 {
		return nil
	}
	return v.b[v.valOff : v.valOff+v.ValLen : v.valOff+v.ValLen]
}

// Head is the item up to its value, in the buffer: of a chunked item all that
// ParseItem needs.
func (v *ItemView) Head() []byte { return v.b[:v.valOff:v.valOff] }

// ValueOffset is where the value begins, in bytes from the item's place; for a
// chunked item it is a multiple of 8.
func (v *ItemView) ValueOffset() int { return v.valOff }

// Need is, after ErrShort, the number of bytes that ParseItem asks for: at
// most MaxItemSize. It comes from lengths that nothing has verified.
func (v *ItemView) Need() int { return v.need }

// ChunkRange is where chunk i of the value lies: an offset into the value and
// a length, both in bytes. A chunk that does not exist has length 0.
func (v *ItemView) ChunkRange(i int) (off, n int) {
	if i < 0 || i >= v.Chunks {
		return 0, 0
	}
	off = i * ChunkSize
	return off, min(ChunkSize, v.ValLen-off)
}

// VerifyChunk reports whether data, READ from the item's place, is chunk i of
// this value and of no other version of it.
func (v *ItemView) VerifyChunk(i int, data []byte) bool {
	_, n := v.ChunkRange(i)
	if n == 0 || len(data) != n {
		return false
	}
	want := getWord(v.b, v.sumsOff+i*wordSize)
	return want == nonzero(xxh3.HashSeed(data, chunkSeed(v.inc, v.place, v.Version, i)))
}

// Chunk is chunk i, if all of it was in the buffer that was parsed and it
// verifies.
func (v *ItemView) Chunk(i int) ([]byte, bool) {
	off, n := v.ChunkRange(i)
	lo, hi := v.valOff+off, v.valOff+off+n
	if n == 0 || hi > len(v.b) || !v.VerifyChunk(i, v.b[lo:hi]) {
		return nil, false
	}
	return v.b[lo:hi:hi], true
}

// ParseItem reads the item that was READ from place p, and verifies it: whole,
// or of a chunked item the head up to the value (HeadSize); bytes behind that
// are kept for Chunk. The bytes may be anything. It fails with
//
//	ErrFormat  no item: impossible state, version, lengths or flags
//	ErrShort   b is cut off; Need of the returned view says how much to READ
//	ErrTorn    the checksum does not hold
//
// and does not allocate.
func ParseItem(b []byte, inc uint64, p Place) (ItemView, error) {
	var v ItemView
	err := v.parse(b, inc, p, allSumBits)
	return v, err
}

// allSumBits is the part of the checksum that is compared: all of it. Only the
// test that shows how many torn items a shorter checksum would let pass takes
// fewer bits.
const allSumBits = ^uint64(0)

// parse is ParseItem into a view that is reused; after an error the view is
// no item.
func (v *ItemView) parse(b []byte, inc uint64, p Place, sumBits uint64) error {
	*v = ItemView{}
	if len(b) < ItemHeaderSize {
		v.need = ItemHeaderSize
		return ErrShort
	}
	w0, w1 := getWord(b, offItemWord0), getWord(b, offItemWord1)
	version, state := Version(w0>>stateBits), State(w0&stateMask)
	keyLen := int(w1 >> keyLenPos)
	valLen := int(w1 >> valLenPos & (1<<valLenBits - 1))
	flags := w1 & flagsMask
	if version == 0 || !state.valid() || keyLen < 1 || keyLen > MaxKeyLen || valLen > MaxValueLen ||
		flags&^(flagExpiry|flagChunked|flagHead) != 0 || (flags&flagChunked != 0) != (valLen > ChunkSize) ||
		flags&flagHead != 0 && (valLen < headMin || valLen > MaxHeadLen) {
		return ErrFormat
	}
	sh := shapeOf(keyLen, valLen, flags&flagExpiry != 0)
	end := sh.sumEnd()
	if len(b) < end {
		v.need = end
		return ErrShort
	}
	sum := getWord(b, offItemSum)
	if (sum^nonzero(xxh3.HashSeed(b[ItemHeaderSize:end], itemSeed(inc, p, version, w1))))&sumBits != 0 {
		return ErrTorn
	}
	v.Version, v.State, v.Shard = version, state, uint16(w1>>shardPos)&(MaxShards-1)
	v.ValLen, v.Chunks, v.Size = valLen, sh.chunks, sh.size
	v.b, v.inc, v.place, v.sum = b[:min(len(b), sh.size)], inc, p, sum
	v.keyOff, v.keyLen, v.valOff, v.sumsOff = sh.keyOff, keyLen, sh.valOff, sh.sumsOff
	if sh.expiry {
		v.Expiry = getWord(b, ItemHeaderSize)
	}
	return nil
}

// Accept is the rule for an item that was READ from place p, where a key is
// remembered to be, as Lookup applies it: live, the checksum holds, the key is
// equal. If it is true the view shows the item over b; otherwise it is no item, and
// a get goes on with a Lookup. It does not allocate.
func (v *ItemView) Accept(b []byte, inc uint64, p Place, key []byte) bool {
	return len(b) >= ItemHeaderSize && stateOf(b) == Live &&
		v.parse(b, inc, p, allSumBits) == nil && sameKey(v.Key(), key)
}

// A Whole is a verified item whose value stands in it in one piece, as far as the shortest way of a
// get has to know it. It is small enough to travel in registers, where an ItemView is written to memory and
// read again: that costs as much as the checksum of a short value.
type Whole struct {
	Version  Version
	Expiry   uint64 // microseconds since 1970, server time; 0: never
	From, To int    // the value, in the buffer
}

// AcceptWhole is the rule of Accept for an item that is not chunked: ok holds if Accept would be true, and
// Value would be b[w.From:w.To]. An item of chunks is not ok. It does not allocate.
func AcceptWhole(b []byte, inc uint64, p Place, key []byte) (w Whole, ok bool) {
	if len(b) < ItemHeaderSize {
		return Whole{}, false
	}
	w0, w1 := getWord(b, offItemWord0), getWord(b, offItemWord1)
	keyLen, valLen, flags := int(w1>>keyLenPos), int(w1>>valLenPos&(1<<valLenBits-1)), w1&flagsMask
	version := Version(w0 >> stateBits)
	if State(w0&stateMask) != Live || version == 0 || keyLen < 1 || keyLen > MaxKeyLen || valLen > ChunkSize ||
		flags&^(flagExpiry|flagHead) != 0 || flags&flagHead != 0 && (valLen < headMin || valLen > MaxHeadLen) {
		return Whole{}, false
	}
	keyOff := ItemHeaderSize
	if flags&flagExpiry != 0 {
		keyOff += wordSize
	}
	from := keyOff + keyLen
	end := roundUp(from + valLen)
	if len(b) < end {
		return Whole{}, false
	}
	sum := nonzero(xxh3.HashSeed(b[ItemHeaderSize:end], itemSeed(inc, p, version, w1)))
	if getWord(b, offItemSum) != sum || !sameKey(b[keyOff:from], key) {
		return Whole{}, false
	}
	w.Version, w.From, w.To = version, from, from+valLen
	if flags&flagExpiry != 0 {
		w.Expiry = getWord(b, ItemHeaderSize)
	}
	return w, true
}

// A Peek is what stands at a place at the moment, as far as that can be told
// without holding it still: it is for the server, when it looks for something to
// evict. Nothing is verified, so code that acts on a Peek looks again under the
// shard's lock.
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
