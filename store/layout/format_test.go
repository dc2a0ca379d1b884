package layout

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// The byte formats as golden dumps: a change of a format is a change of these
// files, seen in review, and a reason to raise FormatVersion. Rewrite them with
//
//	go test ./store/layout -run TestFormat -args -rewrite
func TestFormat(t *testing.T) {
	datadriven.Walk(t, "testdata/format", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out, err := formatCommand(d)
			if err != nil {
				return "error: " + err.Error() + "\n"
			}
			return out
		})
	})
}

func formatCommand(d *datadriven.TestData) (string, error) {
	num := func(name string, def uint64) uint64 {
		var v uint64
		if !d.HasArg(name) {
			return def
		}
		for _, a := range d.CmdArgs {
			if a.Key == name {
				if _, err := fmt.Sscan(a.Vals[0], &v); err != nil {
					panic(err)
				}
			}
		}
		return v
	}
	text := func(name string) []byte {
		for _, a := range d.CmdArgs {
			if a.Key == name {
				return []byte(a.Vals[0])
			}
		}
		return nil
	}
	switch d.Cmd {
	case "region-header":
		h := RegionHeader{
			Incarnation: num("incarnation", 0), Seed: num("seed", 0), Shards: uint32(num("shards", 1)),
			RootOffset: PageSize, ReclaimOffset: uint32(num("reclaim", 2*PageSize)), ReclaimEntries: uint32(num("entries", 1)),
			Region: Region{ID: uint32(num("id", 0)), Kind: RegionKind(num("kind", 1)), Base: PlaceOfByte(num("base", 0)), Length: num("length", RegionGranule)},
		}
		mem := testMem(PageSize)
		PutRegionHeader(mem, h)
		got, err := ParseRegionHeader(mem)
		return dump(mem[:RegionHeaderSize]) + fmt.Sprintf("%+v\n", got), err
	case "beat":
		mem := testMem(PageSize)
		StoreBeat(mem, Beat{num("counter", 0), num("incarnation", 0), num("time", 0), num("view", 0), num("reclaim", 0)})
		got, err := ParseBeat(mem[BeatOffset:], num("incarnation", 0))
		return dump(mem[BeatOffset:][:BeatSize]) + fmt.Sprintf("%+v\n", got), err
	case "retired":
		h := testHeader(0)
		mem := testMem(1 << 20)
		r := Retired{Version: num("version", 1), Place: PlaceOfByte(num("place", 0)), Pages: uint32(num("pages", 1))}
		PutRetired(mem, h, r)
		off := RetiredOffset(h, r.Version)
		got, err := ParseRetired(mem[off:])
		return fmt.Sprintf("at offset %d of a ring of %d at %d\n", off, h.ReclaimEntries, h.ReclaimOffset) +
			dump(mem[off:][:RetiredSize]) + fmt.Sprintf("%+v\n", got), err
	case "root":
		w := MakeRoot(PlaceOfByte(num("place", 0)), uint8(num("depth", 0)))
		return fmt.Sprintf("%#016x\n", w), nil
	case "dir-entry":
		w := MakeDirEntry(PlaceOfByte(num("place", 0)), uint8(num("depth", 0)), uint8(num("step", 0)))
		return fmt.Sprintf("%#016x\n", w), nil
	case "hash":
		h := HashKey(num("seed", 0), text("key"))
		step := uint8(num("step", 0))
		a, b := h.Mains(SegmentGroups(step))
		return fmt.Sprintf("hi %016x lo %016x\nfingerprint %04x, prefix of 8 bits %02x\n"+
			"mains %+v %+v: pairs from buckets %d and %d\n",
			h.Hi, h.Lo, h.Fingerprint(), h.Prefix(8), a, b, a.PairBucket(), b.PairBucket()), nil
	case "bucket":
		return formatBucket(d, num)
	case "item":
		return formatItem(num, text)
	}
	return "", fmt.Errorf("no command %q", d.Cmd)
}

// formatBucket takes slots as lines of input: index fingerprint class place.
func formatBucket(d *datadriven.TestData, num func(string, uint64) uint64) (string, error) {
	mem := testMem(BucketSize)
	h := MakeBucketHeader(uint8(num("step", 0)), uint8(num("depth", 0)), int(num("bucket", 0)),
		uint8(num("slotless", 0)), uint16(num("shard", 0)), uint32(num("prefix", 0)))
	if num("marked", 0) != 0 {
		h = h.WithMarked()
	}
	StoreWord(mem, 0, uint64(h))
	for _, line := range strings.Split(d.Input, "\n") {
		var i, class int
		var fp uint16
		var place uint64
		if _, err := fmt.Sscanf(line, "%d %x %d %v", &i, &fp, &class, &place); err != nil {
			return "", fmt.Errorf("%q: %w", line, err)
		}
		StoreWord(mem, SlotOffset(i), uint64(MakeSlot(fp, uint8(class), PlaceOfByte(place))))
	}
	v, err := ParseBucket(mem)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(dump(mem))
	fmt.Fprintln(&b, v.Header())
	for i := range BucketSlots {
		fmt.Fprintf(&b, "slot %d: %v\n", i, v.Slot(i))
	}
	return b.String(), nil
}

func formatItem(num func(string, uint64) uint64, text func(string) []byte) (string, error) {
	it := Item{Version: MakeVersion(uint16(num("epoch", 1)), num("sequence", 1)), Key: text("key"), Value: text("value"), Expiry: num("expiry", 0)}
	if n := num("length", 0); n > 0 {
		it.Value = make([]byte, n)
	}
	inc, p := num("incarnation", 0), PlaceOfByte(num("place", 0))
	size := ItemSize(len(it.Key), len(it.Value), it.Expiry != 0)
	mem := testMem(size)
	WriteItem(mem, inc, p, it, Pending)
	SetState(mem, it.Version, State(num("state", uint64(Live))))
	v, err := ParseItem(mem, inc, p)
	if err != nil && !errors.Is(err, ErrTorn) {
		return "", err
	}
	class, _ := ClassFor(size)
	shown := mem
	if v.Chunks > 0 {
		shown = mem[:HeadSize(len(it.Key), len(it.Value), it.Expiry != 0)]
	}
	return dump(shown) + fmt.Sprintf("%d bytes, class %d of %d bytes; %v %v, key %q, value of %d bytes at %d, %d chunks, expiry %d\n",
		size, class, ClassSize(class), v.Version, v.State, v.Key(), v.ValLen, v.ValueOffset(), v.Chunks, v.Expiry), err
}

// dump shows memory word by word: the bytes in order, and the word's value.
func dump(b []byte) string {
	var s strings.Builder
	for off := 0; off < len(b); off += wordSize {
		fmt.Fprintf(&s, "%4d │ % x │ %016x │ ", off, b[off:off+wordSize], getWord(b, off))
		for _, c := range b[off : off+wordSize] {
			if c < ' ' || c > '~' {
				c = '.'
			}
			s.WriteByte(c)
		}
		s.WriteByte('\n')
	}
	return s.String()
}
