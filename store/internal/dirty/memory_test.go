package dirty

import (
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/rdmakv/rdmakv/store/layout"
)

// heap is what is in use on the heap after a collection. Twice, because what a finalizer or
// another goroutine holds goes with the second.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// numbered is the key of a number, of 16 bytes, spread over the order of keys.
func numbered(b []byte, n int) []byte {
	b = append(b[:0], "key:"...)
	b = binary.BigEndian.AppendUint64(b, uint64(n)*0x9e3779b97f4a7c15)
	return binary.BigEndian.AppendUint32(b, uint32(n))
}

func filled(n int) *Set {
	s := new(Set)
	var b []byte
	for i := range n {
		b = numbered(b, i)
		s.Note(hashOf(b), b, entryOf(layout.Version(i+1)))
	}
	return s
}

// near says whether a count and a measure differ by less than a twentieth and 64 KiB, which
// other goroutines of the test may take.
func near(counted, measured int64) bool {
	d := counted - measured
	return max(d, -d) < max(counted, measured)/20+64<<10
}

// TestMemory: a record takes at most 48 bytes beside its key, those that a scan adds included;
// Counts says what it is; and everything is given back after Leave, in part and whole, and what
// a view held, after that.
func TestMemory(t *testing.T) {
	const n = 500_000
	empty := heap()
	s := filled(n)
	used := heap() - empty
	_, counted := s.Counts()
	each := float64(used)/n - 16
	t.Logf("%d records of 16-byte keys: %.1f B each beside the key, counted %.1f", n, each, float64(counted)/n-16)
	if each > 46 {
		t.Errorf("%.1f B a record beside the key before any scan, want at most 46", each)
	}
	s.View().Keys(nil, nil)
	used = heap() - empty
	each = float64(used)/n - 16
	t.Logf("scanned: %.1f B", each)
	if each > 48 || !near(counted, used) {
		t.Errorf("%.1f B a record beside the key after a scan, want at most 48; %d B counted, %d measured", each, counted, used)
	}

	view := s.View()
	s.Leave(n*9/10, nil)
	if used = heap() - empty; used < counted/2 {
		t.Errorf("%d of %d B are there while a view has everything: it would lose records", used, counted)
	}
	_, counted = s.Counts()
	runtime.KeepAlive(view)
	view = View{}
	used = heap() - empty
	t.Logf("a tenth is dirty: %.1f B a record, counted %.1f", float64(used)/(n/10), float64(counted)/(n/10))
	if used > 80*n/10 || !near(counted, used) {
		t.Errorf("a tenth is dirty and %d B are there, %d counted: what left was not given back", used, counted)
	}
	s.View().Keys(nil, nil)
	s.Leave(n, nil)
	used = heap() - empty
	if _, counted = s.Counts(); used > 16<<10 || counted != 0 {
		t.Errorf("nothing is dirty and %d B are there, %d counted", used, counted)
	}
	runtime.KeepAlive(s)
}

// TestSmallSets: a shard with one dirty key takes little, since there are many shards.
func TestSmallSets(t *testing.T) {
	const shards = 200
	empty := heap()
	sets := make([]*Set, shards)
	for i := range sets {
		sets[i] = filled(1)
	}
	each := (heap() - empty) / shards
	_, counted := sets[0].Counts()
	t.Logf("a set of one key: %d B, counted %d", each, counted)
	if each > 12<<10 || !near(counted, each) {
		t.Errorf("a set of one key takes %d B, %d counted; want at most 12 KiB", each, counted)
	}
	runtime.KeepAlive(sets)
}

// TestLongKeysInProportion: what long keys take is in proportion to their bytes.
func TestLongKeysInProportion(t *testing.T) {
	for _, size := range []int{1, 100, 2049, 4095, layout.MaxKeyLen} {
		s := new(Set)
		key := make([]byte, size)
		const n = 10_000
		for i := range n {
			for j := range min(size, 4) {
				key[j] = byte(i >> (8 * j))
			}
			s.Note(hashOf(key), key, entryOf(layout.Version(i+1)))
		}
		_, b := s.Counts()
		if most := int64(n*(size+60))*5/4 + 256<<10; b > most {
			t.Errorf("%d keys of %d bytes take %d B, want at most %d", n, size, b, most)
		}
	}
}

// TestSteadyState: over many checkpoints, of which none leaves everything, memory stays in
// proportion to what is dirty.
func TestSteadyState(t *testing.T) {
	s := new(Set)
	var b []byte
	v, most := layout.Version(0), int64(0)
	for round := range 60 {
		size := 20_000
		if round < 5 {
			size = 100_000 // a burst at the beginning, whose memory must not stay
		}
		for range size {
			v++
			b = numbered(b, int(v))
			s.Note(hashOf(b), b, entryOf(v))
		}
		s.View().Keys(nil, nil)
		s.Leave(v-1000, nil)
		if n, bytes := s.Counts(); round >= 10 {
			if n != 1000 {
				t.Fatalf("%d records, want 1000", n)
			}
			most = max(most, bytes)
		}
	}
	if most > 700<<10 || len(s.slots) > 100_000/perChunk*2 {
		t.Errorf("1000 records take up to %d B and %d slots", most, len(s.slots))
	}
}
