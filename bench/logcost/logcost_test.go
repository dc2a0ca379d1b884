package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestTable: medians, ratios within a round, and cells of cases without a figure.
func TestTable(t *testing.T) {
	tab := &table{what: "case", columns: []string{"a", "b"}, ratio: "a", least: "a"}
	first, second, third := tab.row("first"), tab.row("second"), tab.row("third")
	for i, v := range []float64{10, 100, 1000} { // a machine that slows down
		first.add("a", v)
		second.add("a", v*[]float64{2, 3, 4}[i])
	}
	second.add("b", 12_345_678)
	third.base = second
	third.add("a", 10)
	tab.note("%d cases", 3)
	want := `| case | a | b | ratio of a (range) |
|---|---|---|---|
| first | 100 (least 10.0) | - | 1 |
| second | 300 (least 20.0) | 12,345,678 | 3.00 (2.00 to 4.00) |
| third | 10.0 | - | 0.5 |

3 cases
`
	if got := tab.markdown(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestDigits(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.01234: "0.012", 1: "1.00", 12.34: "12.3", 123.4: "123",
		9999: "9999", 10_000: "10,000", 999_999.6: "1,000,000", -1_234_567: "-1,234,567", -123_456: "-123,456"} {
		if got := digits(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}

func TestPercentile(t *testing.T) {
	var v []float64
	for i := range 1000 {
		v = append(v, float64((i*7)%1000+1))
	}
	for p, want := range map[float64]float64{0: 1, 0.5: 500, 0.99: 990, 0.999: 999, 0.9995: 1000, 1: 1000} {
		if got := percentile(v, p); got != want {
			t.Errorf("%v: %v, want %v", p, got, want)
		}
	}
	if got := percentile(nil, 0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
	if got := ratios([]float64{2, 3, 4}, []float64{1, 0}); !slices.Equal(got, []float64{2}) {
		t.Errorf("ratios: %v", got)
	}
}

// testSegment fills a small segment with random keys and returns what was put there.
func testSegment(t *testing.T, size, keys int) (segment []byte, put []record) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	segment = make([]byte, size)
	n := fillSegment(segment, func(i int) (uint16, uint64, []byte, []byte) {
		if i == len(put) {
			id := rnd.IntN(keys)
			key := fmt.Appendf(nil, "%d", id)
			if id%3 == 0 {
				key = fmt.Appendf(nil, "a longer one, of more bytes than an entry has, %d", id)
			}
			put = append(put, record{0, uint16(rnd.IntN(3)), uint64(i + 1), key, noise(rnd.IntN(300))})
		}
		return put[i].shard, put[i].version, put[i].key, put[i].value
	})
	return segment, put[:n]
}

// TestSegment: what was written is read, and nothing else: each bit that changes is found.
func TestSegment(t *testing.T) {
	segment, put := testSegment(t, 32<<10, 1000)
	i := 0
	if err := eachRecord(segment, true, func(r *record) {
		if p := put[i]; r.shard != p.shard || r.version != p.version || !bytes.Equal(r.key, p.key) || !bytes.Equal(r.value, p.value) {
			t.Fatalf("record %d at %d differs", i, r.at)
		}
		i++
	}); err != nil || i != len(put) || i < 50 {
		t.Fatalf("%d records of %d: %v", i, len(put), err)
	}
	none := func(*record) {}
	changed := 0
	for at, under := range underSums(segment) {
		if !under {
			continue
		}
		for _, bit := range []byte{1, 0x80} {
			n := 0
			segment[at] ^= bit
			err := eachRecord(segment, false, func(*record) { n++ })
			segment[at] ^= bit
			if changed++; err == nil && n == len(put) {
				t.Fatalf("bit %#x of byte %d is changed, and everything verifies", bit, at)
			}
		}
	}
	if changed < len(segment) {
		t.Errorf("%d bits were changed", changed)
	}
	// A group verifies as a whole, so a record in another place is found by its own sum alone.
	var records []record
	if err := eachRecord(segment, true, func(r *record) { records = append(records, *r) }); err != nil {
		t.Fatal(err)
	}
	at := records[1].at
	b := segment[at : at+recordHead+len(records[1].key)+len(records[1].value)]
	if err := recordsOf(b, at, 1, true, none); err != nil {
		t.Errorf("at its place: %v", err)
	}
	if err := recordsOf(b, at+8, 1, true, none); err == nil {
		t.Error("a record verifies in a place where it was not written")
	}
}

// underSums tells which bytes of a good segment are under a sum: all but what is reserved, what fills up the last
// block of a group, and what lies behind the last one.
func underSums(segment []byte) []bool {
	under := make([]bool, len(segment))
	mark := func(from, to int) {
		for i := from; i < to; i++ {
			under[i] = true
		}
	}
	for at := 0; at < len(segment) && binary.LittleEndian.Uint32(segment[at+groupCount:]) > 0; {
		end := at + groupHead + int(binary.LittleEndian.Uint32(segment[at+groupBytes:]))
		mark(at, at+groupSum+8)
		mark(at+groupHead, end)
		at = (end + blockSize - 1) / blockSize * blockSize
	}
	return under
}

// TestHostileSegment: bytes of anybody end in an error or in nothing.
func TestHostileSegment(t *testing.T) {
	segment, _ := testSegment(t, 32<<10, 100)
	for n := range 1000 {
		if err := recordsOf(segment[groupHead:groupHead+n], groupHead, 10, false, func(*record) {}); err == nil {
			t.Fatalf("10 records are found in %d bytes", n)
		}
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		b := bytes.Clone(segment[:blockSize*(1+rnd.IntN(8))])
		for range 1 + rnd.IntN(4) {
			b[rnd.IntN(groupHead+200)] = byte(rnd.Uint32())
		}
		_ = eachRecord(b, rnd.IntN(2) == 0, func(*record) {})
		_ = recordsOf(b[groupHead:], groupHead, rnd.IntN(1<<30), false, func(*record) {})
	}
}

// TestNewest: both ways keep the newest record of each key, in the order of Pebble's keys.
func TestNewest(t *testing.T) {
	segment, put := testSegment(t, 512<<10, 300)
	var records []record
	if err := eachRecord(segment, true, func(r *record) { records = append(records, *r) }); err != nil {
		t.Fatal(err)
	}
	type name struct {
		shard uint16
		key   string
	}
	want := map[name]uint64{}
	for _, p := range put {
		want[name{p.shard, string(p.key)}] = p.version
	}
	if len(want) == len(put) {
		t.Fatal("no key was written twice")
	}
	collide := newTable(len(records)) // of hashes that are all the same
	for i := range records {
		collide.add(records, i, 1)
	}
	if n := len(collide.list()); n != len(want) {
		t.Errorf("%d keys by equal hashes, want %d", n, len(want))
	}
	for way, sorted := range map[string]func([]record) []entry{"sort": bySort, "table": byTable} {
		list := sorted(records)
		if len(list) != len(want) {
			t.Errorf("%s: %d keys, want %d", way, len(list), len(want))
		}
		last := []byte(nil)
		for _, e := range list {
			r := &records[e.at]
			if v := want[name{r.shard, string(r.key)}]; r.version != v {
				t.Errorf("%s: version %d of key %s, want %d", way, r.version, r.key, v)
			}
			pkey := append([]byte{byte(r.shard >> 8), byte(r.shard), 1}, r.key...)
			if bytes.Compare(last, pkey) >= 0 {
				t.Errorf("%s: %q stands behind %q", way, pkey, last)
			}
			last = pkey
		}
	}
}

// TestKeysInOrder: ids of a ladder are in the order of its keys, which all differ.
func TestKeysInOrder(t *testing.T) {
	for _, c := range []levelCase{{keys: 1000, shards: 1}, {keys: 1000, shards: 32}, {keys: 777, shards: 256}} {
		l := &ladder{c: c}
		last, shards := []byte(nil), map[uint16]bool{}
		for id := range c.keys {
			var name [16]byte
			shard := l.keyAt(name[:], id)
			pkey := append([]byte{byte(shard >> 8), byte(shard)}, name[:]...)
			if shards[shard] = true; bytes.Compare(last, pkey) >= 0 {
				t.Fatalf("%v: key %d stands before the one before it", c, id)
			}
			last = pkey
		}
		if len(shards) != c.shards {
			t.Errorf("%v: %d shards have keys", c, len(shards))
		}
	}
}

// TestPace: what passes takes its time, and without a bound none.
func TestPace(t *testing.T) {
	f, err := vfs.NewMem().Create("f", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	began := time.Now()
	slow := pacedFile{f, &pace{rate: 1e6}}
	for range 5 {
		if _, err := slow.Write(make([]byte, 10_000)); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took < 45*time.Millisecond {
		t.Errorf("50 kB passed at 1 MB/s in %v", took)
	}
	p := &pace{}
	if p.wait(1 << 60); !p.began.IsZero() {
		t.Error("a pace without a bound counts")
	}
}

// TestRun: the program measures every table at its smallest, and leaves nothing behind.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("writes some hundred MB")
	}
	if runtime.GOOS != "linux" {
		t.Skip("direct I/O is measured on Linux only")
	}
	dir := t.TempDir()
	if f, err := os.OpenFile(filepath.Join(dir, "direct"), os.O_RDWR|os.O_CREATE|openDirect, 0o666); err != nil {
		t.Skip("the file system of tests refuses direct I/O")
	} else {
		f.Close()
		os.Remove(f.Name())
	}
	quickest := quickScale
	defer func() { quickScale = quickest }()
	quickScale = scale{1, time.Millisecond, 10 * time.Millisecond, 1 << 20, []int{2000}, 2, 1000, 500, 256 << 10}
	var out, log strings.Builder
	if err := run(context.Background(), []string{"-quick", "-seed", "1", "-dir", dir}, &out, &log); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	for _, c := range tables {
		if !strings.Contains(out.String(), "### "+c.name+"\n") {
			t.Errorf("there is no table %s", c.name)
		}
	}
	if strings.Contains(out.String(), "NaN") || strings.Contains(out.String(), "Inf") {
		t.Errorf("a figure is none:\n%s", out.String())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestFlags: what is asked for is done, and nothing else.
func TestFlags(t *testing.T) {
	ctx := context.Background()
	var out strings.Builder
	if err := run(ctx, []string{"-list"}, &out, io.Discard); err != nil || len(strings.Fields(out.String())) != len(tables) {
		t.Errorf("-list: %v, %s", err, out.String())
	}
	if err := run(ctx, []string{"-only", "syncs,nothing"}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), `"nothing"`) {
		t.Errorf("a table that is not there: %v", err)
	}
	dir := t.TempDir()
	ended, end := context.WithCancel(ctx)
	end()
	if err := run(ended, []string{"-quick", "-only", "levels", "-dir", dir}, io.Discard, io.Discard); err == nil {
		t.Error("an ended context ends nothing")
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
