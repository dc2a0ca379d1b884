package mem

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// smaps returns the lines of /proc/self/smaps about the mapping at addr.
func smaps(t *testing.T, addr uintptr) string {
	t.Helper()
	all, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skipf("no smaps on this system: %v", err)
	}
	var entry strings.Builder
	found := false
	for line := range strings.Lines(string(all)) {
		if from, to, ok := mapRange(line); ok {
			if found {
				break
			}
			found = uint64(addr) >= from && uint64(addr) < to
		}
		if found {
			entry.WriteString(line)
		}
	}
	return entry.String()
}

func mapRange(line string) (from, to uint64, ok bool) {
	span, _, _ := strings.Cut(line, " ")
	a, b, dash := strings.Cut(span, "-")
	if !dash {
		return 0, 0, false
	}
	from, err1 := strconv.ParseUint(a, 16, 64)
	to, err2 := strconv.ParseUint(b, 16, 64)
	return from, to, err1 == nil && err2 == nil
}

func TestAllocSizesAndAlignment(t *testing.T) {
	for _, kind := range []Kind{Mmap, Heap} {
		align := uintptr(8)
		if kind == Mmap {
			align = uintptr(pageSize())
		}
		for _, size := range []int{1, 7, 8, 63, 4095, 4096, 4097, 1 << 20} {
			ledger := NewLedger(0)
			b, err := Alloc(size, Options{Kind: kind, Tag: "t", Ledger: ledger})
			if err != nil {
				t.Fatalf("%v %d: %v", kind, size, err)
			}
			mem := b.Bytes()
			if len(mem) != size || cap(mem) != size || b.Size() != size || b.Kind() != kind || b.Tag() != "t" {
				t.Errorf("%v %d: len %d cap %d size %d kind %v tag %q", kind, size, len(mem), cap(mem), b.Size(), b.Kind(), b.Tag())
			}
			if got := addrOf(mem); got%align != 0 {
				t.Errorf("%v %d: address %#x is not a multiple of %d", kind, size, got, align)
			}
			if !bytes.Equal(mem, make([]byte, size)) {
				t.Errorf("%v %d: not zeroed", kind, size)
			}
			mem[0], mem[size-1] = 1, 1
			if u := ledger.Of("t"); u.Blocks != 1 || u.Bytes < int64(size) || u.Bytes%int64(min(align, 8)) != 0 {
				t.Errorf("%v %d: ledger %+v", kind, size, u)
			}
			for range 2 { // the second Free is harmless
				if err := b.Free(); err != nil {
					t.Errorf("%v %d: free: %v", kind, size, err)
				}
			}
			if u := ledger.Of("t"); u.Blocks != 0 || u.Bytes != 0 || ledger.Total() != 0 {
				t.Errorf("%v %d: after free: %+v, total %d", kind, size, u, ledger.Total())
			}
		}
	}
}

func TestBytesAfterFreePanics(t *testing.T) {
	b, err := Alloc(100, Options{Tag: "gone", Ledger: NewLedger(0)})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Free(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		text, _ := recover().(string)
		for _, want := range []string{"100 bytes", "mmap", `"gone"`} {
			if !strings.Contains(text, want) {
				t.Errorf("panic %q does not say %s", text, want)
			}
		}
	}()
	b.Bytes()
	t.Error("Bytes of a freed block did not panic")
}

func TestAllocErrors(t *testing.T) {
	ledger := NewLedger(1 << 20)
	cases := []struct {
		name string
		size int
		kind Kind
		want error
		says []string
	}{
		{"zero", 0, Mmap, ErrSize, []string{"0 bytes", `"x"`}},
		{"negative", -1, Mmap, ErrSize, []string{"-1 bytes"}},
		{"absurd", MaxSize + 1, Mmap, ErrSize, []string{"1099511627777"}},
		{"limit", 2 << 20, Mmap, ErrLimit, []string{"2097152", "1048576"}},
		{"unknown kind", 1, Kind(9), ErrNotSupported, []string{"Kind(9)"}},
	}
	for _, c := range cases {
		b, err := Alloc(c.size, Options{Kind: c.kind, Tag: "x", Ledger: ledger})
		if b != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: block %v, error %v, want %v", c.name, b, err, c.want)
			continue
		}
		for _, s := range c.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %q does not say %s", c.name, err, s)
			}
		}
	}
	if got := ledger.Total(); got != 0 {
		t.Errorf("failed allocations left %d bytes counted", got)
	}
}

