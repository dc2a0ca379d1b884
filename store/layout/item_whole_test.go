package layout

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestAcceptWhole: what the short way believes is what Accept believes, of items as they are written and of any
// that a writer, damage or an attacker has left in their place.
func TestAcceptWhole(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	const inc, place = 77, Place(4096)
	believed, refused := 0, 0
	for n := range 20_000 {
		it := Item{Version: Version(1 + r.Uint64N(1<<50)), Key: make([]byte, 1+r.IntN(40)), Value: make([]byte, r.IntN(300)), Shard: uint16(r.IntN(MaxShards))}
		if n%100 == 0 {
			it.Value = make([]byte, ChunkSize-1+r.IntN(3)) // the last without chunks, and the first with them
		}
		for i := range it.Key {
			it.Key[i] = byte(r.Uint32())
		}
		if n%50 == 1 {
			it.Value = AppendHead(nil, headOf(100_000, MinPartLen))
		}
		if n%3 == 0 {
			it.Expiry = 1 + r.Uint64N(1<<40)
		}
		mem := make([]byte, ItemSize(len(it.Key), len(it.Value), it.Expiry != 0))
		WriteItem(mem, inc, place, it, Pending)
		if n%5 != 0 {
			SetState(mem, it.Version, Live)
		} else {
			mem[offItemWord0] = byte(r.IntN(6)) // any state, and some that there are not
		}
		b, in, at, key := mem, uint64(inc), place, it.Key
		for range r.IntN(3) {
			switch r.IntN(7) {
			case 0:
				b[r.IntN(len(b))] ^= 1 << r.IntN(8)
			case 1:
				b = b[:r.IntN(len(b)+1)]
			case 2:
				in++
			case 3:
				at++
			case 4:
				key = append(bytes.Clone(key), 0)
			case 5: // any header
				for i := range b[:min(len(b), ItemHeaderSize)] {
					if r.IntN(4) == 0 {
						b[i] = byte(r.Uint32())
					}
				}
			case 6:
				b = append(bytes.Clone(b), make([]byte, r.IntN(30))...)
			}
			if len(b) == 0 {
				break
			}
		}
		var v ItemView
		want := v.Accept(b, in, at, key) && v.Chunks == 0
		w, ok := AcceptWhole(b, in, at, key)
		if ok != want {
			t.Fatalf("item %d: AcceptWhole says %v, Accept %v, of %x", n, ok, want, b[:min(len(b), 64)])
		}
		if !ok {
			refused++
			if w != (Whole{}) {
				t.Fatalf("item %d: %+v of what is none", n, w)
			}
			continue
		}
		believed++
		if w.Version != v.Version || w.Expiry != v.Expiry || !bytes.Equal(b[w.From:w.To], v.Value()) {
			t.Fatalf("item %d: %+v, want version %v, expiry %d and value %x", n, w, v.Version, v.Expiry, v.Value())
		}
	}
	if believed < 2000 || refused < 2000 {
		t.Errorf("%d believed and %d refused: the cases are one-sided", believed, refused)
	}
}
