package mem

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

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
