package layout

import (
	"bytes"
	"fmt"
	"testing"
)

const testInc = 0x1122334455667788

// itemShapes are the lengths where something changes.
var itemShapes = []struct{ key, val int }{
	{1, 0}, {1, 7}, {8, 0}, {8, 8}, {9, 100}, {16, 64}, {16, 100}, {MaxKeyLen, 0}, {MaxKeyLen, 1},
	{1, ChunkSize - 1}, {1, ChunkSize}, {1, ChunkSize + 1}, {5, ChunkSize + 8}, {MaxKeyLen, 3*ChunkSize - 1},
	{MaxKeyLen - 1, 2 * ChunkSize}, {3, 1 << 20},
}

func TestItemRoundTrip(t *testing.T) {
	r := newRand(t, 10)
	for _, sh := range itemShapes {
		for _, expiry := range []uint64{0, 1e15} {
			it := Item{Version: MakeVersion(3, 77), Key: randBytes(r, sh.key), Value: randBytes(r, sh.val), Expiry: expiry}
			size := ItemSize(sh.key, sh.val, expiry != 0)
			mem := testMem(size + 64)
			for i := range mem {
				mem[i] = 0xee // what was there before must not show through
			}
			p := Place(0x123456)
			WriteItem(mem, testInc, p, it, Pending)
			if v, s := LoadState(mem); v != it.Version || s != Pending {
				t.Fatalf("%v: state %v %v", sh, v, s)
			}
			if size%8 != 0 || mem[size] != 0xee || mem[size-1] == 0xee && sh.val == 0 && sh.key%8 != 0 {
				t.Fatalf("%v: size %d, written behind it or padding left", sh, size)
			}
			SetState(mem, it.Version, Live)
			for _, n := range []int{size, size + 64, HeadSize(sh.key, sh.val, expiry != 0)} {
				v, err := ParseItem(mem[:n], testInc, p)
				if err != nil {
					t.Fatalf("%v of %d bytes: %v", sh, n, err)
				}
				checkView(t, v, it, mem, n, size)
			}
			head := HeadSize(sh.key, sh.val, expiry != 0)
			for _, n := range []int{0, 7, ItemHeaderSize - 1, ItemHeaderSize, head - 1} {
				v, err := ParseItem(mem[:n], testInc, p)
				if want := head; err != ErrShort || n >= ItemHeaderSize && v.Need() != want {
					t.Fatalf("%v cut to %d: %v, need %d, want %d", sh, n, err, v.Need(), want)
				}
			}
		}
	}
}

func checkView(t *testing.T, v ItemView, it Item, mem []byte, n, size int) {
	t.Helper()
	if v.Version != it.Version || v.State != Live || !bytes.Equal(v.Key(), it.Key) ||
		v.ValLen != len(it.Value) || v.Expiry != it.Expiry || v.Size != size {
		t.Fatalf("view %+v of %d + %d bytes", v, len(it.Key), len(it.Value))
	}
	if v.Chunks == 0 {
		if !bytes.Equal(v.Value(), it.Value) {
			t.Fatal("value differs")
		}
		return
	}
	if v.Value() != nil || v.ValueOffset()%8 != 0 {
		t.Fatal("a chunked value is not for Value, and begins on a word")
	}
	for i := range v.Chunks {
		off, k := v.ChunkRange(i)
		data := mem[v.ValueOffset()+off:][:k]
		if !bytes.Equal(data, it.Value[off:off+k]) || !v.VerifyChunk(i, data) {
			t.Fatalf("chunk %d does not verify", i)
		}
		if c, ok := v.Chunk(i); ok != (n >= v.ValueOffset()+off+k) || ok && !bytes.Equal(c, data) {
			t.Fatalf("chunk %d of a buffer of %d: %v", i, n, ok)
		}
		if v.VerifyChunk(i, data[:k-1]) || i > 0 && v.VerifyChunk(i-1, data) {
			t.Fatalf("chunk %d verifies as something else", i)
		}
	}
	if v.VerifyChunk(v.Chunks, nil) || v.VerifyChunk(-1, nil) {
		t.Fatal("a chunk that does not exist verifies")
	}
}

