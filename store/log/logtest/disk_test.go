package logtest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmakv/rdmakv/store/log"
)

// after collects what the first sectors of the file look like after a power cut, over many
// seeds.
func after(t *testing.T, d *Disk, sectors int) map[string]int {
	t.Helper()
	seen := map[string]int{}
	for seed := range uint64(400) {
		seen[runs(contents(t, d.Crash(seed), "f"))[:sectors]]++
	}
	return seen
}

// TestBufferedWrites: what was written and not synced is there or not, sector by sector, in
// any of its versions; what was synced is there.
func TestBufferedWrites(t *testing.T) {
	d, f := made(t, Options{}, 3*pageSize, buffered)
	put(t, f, aligned(sectorSize, 'a'), 0)
	must(t, f.Sync())
	put(t, f, aligned(2*sectorSize, 'b'), 0)
	put(t, f, aligned(sectorSize, 'c'), sectorSize)
	if got := runs(get(t, d, buffered, 2*sectorSize, 0)); got != "bc" {
		t.Fatalf("the cache has %s", got)
	}
	seen := after(t, d.Clone(), 3)
	for _, want := range []string{"a..", "bc.", "ac.", "bb.", "ab.", "b.."} {
		if seen[want] == 0 {
			t.Errorf("never %q: %v", want, seen)
		}
		delete(seen, want)
	}
	if len(seen) != 0 {
		t.Errorf("it also left %v", seen)
	}
	must(t, f.Sync())
	if seen := after(t, d, 3); len(seen) != 1 || seen["bc."] == 0 {
		t.Errorf("after a sync: %v", seen)
	}
}

