package layout

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"
)

// The model interleaves words on one goroutine. This runs the same order of
// steps on real cores: one writer puts into two places in turn, readers copy
// words with atomic loads, as a software responder does, and accept by the
// rule. What they accept must be whole, not older than what was acknowledged
// when they began, and not newer than what had been begun when they ended.
// Under the race detector it also shows that every access to shared memory is
// an atomic one.
func TestConcurrentReaders(t *testing.T) {
	const (
		puts    = 20000
		readers = 3
		cell    = 512
		base    = PageSize
	)
	v := &View{
		Incarnation: testInc, Seed: 1, Shards: 1, RootOffset: PageSize, ReclaimOffset: 2 * PageSize, ReclaimEntries: 1,
		Regions: []Region{{ID: 0, Kind: KindIndex, Length: RegionGranule}, {ID: 1, Kind: KindItems, Base: PlaceOfByte(RegionGranule), Length: RegionGranule}},
	}
	mem := testMem(2 * RegionGranule)
	key := []byte("the key")
	h := HashKey(v.Seed, key)
	a, _ := h.Mains(SegmentGroups(0))
	seg, dir := 4*PageSize, 3*PageSize
	for b := range SegmentBuckets(0) {
		StoreWord(mem, seg+b*BucketSize, uint64(MakeBucketHeader(0, 0, b, 0, 0, 0)))
	}
	StoreWord(mem, dir, MakeDirEntry(PlaceOfByte(uint64(seg)), 0, 0))
	StoreWord(mem, PageSize, MakeRoot(PlaceOfByte(uint64(dir)), 0))
	slot := seg + a.MainBucket()*BucketSize + SlotOffset(0)
	class, _ := ClassFor(cell)
	place := func(i uint64) (int, Place) {
		off := RegionGranule + base + int(i%2)*cell
		return off, PlaceOfByte(uint64(off))
	}

	var begun, acked atomic.Uint64
	put := func(i uint64) {
		begun.Store(i)
		off, p := place(i)
		value := make([]byte, 100+i%300)
		for j := range value {
			value[j] = byte(i)
		}
		binary.LittleEndian.PutUint64(value, i)
		WriteItem(mem[off:], testInc, p, Item{Version: Version(i), Key: key, Value: value}, Pending)
		if i > 1 {
			old, _ := place(i - 1)
			SetState(mem[old:], Version(i-1), Dead)
		}
		StoreWord(mem, slot, uint64(MakeSlot(h.Fingerprint(), class, p)))
		SetState(mem[off:], Version(i), Live)
		acked.Store(i)
	}
	put(1)

	var wg sync.WaitGroup
	var gets, asks, again atomic.Uint64
	var stop atomic.Bool
	for r := range readers {
		wg.Go(func() {
			l := Lookup{PairByPair: r%2 != 0}
			d := NewDir(v)
			var bufs [MaxCandidates][PageSize]byte
			var last uint64
			for n := uint64(0); !stop.Load() || n < 100; n++ {
				lo := max(acked.Load(), last)
				cached := Loc{}
				if n%2 == 0 {
					_, p := place(n/2 + uint64(r))
					cached = Loc{Place: p, Size: cell}
				}
				l.Start(v, d, 0, key, cached, PageSize)
				act := l.Step()
				for ; act == ActionRead; act = l.Step() {
					for i := range l.Reads {
						rd := &l.Reads[i]
						rd.Buf = bufs[i][:rd.Len]
						from := int(rd.Place.Byte())
						for w := int(rd.Len) - wordSize; w >= 0; w -= wordSize { // body first, state last
							setWord(rd.Buf, w, LoadWord(mem, from+w))
						}
					}
				}
				gets.Add(1)
				again.Add(uint64(l.Counts.Rounds))
				switch act {
				case ActionFound:
					it, _ := l.Found()
					i := binary.LittleEndian.Uint64(it.Value())
					if hi := begun.Load(); i < lo || i > hi || len(it.Value()) != int(100+i%300) || Version(i) != it.Version {
						t.Errorf("got write %d of version %v, %d bytes; must be %d to %d", i, it.Version, len(it.Value()), lo, hi)
						return
					}
					last = i
				case ActionAsk:
					asks.Add(1)
				default:
					t.Errorf("%v: the key was there all the time; %+v", act, l.Counts)
					return
				}
			}
		})
	}
	for i := uint64(2); i <= puts; i++ {
		put(i)
	}
	stop.Store(true)
	wg.Wait()
	t.Logf("%d gets during %d puts, %d rounds again, %d to be asked", gets.Load(), puts, again.Load(), asks.Load())
}