// An item verifies at its own place, in its own incarnation, and with every
// bit but the state as it was.
func TestItemBinding(t *testing.T) {
	it := Item{Version: 9, Key: []byte("key"), Value: []byte("some value")}
	mem := testMem(ItemSize(3, 10, false))
	WriteItem(mem, testInc, 100, it, Pending)
	SetState(mem, 9, Live)
	if _, err := ParseItem(mem, testInc+1, 100); err != ErrTorn {
		t.Errorf("other incarnation: %v", err)
	}
	if _, err := ParseItem(mem, testInc, 101); err != ErrTorn {
		t.Errorf("other place: %v", err)
	}
	for bit := range len(mem) * 8 {
		mem[bit/8] ^= 1 << (bit % 8)
		v, err := ParseItem(mem, testInc, 100)
		if err == nil && (bit >= 8 || v.State == Live) {
			t.Errorf("bit %d of byte %d flipped: accepted", bit%8, bit/8)
		}
		mem[bit/8] ^= 1 << (bit % 8)
	}
	for _, s := range []State{Pending, Dead, Held} {
		SetState(mem, 9, s)
		if v, err := ParseItem(mem, testInc, 100); err != nil || v.State != s {
			t.Errorf("%v: %v %v", s, v.State, err)
		}
	}
	DestroyChecksum(mem)
	if _, err := ParseItem(mem, testInc, 100); err != ErrTorn {
		t.Errorf("destroyed: %v", err)
	}
	if _, err := ParseItem(make([]byte, 64), testInc, 100); err != ErrFormat {
		t.Errorf("zeroed memory: %v", err)
	}
}

func TestItemLimits(t *testing.T) {
	mem := testMem(64)
	big := make([]byte, MaxKeyLen+1)
	for what, f := range map[string]func(){
		"empty key":      func() { WriteItem(mem, 1, 1, Item{Version: 1}, Pending) },
		"key too long":   func() { WriteItem(mem, 1, 1, Item{Version: 1, Key: big}, Pending) },
		"value too long": func() { ItemSize(1, MaxValueLen+1, false) },
		"version 0":      func() { WriteItem(mem, 1, 1, Item{Key: big[:1]}, Pending) },
		"live at once":   func() { WriteItem(mem, 1, 1, Item{Version: 1, Key: big[:1]}, Live) },
		"no room":        func() { WriteItem(mem[:24:24], 1, 1, Item{Version: 1, Key: big[:1]}, Pending) },
		"state":          func() { SetState(mem, 1, State(9)) },
		"misaligned":     func() { StoreWord(mem, 4, 1) },
		"out of bounds":  func() { StoreWord(mem, 64, 1) },
	} {
		mustPanic(t, what, f)
	}
	if got := ItemSize(MaxKeyLen, MaxValueLen, true); got != MaxItemSize {
		t.Errorf("largest item %d, constant says %d", got, MaxItemSize)
	}
	if got := ItemSize(MaxKeyLen, ChunkSize, true); got != MaxWholeItemSize {
		t.Errorf("largest whole item %d, constant says %d", got, MaxWholeItemSize)
	}
}

