package region

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/store/layout"
)

const mib = 1 << 20

func newTestTable(t *testing.T, change func(*Config)) *Table {
	t.Helper()
	cfg := Config{Memory: new(HeapMemory), Incarnation: 7, Seed: 9, Shards: 4,
		RegionSize: 2 * mib, IndexRegionSize: mib, Limit: 16 * mib, ReclaimEntries: 8}
	if change != nil {
		change(&cfg)
	}
	tab, err := NewTable(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tab.Close(); err != nil {
			t.Error(err)
		}
	})
	return tab
}

func TestRootRegion(t *testing.T) {
	tab := newTestTable(t, nil)
	h, err := layout.ParseRegionHeader(tab.Root())
	if err != nil {
		t.Fatal(err)
	}
	if h != tab.Header() {
		t.Errorf("header page says %+v, the table %+v", h, tab.Header())
	}
	if h.RootOffset != 4096 || h.ReclaimOffset != 8192 || h.Kind != layout.KindIndex || h.Length != mib || h.Incarnation != 7 || h.Seed != 9 {
		t.Errorf("unexpected header %+v", h)
	}
	v := tab.View()
	if err := v.Check(); err != nil {
		t.Error(err)
	}
	// The first index page lies behind header, root table and ring.
	p, mem, err := tab.Index().Alloc(4)
	if err != nil || p.Byte() != 3*layout.PageSize || len(mem) != 4*layout.PageSize {
		t.Errorf("first index pages at %v, %d bytes, %v", p, len(mem), err)
	}
}

func TestAddAndFind(t *testing.T) {
	tab := newTestTable(t, nil)
	before := tab.View()
	r, mem, err := tab.Add(layout.KindItems)
	if err != nil {
		t.Fatal(err)
	}
	if h, err := layout.ParseRegionHeader(mem); err != nil || h.Region != r || h.Incarnation != 7 {
		t.Errorf("header page of region 1: %+v, %v", h, err)
	}
	after := tab.View()
	if len(before.Regions) != 1 || len(after.Regions) != 2 || after.Version != before.Version+1 || after.Version != tab.ViewVersion() {
		t.Errorf("views: before %+v, after %+v", before, after)
	}
	if err := after.Check(); err != nil {
		t.Error(err)
	}
	beat, _ := layout.ParseBeat(tab.Root()[layout.BeatOffset:], 0)
	if beat.ViewVersion != after.Version {
		t.Errorf("the beat line says view %d at once, want %d", beat.ViewVersion, after.Version)
	}

	last := r.Base + layout.PlaceOfByte(r.Length-8)
	for _, c := range []struct {
		name string
		p    layout.Place
		n    int
		want int // length, -1: nil
	}{
		{"first word of region 0", 0, 8, 8},
		{"across a granule", r.Base + layout.PlaceOfByte(mib-8), 16, 16},
		{"last word", last, 8, 8},
		{"beyond the end", last, 16, -1},
		{"from region 0 into 1", layout.PlaceOfByte(mib - 8), 16, -1},
		{"behind the last region", last + 1, 8, -1},
		{"far away", layout.MaxPlace, 8, -1},
		{"beyond the place space", layout.MaxPlace + 1, 8, -1},
		{"negative", 0, -1, -1},
		{"nothing", r.Base, 0, 0},
	} {
		got := tab.Bytes(c.p, c.n)
		if n := len(got); (got == nil) != (c.want < 0) || c.want >= 0 && n != c.want {
			t.Errorf("%s: %d bytes (nil: %v), want %d", c.name, n, got == nil, c.want)
		}
	}
	tab.Bytes(last, 8)[0] = 0xa5
	if mem[len(mem)-8] != 0xa5 {
		t.Error("Bytes is not the region's memory")
	}
	if reg, off, ok := tab.Locate(last); !ok || reg != r || off != r.Length-8 {
		t.Errorf("Locate(last) = %+v, %d, %v", reg, off, ok)
	}
	if n := testing.AllocsPerRun(100, func() { tab.Bytes(last, 8) }); n != 0 {
		t.Errorf("Bytes allocates %v times", n)
	}
}

