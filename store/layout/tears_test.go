package layout

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// Forced tears. A reader gets each word of a place, or each line of 64 bytes, as
// it was at some instant, in any order, while items come and go there: later
// versions, other keys, items of another size class whose boundaries lie
// elsewhere, chunks of large values. Whatever mixture comes out must not be
// taken for an item, unless it is one, word by word.
//
// The rig is honest: with only some bits of the checksum compared, it accepts
// about one tear in 2 to that power. So what it counts does reach the checksum,
// and what it would see is known.
//
//	go test ./store/layout -run TestForcedTears -tears.count 100000000 -v

var (
	tearsCount   = flag.Int("tears.count", 1_000_000, "torn reads to force")
	tearsSeconds = flag.Float64("tears.seconds", 0, "force torn reads for so long instead")
	tearsSeed    = flag.Uint64("tears.seed", 0, "seed; 0: a new one")
)

// A tearKind is one way in which the memory of a place changes under a reader.
type tearKind struct {
	name string
	line int // bytes that are fetched at one instant
	// images returns what stood at the place at several instants, all of one
	// length, and how many mixtures may be made of them.
	images func(g *tearRig) (n int)
	every  int // of so many rounds one is of this kind
}

var tearKinds = []tearKind{
	{"versions", 8, (*tearRig).versions, 1},
	{"lines", 64, (*tearRig).lines, 2},
	{"keys", 8, (*tearRig).otherKeys, 1},
	{"classes", 8, (*tearRig).otherClass, 1},
	{"heads", 8, (*tearRig).chunkedHeads, 16},
}

// sumCuts are the parts of the checksum that the rig compares when it is to show
// that it is honest.
var sumCuts = []struct {
	bits int
	mask uint64
}{{8, 0xff << 5}, {12, 0xfff << 20}, {16, 0xffff << 48}}

// tearCounts is what a rig has seen.
type tearCounts struct {
	torn     [8]int // by kind: mixtures that are no item
	whole    int    // mixtures that happen to be one
	summed   int    // torn ones that only the checksum refuses
	accepted int    // torn ones that were taken for an item
	cut      [3]int // of summed, those that part of the checksum accepts
	chunks   int    // torn chunks
	passed   int    // torn chunks that were accepted
}

func (c *tearCounts) add(o *tearCounts) {
	for i := range c.torn {
		c.torn[i] += o.torn[i]
	}
	for i := range c.cut {
		c.cut[i] += o.cut[i]
	}
	c.whole, c.summed, c.accepted = c.whole+o.whole, c.summed+o.summed, c.accepted+o.accepted
	c.chunks, c.passed = c.chunks+o.chunks, c.passed+o.passed
}

func (c *tearCounts) all() (n int) {
	for _, k := range c.torn {
		n += k
	}
	return n + c.chunks
}

const tearPlace = Place(500)

// A tearRig forces tears with one source of chance.
type tearRig struct {
	r       *rand.Rand
	counts  tearCounts
	version Version
	img     [4][]byte // what stood at the place; the first n count
	room    [4][]byte
	torn    []byte
	key     []byte
	value   []byte
	chunked [2][]byte
	heads   [2]ItemView
}

func newTearRig(seed, n uint64) *tearRig {
	g := &tearRig{r: rand.New(rand.NewPCG(seed, n)), torn: testMem(2048), key: make([]byte, 64), value: make([]byte, 1024)}
	for i := range g.room {
		g.room[i] = testMem(2048)
	}
	return g
}

// random fills b.
func (g *tearRig) random(b []byte) []byte {
	for i := 0; i < len(b); i += 8 {
		x := g.r.Uint64()
		for j := i; j < min(i+8, len(b)); j++ {
			b[j] = byte(x)
			x >>= 8
		}
	}
	return b
}

// write puts an item at p into mem, whose first byte is that place: a new
// version, in one of the states it may be met in.
func (g *tearRig) write(mem []byte, p Place, keyLen, valLen int, expiry uint64) {
	g.version++
	it := Item{Version: g.version, Key: g.random(g.key[:keyLen]), Value: g.random(g.value[:valLen]), Expiry: expiry}
	WriteItem(mem, testInc, p, it, Pending)
	if g.r.IntN(8) > 0 {
		SetState(mem, g.version, Live)
	}
}

