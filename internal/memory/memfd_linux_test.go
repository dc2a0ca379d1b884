package memory

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSharedCannotRun: memory that goes to other processes can be made a program by
// none of them, so that machines which forbid such memory give it.
func TestSharedCannotRun(t *testing.T) {
	b, err := Alloc(1, Options{Shared: true, Tag: "t", Ledger: NewLedger(0)})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	at, ok := BackingOf(b.Bytes())
	if !ok {
		t.Fatal("shared memory without a memfd")
	}
	var st unix.Stat_t
	if err := unix.Fstat(at.FD, &st); err != nil {
		t.Fatal(err)
	}
	seals, err := unix.FcntlInt(uintptr(at.FD), unix.F_GET_SEALS, 0)
	if err != nil {
		t.Fatal(err)
	}
	if probe, err := unix.MemfdCreate("probe", unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL); err != nil {
		t.Skip("this kernel has no memfds that cannot be executed")
	} else if err := unix.Close(probe); err != nil {
		t.Fatal(err)
	}
	if st.Mode&0o111 != 0 || seals&unix.F_SEAL_EXEC == 0 {
		t.Errorf("mode %o, seals %#x", st.Mode, seals)
	}
}

// TestMapSealedIsExact: a descriptor of another size than was said is refused.
func TestMapSealedIsExact(t *testing.T) {
	b, err := Alloc(3*pageSize(), Options{Shared: true, Tag: "t", Ledger: NewLedger(0)})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	at, _ := BackingOf(b.Bytes())
	for _, pages := range []int64{2, 4} {
		if m, err := MapSealed(at.FD, pages*int64(pageSize())); !errors.Is(err, ErrUnsealed) {
			t.Errorf("%d bytes mapped of %d pages of 3: %v", len(m), pages, err)
		}
	}
	m, err := MapSealed(at.FD, at.Size)
	if err != nil {
		t.Fatal(err)
	}
	if err := UnmapSealed(m); err != nil {
		t.Error(err)
	}
}

// TestBacked: memory that was taken in advance has all its pages; other memory has
// those that were written to.
func TestBacked(t *testing.T) {
	const size = 8 << 12
	for _, prefault := range []bool{true, false} {
		b, err := Alloc(size, Options{Shared: true, Prefault: prefault, Tag: "test"})
		if err != nil {
			t.Fatal(err)
		}
		at, _ := BackingOf(b.Bytes())
		if got := Backed(at.FD, at.Size); got != prefault {
			t.Errorf("prefault %v: backed %v", prefault, got)
		}
		clear(b.Bytes())
		if !Backed(at.FD, at.Size) {
			t.Errorf("prefault %v: not backed when all was written", prefault)
		}
		if err := b.Free(); err != nil {
			t.Error(err)
		}
	}
}