// A chunk that holds bytes of the next version does not verify under the head of
// this one. (TestForcedTears does the same at length.)
func TestForcedChunkTears(t *testing.T) {
	r := newRand(t, 11)
	const valLen = 2*ChunkSize + 1000
	size := ItemSize(3, valLen, false)
	old, now := testMem(size), testMem(size)
	val := randBytes(r, valLen)
	WriteItem(old, testInc, 8, Item{Version: 1, Key: []byte("key"), Value: val}, Pending)
	WriteItem(now, testInc, 8, Item{Version: 2, Key: []byte("key"), Value: val}, Pending)
	head, err := ParseItem(old[:HeadSize(3, valLen, false)], testInc, 8)
	if err != nil {
		t.Fatal(err)
	}
	newer, _ := ParseItem(now, testInc, 8)
	for i := range head.Chunks {
		off, n := head.ChunkRange(i)
		data := bytes.Clone(old[head.ValueOffset()+off:][:n])
		// Equal bytes of another version are fine to hold; its head is not.
		if getWord(head.b, head.sumsOff+8*i) == getWord(newer.b, newer.sumsOff+8*i) {
			t.Errorf("chunk %d has the same sum in two versions", i)
		}
		for range 200 {
			w := r.IntN(n / wordSize)
			save := getWord(data, w*wordSize)
			setWord(data, w*wordSize, r.Uint64())
			if head.VerifyChunk(i, data) {
				t.Fatalf("chunk %d accepted with word %d torn", i, w)
			}
			setWord(data, w*wordSize, save)
		}
		if !head.VerifyChunk(i, data) {
			t.Fatalf("chunk %d does not verify whole", i)
		}
	}
}

func TestParseAllocatesNothing(t *testing.T) {
	mem := testMem(4096)
	WriteItem(mem, testInc, 1, Item{Version: 1, Key: []byte("key"), Value: make([]byte, 1000)}, Pending)
	for _, n := range []int{0, 100, 4096} {
		if a := testing.AllocsPerRun(100, func() { ParseItem(mem[:n], testInc, 1) }); a != 0 {
			t.Errorf("ParseItem of %d bytes allocates %v times", n, a)
		}
	}
}

func BenchmarkWriteItem(b *testing.B) {
	for _, n := range []int{64, 1 << 10, 64 << 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			key, val := make([]byte, 16), make([]byte, n)
			mem := testMem(ItemSize(16, n, false))
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for i := Version(1); b.Loop(); i++ {
				WriteItem(mem, testInc, 1, Item{Version: i, Key: key, Value: val}, Pending)
				SetState(mem, i, Live)
			}
		})
	}
}

func BenchmarkParseItem(b *testing.B) {
	for _, n := range []int{64, 1 << 10, 64 << 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			mem := testMem(ItemSize(16, n, false))
			WriteItem(mem, testInc, 1, Item{Version: 1, Key: make([]byte, 16), Value: make([]byte, n)}, Pending)
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParseItem(mem, testInc, 1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// An item whose value was put in its place before is the same, byte by byte, as one that was
// written whole; what was there before does not show.
func TestItemAroundItsValue(t *testing.T) {
	r := newRand(t, 12)
	chunked := 0
	for _, sh := range itemShapes {
		for tail := range 9 {
			for _, expiry := range []uint64{0, 1e15} {
				it := Item{Version: MakeVersion(3, 77), Key: randBytes(r, sh.key), Value: randBytes(r, sh.val+tail), Expiry: expiry}
				off, end, ok := ValueRange(len(it.Key), len(it.Value), expiry != 0)
				if ok != (len(it.Value) > ChunkSize) {
					t.Fatalf("%d bytes have a place of their own: %v", len(it.Value), ok)
				}
				if !ok {
					continue
				}
				chunked++
				size := ItemSize(len(it.Key), len(it.Value), expiry != 0)
				whole, around := testMem(size+8), testMem(size+8)
				for i := range around {
					around[i] = 0xee
				}
				WriteItem(whole, testInc, 0x123456, it, Pending)
				value := around[off:end]
				copy(value, it.Value)
				it.Value = value
				WriteItem(around, testInc, 0x123456, it, Pending)
				if !bytes.Equal(whole[:size], around[:size]) {
					t.Fatalf("key of %d, value of %d bytes: they differ", len(it.Key), len(it.Value))
				}
				if around[size] != 0xee {
					t.Fatal("written behind it")
				}
			}
		}
	}
	if chunked == 0 {
		t.Fatal("no value was chunked")
	}
}
