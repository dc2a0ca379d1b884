package store

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rdmakv/rdmakv/test/crashfs"
)

// TestCrashWithoutLedger cuts the power before every call of the start of a
// store that has no ledger: an older program wrote it, or its operator took the
// ledger away. The ledger that this start begins must not speak against what
// the crash left.
func TestCrashWithoutLedger(t *testing.T) {
	disk := crashfs.New()
	config := func(fs vfs.FS) Config {
		c := testConfig(fs)
		c.PredecessorGone, c.noKeeper = true, true
		return c
	}
	n := open(t, config(disk))
	n.put(1, "k", "value")
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if err := disk.Remove("/store/LEDGER"); err != nil {
		t.Fatal(err)
	}
	if err := syncNames(disk, "/store"); err != nil {
		t.Fatal(err)
	}
	type crash struct {
		disk *crashfs.Disk
		what string
	}
	var mu sync.Mutex
	var crashes []crash
	opening := true
	n = open(t, config(errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if opening && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpFileClose && op.Kind != errorfs.OpLock {
			clone := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(1, uint64(len(crashes))))})
			crashes = append(crashes, crash{clone, fmt.Sprintf("%v of %s", op.Kind, op.Path)})
		}
		return nil
	}))))
	mu.Lock()
	opening = false
	mu.Unlock()
	n.want(1, "k", "value")
	if len(crashes) < 20 {
		t.Errorf("only %d calls", len(crashes))
	}
	for i, c := range crashes {
		n, err := tryOpen(t, config(c.disk))
		if err != nil {
			t.Errorf("crash before call %d, %s: %v", i, c.what, err)
			continue
		}
		n.want(1, "k", "value")
		n.Close()
	}
}
