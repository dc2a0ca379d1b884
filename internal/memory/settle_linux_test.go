package memory

import (
	"strings"
	"testing"
)

// TestPrefault: the pages are there before Alloc returns, whatever thread took
// them, and without it none is.
func TestPrefault(t *testing.T) {
	const size = 2*prefaultStep + 12345
	for _, prefault := range []bool{false, true} {
		b, err := Alloc(size, Options{Tag: "t", Ledger: NewLedger(0), Prefault: prefault})
		if err != nil {
			t.Fatal(err)
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
		if _, err := Alloc(4096, Options{Tag: "t", Ledger: ledger, Node: &node}); err == nil {
			t.Errorf("node %d: memory was had", node)
		}
	}
	if n := ledger.Total(); n != 0 {
		t.Errorf("%d bytes stay counted", n)
	}
}
