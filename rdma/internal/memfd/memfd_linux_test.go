package memfd

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// newPages is memory of New, of some pages that have not been touched.
func newPages(t *testing.T, pages int) []byte {
	t.Helper()
	raw, err := New(pages*unix.Getpagesize(), 0, func([]byte) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Free(raw); err != nil {
			t.Error(err)
		}
	})
	return raw
}

// TestSharedCannotRun: memory that goes to other processes cannot be made
// executable by any of them, so machines which forbid executable memory give it.
func TestSharedCannotRun(t *testing.T) {
	at, ok := BackingOf(newPages(t, 1))
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
	at, _ := BackingOf(newPages(t, 3))
	for _, pages := range []int64{2, 4} {
		if m, err := MapSealed(at.FD, pages*int64(unix.Getpagesize())); !errors.Is(err, ErrUnsealed) {
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

// TestNewUndone: memory that cannot be settled is not there: no mapping, no memfd.
func TestNewUndone(t *testing.T) {
	want := errors.New("not today")
	var at []byte
	raw, err := New(unix.Getpagesize(), 0, func(raw []byte) error { at = raw; return want })
	if raw != nil || !errors.Is(err, want) {
		t.Fatalf("%d bytes, %v", len(raw), err)
	}
	if b, ok := BackingOf(at); ok {
		t.Errorf("a memfd is still known: %+v", b)
	}
	if err := Free(at); err == nil {
		t.Error("memory that is not there was freed")
	}
}