// The kernel refuses what no address space holds; the ledger must not keep it.
func TestKernelRefusal(t *testing.T) {
	ledger := NewLedger(0)
	var blocks []*Block
	defer func() {
		for _, b := range blocks {
			if err := b.Free(); err != nil {
				t.Error(err)
			}
		}
		if got := ledger.Total(); got != 0 {
			t.Errorf("%d bytes still counted", got)
		}
	}()
	// 47 bits of address space hold at most 127 blocks of 1 TiB.
	for range 1 << 10 {
		b, err := Alloc(MaxSize, Options{Tag: "huge wish", Ledger: ledger})
		if err != nil {
			if !errors.Is(err, ErrNoMemory) || !strings.Contains(err.Error(), "overcommit") {
				t.Errorf("refusal: %v", err)
			}
			return
		}
		blocks = append(blocks, b)
	}
	t.Skip("this kernel maps a PiB: nothing to refuse")
}

func TestForkAndDumpAdvice(t *testing.T) {
	b, err := Alloc(3*pageSize(), Options{Tag: "advice", Ledger: NewLedger(0)})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	entry := smaps(t, addrOf(b.Bytes()))
	_, flags, ok := strings.Cut(entry, "VmFlags:")
	if !ok {
		t.Skip("this kernel prints no VmFlags")
	}
	for _, want := range []string{" dc", " dd"} { // do not copy on fork, do not dump
		if !strings.Contains(flags, want) {
			t.Errorf("VmFlags:%s lacks%s", flags, want)
		}
	}
}

// With huge pages reserved the block is aligned to them; without, the error
// names the sysctl. Both outcomes are proper, so there is nothing to skip.
func TestHuge(t *testing.T) {
	ledger := NewLedger(0)
	b, err := Alloc(1<<20, Options{Kind: Huge, Tag: "h", Ledger: ledger})
	if err == nil {
		size, err := hugePageSize()
		if err != nil {
			t.Fatal(err)
		}
		if at := addrOf(b.Bytes()); at%uintptr(size) != 0 {
			t.Errorf("address %#x is not a multiple of %d", at, size)
		}
		if err := b.Free(); err != nil {
			t.Error(err)
		}
	} else if errors.Is(err, ErrNoHugePages) {
		if !strings.Contains(err.Error(), "vm.nr_hugepages=") && !strings.Contains(err.Error(), "this kernel has none") {
			t.Errorf("no help in %q", err)
		}
	} else if !errors.Is(err, ErrNotSupported) {
		t.Errorf("unexpected error %v", err)
	}
	if ledger.Total() != 0 {
		t.Errorf("%d bytes still counted", ledger.Total())
	}
}

func TestLedgerConcurrent(t *testing.T) {
	const limit = 64 << 10
	ledger := NewLedger(limit)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for range 200 {
				b, err := Alloc(8<<10, Options{Kind: Heap, Tag: "g" + strconv.Itoa(g%3), Ledger: ledger})
				if errors.Is(err, ErrLimit) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if got := ledger.Total(); got > limit {
					t.Errorf("%d bytes in use, limit %d", got, limit)
				}
				_ = b.Free() // Heap never fails to free
			}
		})
	}
	wg.Wait()
	list := ledger.Usage()
	if len(list) != 3 || list[0].Tag != "g0" || list[2].Tag != "g2" {
		t.Errorf("usage %+v", list)
	}
	for _, u := range list {
		if u.Bytes != 0 || u.Blocks != 0 {
			t.Errorf("left over: %+v", u)
		}
	}
}
