package memory

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A shelf is a keeper in this process.
type shelf struct {
	kept    map[string]int
	dropped []string
}

func (s *shelf) Put(name string, fd int) error {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_ = s.Drop(name)
	s.kept[name] = own
	return nil
}

func (s *shelf) Drop(name string) error {
	if fd, ok := s.kept[name]; ok {
		delete(s.kept, name)
		s.dropped = append(s.dropped, name)
		return unix.Close(fd)
	}
	return nil
}

func (s *shelf) Gone() <-chan struct{} { return nil }

// next is what the next process gets of it.
func (s *shelf) next(t *testing.T) *Keeping {
	t.Helper()
	left := make(map[string]int)
	for name, fd := range s.kept {
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		left[name] = own
	}
	s.dropped = nil
	return &Keeping{Keeper: s, Left: left}
}

const recordSize = 4096

// TestKept: regions and the record outlive the process with the bytes that they have; what was freed in between does not.
func TestKept(t *testing.T) {
	s := &shelf{kept: make(map[string]int)}
	defer s.empty()
	log := base.NewLog(slog.New(slog.DiscardHandler))
	keep := func() *Kept {
		t.Helper()
		k, err := Keep(NewRegions(RegionsConfig{Huge: HugeOff}, log), s.next(t), recordSize)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = k.record.Free() })
		return k
	}
	k := keep()
	for id := uint32(1); id <= 3; id++ {
		b, err := k.Alloc(id, layout.KindItems, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		copy(b, fmt.Sprintf("region %d", id))
	}
	copy(k.Record(), "the record")
	if err := k.Free(2); err != nil {
		t.Fatal(err)
	}
	k.Leave()
	for _, id := range []uint32{1, 3} {
		if err := k.Free(id); err != nil {
			t.Fatal(err)
		}
	}
	k = keep()
	left := k.Left()
	if ids := slices.Sorted(maps.Keys(left)); !slices.Equal(ids, []uint32{1, 3}) || string(k.Record()[:10]) != "the record" {
		t.Fatalf("left: %v, %q", ids, k.Record()[:10])
	}
	b, err := k.Adopt(3, layout.KindItems)
	if err != nil || string(b[:8]) != "region 3" || len(b) != 1<<20 {
		t.Fatalf("%q, %v", b[:8], err)
	}
	if _, err := k.Adopt(3, layout.KindItems); err == nil {
		t.Error("a region is adopted twice")
	}
	if err := k.Forget(); err != nil {
		t.Fatal(err)
	}
	if names := slices.Sorted(maps.Keys(s.kept)); !slices.Equal(names, []string{"record", "region-3"}) {
		t.Errorf("kept: %q", names)
	}
	if err := k.Free(3); err != nil {
		t.Fatal(err)
	}
}

// TestKeptIsChecked: what a keeper hands over may be of any kind, size and name. What is no memory of a node is never touched, is told, and is not kept any longer.
func TestKeptIsChecked(t *testing.T) {
	memory := func(size, seals int) int {
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err == nil {
			err = unix.Ftruncate(fd, int64(size))
		}
		if err == nil && seals != 0 {
			_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
		}
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	whole := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	bad := map[string]int{
		"region-2":           memory(1<<20, 0),            // it could be cut off under a reader
		"region-3":           memory(0, whole),            // nothing
		"region-04":          memory(1<<20, whole),        // another name of region 4
		"region--5":          memory(1<<20, whole),        //
		"region-99999999999": memory(1<<20, whole),        // no id
		"record":             memory(2*recordSize, whole), // of another program
		"other":              memory(1<<20, whole),        //
		"7":                  memory(1<<20, whole),        //
		"region-8":           int(file.Fd()),
	}
	s := &shelf{kept: make(map[string]int)}
	defer s.empty()
	for name, fd := range bad {
		if err := s.Put(name, fd); err != nil {
			t.Fatal(err)
		}
		if fd != int(file.Fd()) {
			_ = unix.Close(fd)
		}
	}
	good := memory(1<<20, whole)
	if err := s.Put("region-1", good); err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(good)

	var log bytes.Buffer
	before := openFiles(t)
	k, err := Keep(NewRegions(RegionsConfig{Huge: HugeOff}, base.NewLog(slog.New(slog.NewTextHandler(&log, nil)))), s.next(t), recordSize)
	if err != nil {
		t.Fatal(err)
	}
	if ids := slices.Sorted(maps.Keys(k.Left())); !slices.Equal(ids, []uint32{1}) {
		t.Errorf("left: %v", ids)
	}
	for i, b := range k.Record() {
		if b != 0 {
			t.Fatalf("byte %d of a new record is %d", i, b)
		}
	}
	dropped := slices.Sorted(slices.Values(s.dropped))
	if want := slices.Sorted(maps.Keys(bad)); !slices.Equal(dropped, want) {
		t.Errorf("the keeper was told to drop %q, want %q", dropped, want)
	}
	if names := slices.Sorted(maps.Keys(s.kept)); !slices.Equal(names, []string{"record", "region-1"}) {
		t.Errorf("kept: %q", names)
	}
	for name := range bad {
		if name != "region-2" && name != "region-3" && name != "region-8" && !strings.Contains(log.String(), name) {
			t.Errorf("%s is not told: %s", name, log.String())
		}
	}
	if err := k.Forget(); err != nil {
		t.Fatal(err)
	}
	if err := k.record.Free(); err != nil {
		t.Fatal(err)
	}
	// The keeper is in this process, too: it had ten, and has the new record.
	if now := openFiles(t); now != before-len(bad) {
		t.Errorf("%d descriptors, and %d before", now, before)
	}
}

func (s *shelf) empty() {
	for _, fd := range s.kept {
		_ = unix.Close(fd)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