// versions: one key overwritten at its place, lengths the same.
func (g *tearRig) versions() int {
	n := 2 + g.r.IntN(2)
	for i := range n {
		g.img[i] = g.room[i][:ItemSize(11, 34, false)]
		g.write(g.img[i], tearPlace, 11, 34, 0)
	}
	return n
}

// lines: the same for items of several lines, lengths different.
func (g *tearRig) lines() int {
	size := ItemSize(40, 700, true)
	for i := range 3 {
		g.img[i] = g.room[i][:size]
		clear(g.img[i])
		g.write(g.img[i], tearPlace, 1+g.r.IntN(40), 500+g.r.IntN(200), uint64(i))
	}
	return 3
}

// otherKeys: the place is used again by other keys of the class, with other
// lengths, with and without expiry, and its checksum is destroyed in between.
func (g *tearRig) otherKeys() int {
	for i := range 4 {
		g.img[i] = g.room[i][:120]
		if i > 0 {
			copy(g.img[i], g.img[i-1]) // what the new item does not cover stays
		}
		if i == 2 {
			DestroyChecksum(g.img[i])
			continue
		}
		expiry := uint64(0)
		if g.r.IntN(3) == 0 {
			expiry = g.r.Uint64() | 1
		}
		g.write(g.img[i], tearPlace, 1+g.r.IntN(30), 20+g.r.IntN(34), expiry)
	}
	return 4
}

// otherClass: the page was cut for another class before, so that the place began
// in the middle of an item, or its bytes held several.
func (g *tearRig) otherClass() int {
	const size = 192
	for i := range 3 {
		g.img[i] = g.room[i][:size]
	}
	g.write(g.img[0], tearPlace, 16, 100, 0)
	// Small items, one behind the other.
	for off := 0; off+48 <= size; off += 48 {
		g.write(g.img[1][off:], tearPlace+Place(off/8), 8, 10, 0)
	}
	// The middle of a large one.
	whole := g.room[3][:ItemSize(20, 600, false)]
	g.write(whole, tearPlace-Place(16), 20, 600, 0)
	copy(g.img[2], whole[128:])
	return 3
}

// chunkedHeads: the heads of large values, whose lengths agree.
func (g *tearRig) chunkedHeads() int {
	g.largeValues(g.r.IntN(2))
	n := HeadSize(10, 2*ChunkSize+800, false)
	for i := range 2 {
		g.img[i] = g.chunked[i][:n]
	}
	return 2
}

// largeValues makes two versions of a large value, and one of them anew.
func (g *tearRig) largeValues(anew int) {
	const keyLen, valLen = 10, 2*ChunkSize + 800
	for i := range g.chunked {
		if g.chunked[i] != nil && i != anew {
			continue
		}
		if g.chunked[i] == nil {
			g.chunked[i] = testMem(ItemSize(keyLen, valLen, false))
		}
		g.version++
		WriteItem(g.chunked[i], testInc, tearPlace, Item{Version: g.version, Key: g.random(g.key[:keyLen]), Value: g.random(make([]byte, valLen))}, Pending)
		SetState(g.chunked[i], g.version, Live)
		var err error
		if g.heads[i], err = ParseItem(g.chunked[i], testInc, tearPlace); err != nil {
			panic(err)
		}
	}
}

// round makes images of one kind and tears them.
func (g *tearRig) round(k int) {
	kind := &tearKinds[k]
	n := kind.images(g)
	size := len(g.img[0])
	// Few mixtures of one set of images, so that hardly any comes twice: what
	// comes twice is accepted twice, and would look like dishonesty.
	for range 8 {
		for off := 0; off < size; off += kind.line {
			end := min(off+kind.line, size)
			copy(g.torn[off:end], g.img[g.r.IntN(n)][off:end])
		}
		g.judge(k, g.torn[:size], g.img[:n])
	}
}

