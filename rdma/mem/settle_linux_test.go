package mem

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmakv/rdmakv/rdma/internal/memfd"
)

// TestPrefault: the pages are there before Alloc returns, whatever thread took
// them, and without it none is.
func TestPrefault(t *testing.T) {
	const size = 2*prefaultStep + 12345
	for _, prefault := range []bool{false, true} {
		var told []int
		b, err := Alloc(size, Options{Tag: "t", Ledger: NewLedger(0), Prefault: prefault, OnPrefault: func(n int) { told = append(told, n) }})
		if err != nil {
			t.Fatal(err)
		}
		if last := len(told) - 1; prefault && (last != 2 || told[last] < size || !slices.IsSorted(told)) || !prefault && last >= 0 {
			t.Errorf("prefault %v: told of %v", prefault, told)
		}
		rss := ""
		for line := range strings.Lines(smaps(t, addrOf(b.Bytes()))) {
			if v, ok := strings.CutPrefix(line, "Rss:"); ok {
				rss = strings.TrimSpace(v)
			}
		}
		want := map[bool]string{false: "0 kB", true: "65552 kB"}[prefault]
		if rss != want {
			t.Errorf("prefault %v: %q are resident, want %q", prefault, rss, want)
		}
		for _, c := range b.Bytes() {
			if c != 0 {
				t.Fatal("the memory is not zeroed")
			}
		}
		if err := b.Free(); err != nil {
			t.Error(err)
		}
	}
}

// TestBacked: shared memory that was taken in advance has all its pages; other memory has
// those that were written to.
func TestBacked(t *testing.T) {
	const size = 8 << 12
	for _, prefault := range []bool{true, false} {
		b, err := Alloc(size, Options{Shared: true, Prefault: prefault, Tag: "test"})
		if err != nil {
			t.Fatal(err)
		}
		at, _ := memfd.BackingOf(b.Bytes())
		if got := memfd.Backed(at.FD, at.Size); got != prefault {
			t.Errorf("prefault %v: backed %v", prefault, got)
		}
		clear(b.Bytes())
		if !memfd.Backed(at.FD, at.Size) {
			t.Errorf("prefault %v: not backed when all was written", prefault)
		}
		if err := b.Free(); err != nil {
			t.Error(err)
		}
	}
}

