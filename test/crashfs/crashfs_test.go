package crashfs

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestPowerCutBesideCalls: cuts of the power beside the calls that deadlock with them in a
// vfs.MemFS. With one of those calls taken out of Disk the test does not come to its end.
func TestPowerCutBesideCalls(t *testing.T) {
	d := New()
	create(t, d, "a")
	create(t, d, "log")
	var wg sync.WaitGroup
	stop := make(chan struct{})
	call := func(f func(i int) error) {
		wg.Go(func() {
			for i := range 20_000 {
				if err := f(i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	call(func(i int) error { return d.Link("a", fmt.Sprint("b", i)) })
	call(func(int) error {
		l, err := d.Lock("lock")
		if err != nil {
			return err
		}
		return l.Close()
	})
	call(func(i int) error {
		from, to := "log", "log2"
		if i%2 == 1 {
			from, to = to, from
		}
		f, err := d.ReuseForWrite(from, to, vfs.WriteCategoryUnspecified)
		if err != nil {
			return err
		}
		return f.Close()
	})
	cuts := 0
	cutter := make(chan struct{})
	go func() {
		defer close(cutter)
		for {
			select {
			case <-stop:
				return
			default:
				d.CrashClone(vfs.CrashCloneCfg{})
				cuts++
			}
		}
	}()
	done := make(chan struct{})
	go func() { wg.Wait(); close(stop); <-cutter; close(done) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("a call and a cut of the power wait for each other")
	}
	if cuts == 0 {
		t.Error("the power was never cut")
	}
}

// TestUnsyncedIsGone: a file that was not synced is not there after a cut, one that was is.
func TestUnsyncedIsGone(t *testing.T) {
	d := New()
	create(t, d, "synced")
	dir, err := d.OpenDir("")
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Sync(); err != nil {
		t.Fatal(err)
	}
	create(t, d, "unsynced")
	after := d.CrashClone(vfs.CrashCloneCfg{})
	names, err := after.List("")
	if err != nil || len(names) != 1 || names[0] != "synced" {
		t.Errorf("%q, %v", names, err)
	}
	if _, err := d.Stat("unsynced"); err != nil {
		t.Errorf("the disk itself: %v", err)
	}
}

func create(t *testing.T, d *Disk, name string) {
	t.Helper()
	f, err := d.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