// TestPagesAndSectors: an unfinished direct write is there by pages in some crashes and by
// sectors in others, and a finished one is there.
func TestPagesAndSectors(t *testing.T) {
	d, f := made(t, Options{}, 4*pageSize, direct)
	put(t, f, aligned(pageSize, 'a'), 0)
	d.CrashAt(1)
	if _, err := f.WriteAt(aligned(3*pageSize, 'b'), pageSize); !errors.Is(err, ErrCrashed) {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(aligned(pageSize, 'c'), 0); !errors.Is(err, ErrCrashed) {
		t.Fatal(err)
	}
	if _, err := d.List(); !errors.Is(err, ErrCrashed) {
		t.Fatal(err)
	}
	var torn, holes, none, all int
	for seed := range uint64(400) {
		s := runs(contents(t, d.Crash(seed), "f"))
		if s[:sectors] != strings.Repeat("a", sectors) {
			t.Fatalf("seed %d: a write that had returned is gone: %s", seed, s)
		}
		pages := ""
		for p := sectors; p < len(s); p += sectors {
			switch s[p : p+sectors] {
			case strings.Repeat("b", sectors):
				pages += "b"
			case strings.Repeat(".", sectors):
				pages += "."
			default:
				pages += "t"
			}
		}
		switch {
		case strings.Contains(pages, "t"):
			torn++
		case pages == "...":
			none++
		case pages == "bbb":
			all++
		case strings.Contains(pages, ".b"):
			holes++
		}
	}
	if torn == 0 || holes == 0 || none == 0 || all == 0 {
		t.Errorf("torn %d, pages behind a missing one %d, none %d, all %d", torn, holes, none, all)
	}
}

// TestSeeds: the same calls and the same seed leave the same bytes.
func TestSeeds(t *testing.T) {
	run := func() *Disk {
		d, f := made(t, Options{Seed: 7}, 8*pageSize, buffered)
		g, err := d.Create("g", 8*pageSize, false, buffered)
		must(t, err)
		for i := range 6 {
			put(t, f, aligned(pageSize+sectorSize, 'a'+byte(i)), int64(i)*pageSize)
			put(t, g, aligned(pageSize+sectorSize, 'n'+byte(i)), int64(i)*pageSize)
		}
		must(t, d.Rename("g", "h"))
		return d
	}
	one, two := run(), run()
	different := 0
	for seed := range uint64(100) {
		a, b := one.Crash(seed), two.Crash(seed)
		if !slices.Equal(a.Names(), b.Names()) {
			t.Fatalf("seed %d: %v and %v", seed, a.Names(), b.Names())
		}
		for _, name := range a.Names() {
			if !bytes.Equal(contents(t, a, name), contents(t, b, name)) {
				t.Fatalf("seed %d: %s differs", seed, name)
			}
		}
		if !bytes.Equal(contents(t, a, "f"), contents(t, one.Crash(seed+100), "f")) {
			different++
		}
	}
	if different < 50 {
		t.Errorf("only %d of 100 seeds left something else", different)
	}
}

// TestSyncThatFails: it fails once, the next one succeeds, the cache has all bytes, and the
// platter has not.
func TestSyncThatFails(t *testing.T) {
	lost := 0
	for seed := range uint64(20) {
		d, f := made(t, Options{Seed: seed}, pageSize, buffered)
		put(t, f, aligned(pageSize, 'a'), 0)
		d.FailAt(1, Fault{Err: syscall.EIO, Lost: true})
		if err := f.Sync(); !errors.Is(err, syscall.EIO) {
			t.Fatal(err)
		}
		must(t, f.Sync())
		want := strings.Repeat("a", sectors)
		if got := runs(get(t, d, log.Access{}, pageSize, 0)); got != want {
			t.Fatalf("the cache has %s", got)
		}
		if got := runs(get(t, d, log.Access{Direct: true}, pageSize, 0)); got != want {
			lost++
			if after := runs(contents(t, d.Crash(1), "f")); after != got {
				t.Errorf("seed %d: a direct read saw %s, the power cut left %s", seed, got, after)
			}
		}
	}
	if lost < 10 {
		t.Errorf("the platter had everything in %d of 20 cases", 20-lost)
	}
}

// TestDriveCache: with a drive that lies, a direct write is durable with the next Sync.
func TestDriveCache(t *testing.T) {
	d, f := made(t, Options{DriveCache: true}, pageSize, direct)
	put(t, f, aligned(pageSize, 'a'), 0)
	if got := runs(contents(t, d.Clone().Crash(0), "f")); got != strings.Repeat(".", sectors) {
		t.Errorf("after a crash: %s", got)
	}
	must(t, f.Sync())
	if got := runs(contents(t, d.Crash(0), "f")); got != strings.Repeat("a", sectors) {
		t.Errorf("after a sync and a crash: %s", got)
	}
}

// TestNames: what names there are is durable with a Sync of the directory; before, each
// change is there or not.
func TestNames(t *testing.T) {
	d, f := made(t, Options{}, pageSize, buffered)
	put(t, f, aligned(pageSize, 'a'), 0)
	must(t, f.Sync())
	_, err := d.Create("new", 0, true, buffered)
	must(t, err)
	must(t, d.Rename("f", "g"))
	seen := map[string]int{}
	for seed := range uint64(200) {
		seen[strings.Join(d.Clone().Crash(seed).Names(), " ")]++
	}
	for _, want := range []string{"f", "g", "f new", "g new"} {
		if seen[want] == 0 {
			t.Errorf("never %q: %v", want, seen)
		}
	}
	must(t, d.Sync())
	must(t, d.Remove("new"))
	for seed, want := range []string{"g new", "g"} {
		if got := strings.Join(d.Clone().Crash(uint64(seed)).Names(), " "); got != want {
			t.Errorf("seed %d left %q", seed, got)
		}
	}
	if got := runs(contents(t, d.Crash(0), "g"))[:1]; got != "a" {
		t.Errorf("the renamed file has %s", got)
	}
}

// TestLengths: how long a file is, is durable with a Sync of it, or with a direct write.
func TestLengths(t *testing.T) {
	size := func(d *Disk) int { return len(contents(t, d, "f")) }
	for _, a := range []log.Access{buffered, direct} {
		d := New(Options{})
		f, err := d.Create("f", 2*pageSize, false, a)
		must(t, err)
		must(t, d.Sync())
		put(t, f, aligned(pageSize, 'a'), 0)
		if got := size(d.Clone().Crash(0)); got != 0 && !a.Direct || got == 0 && a.Direct {
			t.Errorf("direct %v: after the first write and a crash it has %d bytes", a.Direct, got)
		}
		must(t, f.Sync())
		must(t, f.Truncate(pageSize))
		if zero, one := size(d.Clone().Crash(0)), size(d.Clone().Crash(1)); zero != 2*pageSize || one != pageSize {
			t.Errorf("a truncate that is not synced leaves %d or %d bytes", zero, one)
		}
		must(t, f.Sync())
		if got := size(d.Crash(0)); got != pageSize {
			t.Errorf("a synced truncate leaves %d bytes", got)
		}
	}
}

// TestKill: a killed process loses nothing that the kernel has. A direct write on its way
// is there in part, and not durable.
func TestKill(t *testing.T) {
	d, f := made(t, Options{}, 2*pageSize, buffered)
	g, err := d.Open("f", direct)
	must(t, err)
	put(t, f, aligned(pageSize, 'a'), 0)
	hold, arrived := make(chan struct{}), make(chan struct{})
	d.OnCall(func(Call) Fault { close(arrived); return Fault{Hold: hold} })
	failed := make(chan error)
	go func() {
		_, err := g.WriteAt(aligned(pageSize, 'b'), pageSize)
		failed <- err
	}()
	<-arrived
	for d.inFlight() == 0 {
	}
	mixed := false
	for seed := range uint64(20) {
		next := d.Kill(seed)
		if got := runs(get(t, next, log.Access{}, pageSize, 0)); got != strings.Repeat("a", sectors) {
			t.Fatalf("a buffered write is gone: %s", got)
		}
		part := runs(get(t, next, log.Access{Direct: true}, pageSize, pageSize))
		mixed = mixed || strings.Contains(part, "b") && strings.Contains(part, ".")
		if got := runs(contents(t, next.Clone().Crash(0), "f")); got != strings.Repeat(".", 2*sectors) {
			t.Errorf("seed %d: after a kill and a power cut %s is durable", seed, got)
		}
		again, err := next.Open("f", buffered)
		must(t, err)
		must(t, again.Sync())
		if got := runs(contents(t, next.Crash(0), "f")); got != strings.Repeat("a", sectors)+part {
			t.Errorf("seed %d: synced, it has %s", seed, got)
		}
	}
	if err := <-failed; !errors.Is(err, ErrCrashed) {
		t.Errorf("the killed write returned %v", err)
	}
	if !mixed {
		t.Error("the write on its way was never there in part")
	}
}

func (d *Disk) inFlight() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.flying)
}