// judge counts one mixture.
func (g *tearRig) judge(k int, b []byte, images [][]byte) {
	var v ItemView
	err := v.parse(b, testInc, tearPlace, allSumBits)
	if err == nil {
		for _, img := range images {
			end := HeadSize(v.keyLen, v.ValLen, v.Expiry != 0 || getWord(b, offItemWord1)&flagExpiry != 0)
			if bytes.Equal(b[1:end], img[1:end]) { // all but the state
				g.counts.whole++
				return
			}
		}
		g.counts.accepted++
	}
	g.counts.torn[k]++
	if err != nil && !errors.Is(err, ErrTorn) {
		return // no checksum was needed
	}
	g.counts.summed++
	for i, c := range sumCuts {
		if v.parse(b, testInc, tearPlace, c.mask) == nil {
			g.counts.cut[i]++
		}
	}
}

// tearChunk mixes the words or lines of a chunk of two versions.
func (g *tearRig) tearChunk() {
	a := g.r.IntN(2)
	g.largeValues(2) // as they are
	head, other := &g.heads[a], g.chunked[1-a]
	i := g.r.IntN(head.Chunks)
	off, n := head.ChunkRange(i)
	at := head.ValueOffset() + off
	data := bytes.Clone(g.chunked[a][at : at+n])
	line := []int{8, 64, 4096}[g.r.IntN(3)]
	for range 1 + g.r.IntN(4) {
		w := g.r.IntN((n+line-1)/line) * line
		copy(data[w:min(w+line, n)], other[at+w:])
	}
	g.counts.chunks++
	if head.VerifyChunk(i, data) {
		g.counts.passed++
	}
}

// run forces tears until enough says so.
func (g *tearRig) run(enough func(n int) bool) {
	for round := 0; !enough(g.counts.all()); round++ {
		for k := range tearKinds {
			if round%tearKinds[k].every == 0 {
				g.round(k)
			}
		}
		if round%64 == 0 {
			g.tearChunk()
		}
	}
}

func TestForcedTears(t *testing.T) {
	seed := *tearsSeed
	if seed == 0 {
		seed = rand.Uint64() >> 1
	}
	count := *tearsCount
	if raceDetector {
		count = min(count, 1<<16)
	}
	const rigs = 4
	began := time.Now()
	var mu sync.Mutex
	var wg sync.WaitGroup
	var sum tearCounts
	for i := range rigs {
		wg.Go(func() {
			g := newTearRig(seed, uint64(i))
			g.run(func(n int) bool {
				if *tearsSeconds > 0 {
					return n&1023 < 64 && time.Since(began).Seconds() > *tearsSeconds
				}
				return n >= (count+rigs-1)/rigs
			})
			mu.Lock()
			sum.add(&g.counts)
			mu.Unlock()
		})
	}
	wg.Wait()
	honest := ""
	for i, c := range sumCuts {
		want := float64(sum.summed) * math.Pow(2, -float64(c.bits))
		bound := 6*math.Sqrt(want) + 3
		honest += fmt.Sprintf("; %d bits accept %d, expected %.1f +- %.1f", c.bits, sum.cut[i], want, bound)
		if d := math.Abs(float64(sum.cut[i]) - want); d > bound {
			t.Errorf("with %d bits of the checksum %d of %d torn items are accepted, expected %.1f +- %.1f: the rig is not honest",
				c.bits, sum.cut[i], sum.summed, want, bound)
		}
	}
	if sum.accepted != 0 || sum.passed != 0 {
		t.Errorf("%d torn items and %d torn chunks accepted", sum.accepted, sum.passed)
	}
	if sum.summed < sum.all()/4 {
		t.Errorf("only %d of %d tears come as far as the checksum", sum.summed, sum.all())
	}
	verdict, kinds := "PASS", ""
	if t.Failed() {
		verdict = "FAIL"
	}
	for k := range tearKinds {
		kinds += fmt.Sprintf("%s %d, ", tearKinds[k].name, sum.torn[k])
	}
	fmt.Printf("%s tears: %d forced (%schunks %d), %d come to the checksum, accepted %d%s; %v, seed %d\n",
		verdict, sum.all(), kinds, sum.chunks, sum.summed, sum.accepted+sum.passed, honest, time.Since(began).Round(time.Millisecond), seed)
	if t.Failed() {
		t.Logf("play it again: go test ./store/layout -run TestForcedTears -tears.count %d -tears.seed %d -v", *tearsCount, seed)
	}
}
