package logged

import (
	"encoding/binary"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/layout"
)

// What a parsed write says. All of it was verified by Parse, so no length is looked at
// twice.

// Effects yields what becomes of each key, in the order of the parts: for range w.Effects.
//
// An effect with Noop leaves its key as it is: only the entry under Due leaves the list of
// the expirer; it has the version of the write. Parts of a batch without any effect are not
// there. A put has a Value that is not nil; with Apart it is the description of the value,
// which Join reads. A key that stands there twice, which no store
// writes, is what the last one says.
//
// A value in a table of values is not nil either, but empty, and Bytes says where it stands.
func (w *Write) Effects(yield func(base.Effect) bool) {
	for s := range w.effectsAsTheyStand {
		if s.inTable {
			s.Bytes, s.Value = bytesOf(s.Value), s.Value[:0]
		}
		if !yield(s.Effect) {
			return
		}
	}
}

// A standing is an effect with what stands in the place of its value.
type standing struct {
	base.Effect
	inTable bool // where the value stands
}

// effectsAsTheyStand yields the effects.
func (w *Write) effectsAsTheyStand(yield func(standing) bool) {
	at, data, next := w.heads(), w.data, w.first()
	for range w.effects {
		h := parseHead(w.body[at:])
		at += effectLen
		e := standing{Effect: base.Effect{Shard: w.Shard, Kind: base.Kind(h.flags & kindMask), Noop: h.flags&flagKeeps != 0, Version: w.Version}}
		words := w.body[at : at+h.words]
		at += h.words
		e.Expiry, words = word(words, h.flags&flagExpiry)
		e.Unlist, words = word(words, h.flags&flagUnlist)
		e.Due, words = word(words, h.flags&flagDue)
		if v, _ := word(words, h.flags&flagVersion); v != 0 {
			next = layout.Version(v)
		}
		if !e.Noop {
			e.Version = next
		}
		next++
		e.Key, data = w.slice(data, int(h.key))
		if !e.Noop && e.Kind != base.OpDelete {
			e.Apart, e.inTable = h.flags&flagApart != 0, h.more&moreBytes != 0
			e.Value, data = w.slice(data, int(h.value))
		}
		if !yield(e) {
			return
		}
	}
}

// word takes the first word, if its flag is set.
func word(words []byte, flag uint8) (uint64, []byte) {
	if flag == 0 {
		return 0, words
	}
	return binary.LittleEndian.Uint64(words), words[8:]
}

// slice returns bytes of the body and the place behind them. Nobody can append to them: the
// next key is there.
func (w *Write) slice(at, n int) ([]byte, int) { return w.body[at : at+n : at+n], at + n }

// Result returns what a retry of the request is told, and the request's slot; false if the
// write was none that can be retried. The result has the write's version.
func (w *Write) Result() (k base.SlotKey, r dedup.Result, ok bool) {
	if w.words == 0 {
		return k, r, false
	}
	var b [dedup.ValueLen]byte
	w.result(&b)
	r, _ = dedup.ParseResult(w.Version, b[:])
	return w.slot(0), r, true
}

// result writes the record of the result.
func (w *Write) result(b *[dedup.ValueLen]byte) {
	at := headLen
	for i := range resultWords {
		if w.words&(1<<i) != 0 {
			copy(b[8*i:], w.body[at:at+8])
			at += 8
		}
	}
}

// Forget yields the slots whose results are removed: for range w.Forget.
func (w *Write) Forget(yield func(base.SlotKey) bool) {
	for i := w.slots() - w.forgets; i < w.slots(); i++ {
		if !yield(w.slot(i)) {
			return
		}
	}
}

// slot returns one of the slots at the end.
func (w *Write) slot(i int) base.SlotKey {
	at := len(w.body) - (w.slots()-i)*base.SlotKeyLen
	k, _ := base.ParseSlotKey(w.body[at : at+base.SlotKeyLen])
	return k
}