// TestRefusals: what a file system refuses.
func TestRefusals(t *testing.T) {
	d, f := made(t, Options{NoDirect: true, Capacity: 4 * pageSize}, pageSize, buffered)
	want := func(what string, err, target error) {
		t.Helper()
		if err == nil || target != nil && !errors.Is(err, target) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := d.Create("f", 1, true, buffered)
	want("create again", err, fs.ErrExist)
	_, err = d.Create("g", 4*pageSize, true, buffered)
	want("create beyond the capacity", err, syscall.ENOSPC)
	_, err = d.Create("g", 1, true, direct)
	want("create for direct access", err, log.ErrNoDirect)
	_, err = d.Create("a/b", 1, true, buffered)
	want("a name with a separator", err, nil)
	_, err = d.Open("g", buffered)
	want("open what is not there", err, fs.ErrNotExist)
	_, err = d.Open("f", direct)
	want("open for direct access", err, log.ErrNoDirect)
	want("rename what is not there", d.Rename("g", "h"), fs.ErrNotExist)
	want("rename onto a file", d.Rename("f", "f"), fs.ErrExist)
	want("remove what is not there", d.Remove("g"), fs.ErrNotExist)
	_, err = f.WriteAt(make([]byte, 2), pageSize-1)
	want("write behind the end", err, nil)
	want("truncate to more", f.Truncate(pageSize+1), nil)
	n, err := f.ReadAt(make([]byte, 2), pageSize-1)
	want("read behind the end", err, io.EOF)
	if n != 1 {
		t.Errorf("read %d bytes at the end", n)
	}
	r, err := d.Open("f", log.Access{})
	must(t, err)
	_, err = r.WriteAt(make([]byte, 2), 0)
	want("write into what is opened for reading", err, nil)
	if d.Handles() != 2 {
		t.Errorf("%d open files", d.Handles())
	}
	must(t, r.Close())
	want("close again", r.Close(), fs.ErrClosed)
	_, err = r.ReadAt(make([]byte, 2), 0)
	want("read what is closed", err, fs.ErrClosed)

	d, f = made(t, Options{}, 2*pageSize, direct)
	_, err = f.WriteAt(aligned(pageSize, 'a'), sectorSize)
	want("direct at an odd offset", err, nil)
	_, err = f.WriteAt(aligned(sectorSize, 'a'), 0)
	want("direct and short", err, nil)
	_, err = f.WriteAt(aligned(2*pageSize, 'a')[8:8+pageSize], 0)
	want("direct from an odd address", err, nil)
	if _, changes := d.Calls(); changes != 3 {
		t.Errorf("%d calls changed something, want 3: refused ones do not count", changes)
	}
}

// TestFaults: an error, a short write, a held call, each at its call.
func TestFaults(t *testing.T) {
	for _, a := range []log.Access{buffered, direct} {
		d, f := made(t, Options{}, 2*pageSize, a)
		d.FailAt(2, Fault{Err: syscall.EIO})
		put(t, f, aligned(pageSize, 'a'), 0)
		if _, err := f.WriteAt(aligned(pageSize, 'b'), 0); !errors.Is(err, syscall.EIO) {
			t.Fatal(err)
		}
		if got := runs(get(t, d, a, pageSize, 0)); !a.Direct && got != strings.Repeat("a", sectors) || a.Direct && strings.Trim(got, "ab") != "" {
			t.Errorf("a write that failed left %s", got)
		}
		d.FailAt(1, Fault{Short: sectorSize})
		if n, err := f.WriteAt(aligned(pageSize, 'c'), pageSize); n != sectorSize || !errors.Is(err, io.ErrShortWrite) {
			t.Fatal(n, err)
		}
		if got := runs(get(t, d, a, pageSize, pageSize)); got != "c......." {
			t.Errorf("a short write left %s", got)
		}
		hold := make(chan struct{})
		d.FailAt(1, Fault{Hold: hold})
		done := make(chan error)
		go func() {
			_, err := f.WriteAt(aligned(pageSize, 'd'), 0)
			done <- err
		}()
		select {
		case err := <-done:
			t.Fatal("a held write returned:", err)
		default:
		}
		close(hold)
		must(t, <-done)
		if d.Count(OpWrite) != 4 || d.Bytes() != 2*pageSize {
			t.Errorf("%d writes, %d bytes", d.Count(OpWrite), d.Bytes())
		}
	}
}

// TestRot: a flipped byte is one, and a rotten sector has no byte as it was.
func TestRot(t *testing.T) {
	d, f := made(t, Options{}, 2*pageSize, buffered)
	put(t, f, aligned(2*pageSize, 'a'), 0)
	if d.Flip("f", 1, 1) == nil {
		t.Error("a page on which a write is pending has rotted")
	}
	must(t, f.Sync())
	was := d.Clone()
	must(t, d.Flip("f", pageSize+1, 4))
	b := contents(t, d, "f")
	if b[pageSize+1] != 'a'^4 || bytes.Count(b, []byte("a")) != len(b)-1 {
		t.Error("a flip has done something else")
	}
	must(t, d.RotSector("f", 700))
	if got := bytes.Count(get(t, d, direct, pageSize, 0), []byte("a")); got != pageSize-sectorSize {
		t.Errorf("%d bytes are as they were", got)
	}
	must(t, d.ZeroSector("f", 0))
	if got := runs(contents(t, d, "f"))[:4]; got != ".?aa" {
		t.Errorf("it has %s", got)
	}
	if !bytes.Equal(contents(t, was, "f"), aligned(2*pageSize, 'a')) {
		t.Error("the copy has rotted, too")
	}
	if d.Flip("f", 2*pageSize, 1) == nil || d.Flip("g", 0, 1) == nil {
		t.Error("what is not there has rotted")
	}
	d.Put("f", []byte("hello"))
	if got := contents(t, d.Crash(0), "f"); string(got) != "hello" {
		t.Errorf("it has %q", got)
	}
	d.Lose("f")
	if len(d.Names()) != 0 {
		t.Error("a lost file is there")
	}
}
