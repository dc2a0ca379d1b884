package logged

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A Write is a parsed body. It aliases the body, and so does what it yields.
type Write struct {
	Shard uint16
	// Version is the last that the write took. The result of its request has it; its
	// newest effect may be older, if the last parts of a batch had none.
	Version layout.Version

	body    []byte
	data    int // where the first key is
	effects int
	forgets int
	words   uint8 // of the result; 0: none
	apart   bool  // there is a value that stands apart
	tables  bool  // there is one in a table of values
}

// Parse reads a body. It takes any bytes: no length is believed before it was compared with
// what is there. What it takes is whole, so Effects, Result and Forget cannot fail.
//
// Errors: ErrNewer, ErrMalformed.
func Parse(body []byte) (Write, error) {
	le := binary.LittleEndian
	if IsPiece(body) {
		return Write{}, malformed("a piece of a value, where a write is expected")
	}
	if len(body) > 0 && body[offFormat] != Format {
		return Write{}, fmt.Errorf("a write of format %d, expected %d: %w", body[offFormat], Format, ErrNewer)
	}
	if len(body) < headLen {
		return Write{}, malformed("a write of %d bytes is shorter than its head", len(body))
	}
	w := Write{
		Shard: le.Uint16(body[offShard:]), Version: layout.Version(le.Uint64(body[offFormat:]) >> formatBits), body: body,
		effects: int(le.Uint16(body[offEffects:])), forgets: int(le.Uint16(body[offForgets:])), words: body[offWords],
	}
	switch {
	case body[offFlags] != 0 || w.words>>resultWords != 0:
		return Write{}, fmt.Errorf("a write with flags %#x and words %#x: %w", body[offFlags], w.words, ErrNewer)
	case w.Shard >= layout.MaxShards:
		return Write{}, malformed("a write of shard %d, there are at most %d", w.Shard, layout.MaxShards)
	case w.Version == 0:
		return Write{}, malformed("a write without a version")
	case w.effects > base.MaxParts:
		return Write{}, malformed("a write of %d keys, at most %d", w.effects, base.MaxParts)
	case w.words != 0 && w.words&1 == 0:
		return Write{}, malformed("a result of no request, with words %#x", w.words)
	case w.effects == 0 && w.forgets == 0 && w.words == 0:
		return Write{}, malformed("a write that changes nothing")
	}
	if err := w.checkEffects(); err != nil {
		return Write{}, err
	}
	if err := w.checkResult(); err != nil {
		return Write{}, err
	}
	if err := w.checkApart(); err != nil {
		return Write{}, err
	}
	if err := w.checkBytes(); err != nil {
		return Write{}, err
	}
	return w, nil
}

// malformed is an error about bytes that no program should have written.
func malformed(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ErrMalformed)
}

// checkEffects goes through the heads of the effects, and finds where their keys begin.
func (w *Write) checkEffects() error {
	end := uint64(len(w.body))
	slots, at := uint64(w.slots()*base.SlotKeyLen), uint64(w.heads())
	used := uint64(0) // by keys and values: less than 2^45, as there are few effects
	next, last := w.first(), layout.Version(0)
	for i := range w.effects {
		if at+effectLen > end {
			return malformed("the head of key %d of %d is not there", i, w.effects)
		}
		h := parseHead(w.body[at:])
		at += effectLen
		w.apart, w.tables = w.apart || h.flags&flagApart != 0, w.tables || h.more&moreBytes != 0
		words := w.body[at:min(at+uint64(h.words), end)]
		if err := h.check(words, next); err != nil {
			return fmt.Errorf("key %d of %d: %w", i, w.effects, err)
		}
		at += uint64(h.words)
		if h.flags&flagVersion != 0 {
			next = layout.Version(binary.LittleEndian.Uint64(words[h.words-8:]))
		}
		if h.flags&flagKeeps == 0 {
			if next <= last || next > w.Version {
				return malformed("key %d of %d has version %v behind %v in a write of %v", i, w.effects, next, last, w.Version)
			}
			last = next
		}
		next++
		used += uint64(h.key) + uint64(h.value)
	}
	if at+used+slots != end {
		return malformed("a write of %d bytes whose parts have %d", end, at+used+slots)
	}
	w.data = int(at)
	return nil
}

// A head is the head of an effect: its flags, and the lengths of its parts.
type head struct {
	flags uint8
	more  uint8  // of its flags
	key   uint16 // bytes of the key
	words int    // bytes behind the head
	value uint32 // bytes of the value
}

// parseHead reads a head that is there. It verifies nothing.
func parseHead(b []byte) head {
	le := binary.LittleEndian
	flags := b[offEffectFlags]
	return head{
		flags: flags, more: b[offEffectMore], key: le.Uint16(b[offKeyLen:]), value: le.Uint32(b[offValueLen:]),
		words: 8 * bits.OnesCount8(flags&flagsOfWords),
	}
}

// check says what is wrong with a head and its words, of which those that are left in the
// body are given. Its version is named if it is not the next.
func (h *head) check(words []byte, next layout.Version) error {
	switch {
	case h.more&^moreBytes != 0:
		return fmt.Errorf("its head has %#x where nothing is known: %w", h.more, ErrNewer)
	case h.key == 0 || h.key > layout.MaxKeyLen:
		return malformed("a key of %d bytes, must be 1 to %d", h.key, layout.MaxKeyLen)
	case len(words) < h.words:
		return malformed("its words are not there")
	case h.flags&flagKeeps != 0 && h.flags&flagsOfWords != flagDue:
		return malformed("it changes nothing, with flags %#x", h.flags)
	case h.value != 0 && (h.flags&flagKeeps != 0 || base.Kind(h.flags&kindMask) == base.OpDelete):
		return malformed("it puts nothing, with a value of %d bytes", h.value)
	}
	if h.flags&flagApart != 0 && !describes(h.value) {
		return malformed("the description of its value has %d bytes", h.value)
	}
	if h.more&moreBytes != 0 && (h.flags&flagApart != 0 || h.value != bytesLen) {
		return malformed("%d bytes say where its value stands, with flags %#x", h.value, h.flags)
	}
	for ; len(words) > 0; words = words[8:] {
		if binary.LittleEndian.Uint64(words) == 0 {
			return malformed("a word that is zero is there, with flags %#x", h.flags)
		}
		if len(words) == 8 && h.flags&flagVersion != 0 && layout.Version(binary.LittleEndian.Uint64(words)) == next {
			return malformed("its version is named, and it is the next")
		}
	}
	return nil
}

// checkResult refuses a result that is none, and one that has another encoding.
func (w *Write) checkResult() error {
	if w.words == 0 {
		return nil
	}
	for i := range bits.OnesCount8(w.words) {
		if binary.LittleEndian.Uint64(w.body[headLen+8*i:]) == 0 {
			return malformed("a word of the result that is zero is there")
		}
	}
	var b, again [dedup.ValueLen]byte
	w.result(&b)
	r, ok := dedup.ParseResult(w.Version, b[:])
	if ok {
		r.Encode(again[:])
	}
	if !ok || again != b {
		return fmt.Errorf("a result of another kind: %w", ErrNewer)
	}
	return nil
}

// heads is where the heads of the effects begin.
func (w *Write) heads() int { return headLen + 8*bits.OnesCount8(w.words) }

// slots is how many slots stand at the end.
func (w *Write) slots() int {
	if w.words != 0 {
		return w.forgets + 1
	}
	return w.forgets
}

// first is the version of the first effect, if it does not name another.
func (w *Write) first() layout.Version { return w.Version + 1 - layout.Version(w.effects) }
