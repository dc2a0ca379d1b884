package store

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

// powerCuts keeps what a disk would have if the power were cut before a call that changes it: before each every-th one
// of those that come between begin and end. Of what is not synced the crashes have all and nothing in turn.
//
// The log and Pebble go on behind the calls of a test, so a call of theirs may come before begin or behind end, or
// during either. Everything is behind the lock for this reason; end returns when no call can add a crash any more.
type powerCuts struct {
	disk  *crashfs.Disk
	every int

	mu    sync.Mutex
	on    bool
	calls int
	left  map[string]*crashfs.Disk // by what was about to be called
	rng   *rand.Rand
}

// newPowerCuts has a disk of its own.
func newPowerCuts(every int) *powerCuts {
	return &powerCuts{disk: memFS(), every: every, left: make(map[string]*crashfs.Disk), rng: rand.New(rand.NewPCG(1, 1))}
}

// config is that of a store on the disk, with a small log, because the disk is copied with all its files.
func (p *powerCuts) config() Config {
	c := alone(errorfs.Wrap(p.disk, p))
	c.LogBytes = MinLogBytes
	return c
}

// String is for the errorfs.Injector.
func (p *powerCuts) String() string { return "power cuts" }

// MaybeError is called before each call of the disk. It returns no error.
func (p *powerCuts) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpFileClose || op.Kind == errorfs.OpLock {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.on {
		return nil
	}
	if p.calls++; p.calls%p.every == 0 {
		name := fmt.Sprintf("call %d, %v of %s", p.calls, op.Kind, op.Path)
		p.left[name] = p.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100 * (len(p.left) % 2), RNG: p.rng})
	}
	return nil
}

// begin says that the calls of interest come.
func (p *powerCuts) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.on = true
}

// end returns the crashes, and one more, "when it returns", which has what is synced now.
func (p *powerCuts) end() map[string]*crashfs.Disk {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.on = false
	p.left["when it returns"] = p.disk.CrashClone(vfs.CrashCloneCfg{})
	return p.left
}