func TestBasesAreNeverShared(t *testing.T) {
	tab := newTestTable(t, nil)
	for {
		if _, _, err := tab.Add(layout.KindItems); err != nil {
			break
		}
	}
	v := tab.View()
	if err := v.Check(); err != nil {
		t.Error(err)
	}
	var sum uint64
	for _, r := range v.Regions {
		sum += r.Length
	}
	if sum != 16*mib || tab.InUse() != sum {
		t.Errorf("regions add up to %d bytes, InUse %d, limit %d", sum, tab.InUse(), 16*mib)
	}
}

func TestLimit(t *testing.T) {
	tab := newTestTable(t, func(c *Config) { c.Limit = 6 * mib })
	sizes := []uint64{}
	var err error
	for err == nil {
		var r layout.Region
		if r, _, err = tab.Add(layout.KindItems); err == nil {
			sizes = append(sizes, r.Length)
		}
	}
	// The last region is what the limit leaves.
	if want := []uint64{2 * mib, 2 * mib, mib}; !slices.Equal(sizes, want) {
		t.Errorf("regions of %v, want %v", sizes, want)
	}
	var full *NoMemoryError
	if !errors.Is(err, ErrNoMemory) || !errors.As(err, &full) {
		t.Fatalf("at the limit: %v", err)
	}
	if full.InUse != 6*mib || full.Limit != 6*mib || full.Kind != layout.KindItems || !strings.Contains(err.Error(), "raise the memory limit") {
		t.Errorf("numbers: %+v, %q", full, err)
	}
	if got := tab.View(); len(got.Regions) != 4 {
		t.Errorf("a refused region changed the view: %+v", got)
	}
}

func TestAddAtLeast(t *testing.T) {
	tab := newTestTable(t, nil)
	r, _, err := tab.AddAtLeast(layout.KindItems, 5*mib)
	if err != nil || r.Length != 6*mib {
		t.Errorf("5 MiB behind a header page came in a region of %d, %v", r.Length, err)
	}
	if _, _, err := tab.AddAtLeast(layout.KindItems, 64*mib); !errors.Is(err, ErrNoMemory) {
		t.Errorf("more than the limit: %v", err)
	}
}

// refusing is a Memory that fails from the n-th region on.
type refusing struct {
	HeapMemory
	n   uint32
	err error
}

func (m *refusing) Alloc(id uint32, k layout.RegionKind, size int) ([]byte, error) {
	if id >= m.n {
		return nil, m.err
	}
	return m.HeapMemory.Alloc(id, k, size)
}

func TestMemoryRefuses(t *testing.T) {
	cause := errors.New("RLIMIT_MEMLOCK")
	mem := &refusing{n: 1, err: cause}
	tab := newTestTable(t, func(c *Config) { c.Memory = mem })
	_, _, err := tab.Add(layout.KindItems)
	if !errors.Is(err, ErrNoMemory) || !errors.Is(err, cause) || !strings.Contains(err.Error(), "RLIMIT_MEMLOCK") {
		t.Errorf("refused memory: %v", err)
	}
	mem.n = 2 // it may be better later, and the id is not lost
	if r, _, err := tab.Add(layout.KindItems); err != nil || r.ID != 1 {
		t.Errorf("after the refusal: region %+v, %v", r, err)
	}
}

func TestConfigFaultsTogether(t *testing.T) {
	_, err := NewTable(Config{Shards: 5000, ReclaimEntries: -1, Limit: 16 << 40})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"Memory is nil", "Incarnation is 0", "Shards is 5000", "ReclaimEntries is -1", "Limit is"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name the fault %q", err, want)
		}
	}
	_, err = NewTable(Config{Memory: new(HeapMemory), Incarnation: 1, Shards: 1, Limit: 1000})
	if !errors.Is(err, ErrNoMemory) {
		t.Errorf("a limit below one region: %v", err)
	}
}

func TestClose(t *testing.T) {
	tab := newTestTable(t, nil)
	if err := tab.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := tab.Add(layout.KindItems); !errors.Is(err, ErrClosed) {
		t.Errorf("Add after Close: %v", err)
	}
	if err := tab.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}
