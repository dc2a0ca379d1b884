package mem

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"
)

func TestLoadWordsCopies(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	src := heapBytes(4096)
	for i := range src {
		src[i] = byte(rng.Uint32())
	}
	for n := 0; n <= 1024; n += 8 {
		from := rng.IntN((len(src)-n)/8+1) * 8
		shift := rng.IntN(8) // the target may start anywhere
		dst := make([]byte, n+32)
		LoadWords(dst[shift:shift+n+8], src[from:from+n])
		if !bytes.Equal(dst[shift:shift+n], src[from:from+n]) {
			t.Fatalf("n %d from %d shift %d: bytes differ", n, from, shift)
		}
		for i, b := range dst {
			if (i < shift || i >= shift+n) && b != 0 {
				t.Fatalf("n %d shift %d: wrote beyond at %d", n, shift, i)
			}
		}
	}
}

func TestLoadWordsMisusePanics(t *testing.T) {
	mem := heapBytes(64)
	cases := []struct {
		name     string
		dst, src []byte
	}{
		{"length", make([]byte, 64), mem[:12]},
		{"alignment", make([]byte, 64), mem[4:12]},
		{"short target", make([]byte, 7), mem[:8]},
	}
	for _, c := range cases {
		func() {
			defer func() {
				text, _ := recover().(string)
				if !strings.Contains(text, fmt.Sprintf("src of %d bytes", len(c.src))) {
					t.Errorf("%s: panic %q", c.name, text)
				}
			}()
			LoadWords(c.dst, c.src)
			t.Errorf("%s: no panic", c.name)
		}()
	}
	LoadWords(nil, nil) // nothing to do is fine
}

// A writer that stores whole words atomically is never seen halfway, and the
// race detector agrees that the copy is a proper reader of it.
func TestLoadWordsNeverTearsAWord(t *testing.T) {
	mem := heapBytes(512)
	words := unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(mem))), len(mem)/8)
	var wg sync.WaitGroup
	wg.Go(func() {
		for round := range uint64(2000) {
			for i := range words {
				atomic.StoreUint64(&words[i], round%256*0x0101010101010101)
			}
		}
	})
	dst := make([]byte, len(mem))
	for range 2000 {
		LoadWords(dst, mem)
		for i := 0; i < len(dst); i += 8 {
			if w := binary.NativeEndian.Uint64(dst[i:]); w%0x0101010101010101 != 0 {
				t.Fatalf("word %d torn: %#x", i/8, w)
			}
		}
	}
	wg.Wait()
}

func TestLoadWordsAllocatesNothing(t *testing.T) {
	src, dst := heapBytes(4096), make([]byte, 4096)
	if n := testing.AllocsPerRun(100, func() { LoadWords(dst, src) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// storeWords fills b, which is aligned and a multiple of 8 long, with v, one
// atomic store a word, as a store writes its slabs.
func storeWords(b []byte, v uint64) {
	for i := 0; i < len(b); i += 8 {
		atomic.StoreUint64((*uint64)(unsafe.Pointer(&b[i])), v)
	}
}

func BenchmarkLoadWords(b *testing.B) {
	for _, size := range []int{64, 128, 1 << 10, 4 << 10, 64 << 10, 1 << 20} {
		src, dst := heapBytes(size), make([]byte, size)
		b.Run(fmt.Sprintf("words/%d", size), func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				LoadWords(dst, src)
			}
		})
		b.Run(fmt.Sprintf("copy/%d", size), func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				copy(dst, src)
			}
		})
	}
}