// TestTransparent: memory that asks for transparent huge pages is marked so.
func TestTransparent(t *testing.T) {
	b, err := Alloc(8<<20, Options{Tag: "t", Ledger: NewLedger(0), Transparent: true, Prefault: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	for line := range strings.Lines(smaps(t, addrOf(b.Bytes()))) {
		if v, ok := strings.CutPrefix(line, "VmFlags:"); ok && !strings.Contains(v, " hg") {
			t.Errorf("no MADV_HUGEPAGE: %s", v)
		}
	}
}

// TestNode: memory of a node that exists is had, of one that does not is
// refused, and nothing stays counted then.
func TestNode(t *testing.T) {
	ledger, here, nowhere := NewLedger(0), 0, 1000
	b, err := Alloc(4096, Options{Tag: "t", Ledger: ledger, Node: &here, Prefault: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Free(); err != nil {
		t.Error(err)
	}
	for _, node := range []int{nowhere, -1, maxNode + 1} {
		if _, err := Alloc(4096, Options{Tag: "t", Ledger: ledger, Node: &node}); !errors.Is(err, ErrNotSupported) {
			t.Errorf("node %d: %v, want ErrNotSupported", node, err)
		}
	}
	if n := ledger.Total(); n != 0 {
		t.Errorf("%d bytes stay counted", n)
	}
}

// TestGather: while the pages of a block are put into huge ones, what stands
// there is what was written, and goes on being written.
func TestGather(t *testing.T) {
	const size = 12 << 20
	for _, shared := range []bool{false, true} {
		b, err := Alloc(size, Options{Tag: "t", Ledger: NewLedger(0), Transparent: true, Shared: shared})
		if err != nil {
			t.Fatal(err)
		}
		mem := b.Bytes()
		for i := 0; i < size; i += 4096 {
			binary.NativeEndian.PutUint64(mem[i:], uint64(i)+1)
		}
		var stop atomic.Bool
		rounds := make(chan uint64)
		go func() { // the second word of each page belongs to this one
			n := uint64(0)
			for ; !stop.Load(); n++ {
				for i := 0; i < size; i += 4096 {
					if n > 0 && binary.NativeEndian.Uint64(mem[i+8:]) != n-1 {
						t.Errorf("shared %v: the word at %d is %d in round %d", shared, i+8, binary.NativeEndian.Uint64(mem[i+8:]), n)
					}
					binary.NativeEndian.PutUint64(mem[i+8:], n)
				}
			}
			rounds <- n
		}()
		for range 3 {
			b.Gather(func() bool { return true })
		}
		asked := 0
		b.Gather(func() bool { asked++; return false })
		if asked != 1 {
			t.Errorf("Gather went on %d times after it was told to end", asked)
		}
		stop.Store(true)
		n := <-rounds
		for i := 0; i < size; i += 4096 {
			if got := binary.NativeEndian.Uint64(mem[i:]); got != uint64(i)+1 {
				t.Fatalf("shared %v: the word at %d is %d", shared, i, got)
			}
		}
		huge := "none"
		for line := range strings.Lines(smaps(t, addrOf(mem))) {
			if v, ok := strings.CutPrefix(line, map[bool]string{false: "AnonHugePages:", true: "ShmemPmdMapped:"}[shared]); ok {
				huge = strings.TrimSpace(v)
			}
		}
		t.Logf("shared %v: %d rounds meanwhile, %s of %d KiB in huge pages", shared, n, huge, size>>10)
		if err := b.Free(); err != nil {
			t.Error(err)
		}
		b.Gather(func() bool { return true }) // there is nothing left
	}
}

// TestGatherFilled: what is full of a shared block is put into huge pages, what is not takes no page, and nothing
// that stands there changes.
func TestGatherFilled(t *testing.T) {
	const size, step = 16 << 20, 2 << 20
	b, err := Alloc(size, Options{Tag: "t", Ledger: NewLedger(0), Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	raw := b.Bytes()
	fill := func(from, to int) {
		for i := from; i < to; i += 8 {
			binary.NativeEndian.PutUint64(raw[i:], uint64(i)+1)
		}
	}
	always := func() bool { return true }
	taken := func() int64 {
		n, ok := takenOf(raw)
		if !ok {
			t.Fatal("the memfd of a shared block is not known")
		}
		return n
	}
	b.GatherFilled(always) // nothing is there
	fill(step+4096, 4*step-4096)
	before := taken()
	b.GatherFilled(always)
	if got := taken(); got != before {
		t.Errorf("%d bytes have pages, %d had before", got, before)
	}
	first := b.Gathered()
	if first != step && (first != 0 || kernelCollapses(t)) {
		t.Errorf("%d bytes are in huge pages, of one huge page that is full", first)
	}
	fill(0, 4*step)
	asked := 0
	b.GatherFilled(func() bool { asked++; return asked < 2 })
	if asked != 2 {
		t.Errorf("it went on %d times after it was told to end", asked-1)
	}
	fill(7*step, size)
	b.GatherFilled(always)
	b.GatherFilled(always)
	if taken() != 5*step {
		t.Errorf("%d bytes have pages, %d were written", taken(), 5*step)
	}
	if first != 0 && b.Gathered() != 5*step { // this kernel can
		t.Errorf("%d bytes are in huge pages, %d are full", b.Gathered(), 5*step)
	}
	t.Logf("%d KiB of %d in huge pages", b.Gathered()>>10, 5*step>>10)
	for i := 0; i < size; i += 8 {
		want := uint64(i) + 1
		if i >= 4*step && i < 7*step {
			want = 0
		}
		if got := binary.NativeEndian.Uint64(raw[i:]); got != want {
			t.Fatalf("the word at %d is %d", i, got)
		}
	}
	if err := b.Free(); err != nil {
		t.Error(err)
	}
	b.GatherFilled(always) // there is nothing left
}

// TestCollapse: memory of the heap stays what it is, whatever part of it is handed over.
func TestCollapse(t *testing.T) {
	all := heapBytes(6 << 20)
	for i := 0; i < len(all); i += 8 {
		binary.NativeEndian.PutUint64(all[i:], uint64(i))
	}
	for _, part := range [][]byte{nil, all[:100], all, all[4096 : 3<<20], all[len(all)-2<<20:]} {
		Collapse(part)
	}
	for i := 0; i < len(all); i += 8 {
		if got := binary.NativeEndian.Uint64(all[i:]); got != uint64(i) {
			t.Fatalf("the word at %d is %d", i, got)
		}
	}
}

// kernelCollapses reports whether this kernel ought to put a memfd into huge pages: it has MADV_COLLAPSE (Linux 6.1)
// and was built with transparent huge pages for shared memory.
func kernelCollapses(t *testing.T) bool {
	t.Helper()
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	set, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
	return (major > 6 || major == 6 && minor >= 1) && err == nil && !strings.Contains(string(set), "[deny]")
}
