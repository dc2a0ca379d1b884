package region

import (
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/store/layout"
)

// Memory hands out registered memory. The server implements it over its
// fabrics, tests over the Go heap.
type Memory interface {
	// Alloc returns exactly size bytes for region id: zeroed, starting on an
	// 8-byte boundary, and registered REMOTE_READ with every fabric before it
	// returns. The memory belongs to the table until Free(id). Alloc may be
	// called from any goroutine; calls never overlap. It may take seconds.
	Alloc(id uint32, kind layout.RegionKind, size int) ([]byte, error)
	// Free deregisters and releases region id. Called once for each region
	// that Alloc returned: when its time is over (retire.go), or when the table
	// is closed.
	Free(id uint32) error
}

// Defaults for the fields of Config that are zero.
const (
	DefaultLimit          = 1 << 30
	DefaultReclaimEntries = 4096
)

// These bound the sizes of regions that SizesFor chooses.
const (
	minSize      = 2 << 20 // a huge page
	maxSize      = 1 << 30 // unless there would be more than maxChosen
	maxIndexSize = 128 << 20
	maxChosen    = 64 // regions of items: each is a registration, and an entry of gossip
)

// SizesFor returns the sizes of items and of index regions that suit a limit on all
// regions together, bytes: an eighth of the limit and an eighth of that, as powers of
// two, so that a region fits into huge pages and memory grows in steps of an eighth. A
// store of 1 GiB has regions of 128 MiB and of 16 MiB. They are what a Config without
// sizes gets.
func SizesFor(limit uint64) (items, index uint64) {
	items = minSize
	for items < maxSize && 2*items <= limit/8 {
		items *= 2
	}
	for limit/items > maxChosen {
		items *= 2
	}
	return items, max(minSize, min(items/8, maxIndexSize))
}

// maxRegions bounds the region table that clients are handed.
const maxRegions = 1 << 16

// Config says what a table is made of. Sizes are bytes and are rounded up to
// layout.RegionGranule; zero means the default, which for the sizes of regions is that
// of SizesFor.
type Config struct {
	Memory      Memory // required
	Incarnation uint64 // random per open, not 0
	Seed        uint64 // of the key hash
	Shards      int    // 1..4096

	RegionSize      uint64 // of an items region; larger for an item that needs it
	IndexRegionSize uint64 // of an index region; larger for a directory that needs it
	Limit           uint64 // of all regions together
	ItemsLimit      uint64 // of items regions; default Limit
	IndexLimit      uint64 // of index regions; default Limit
	ReclaimEntries  int    // ring of retired pages that a client can still ask for
	Cells           int    // of replicas of groups, 0..layout.MaxCells

	// Left are regions of an earlier life, as CheckLeft has returned them, that the table begins with; Memory is a Keeper then. Their
	// pages have no owner: Claim and slab.Slabs.Claim give them one.
	Left []LeftRegion

	// OnView, if not nil, is called after each change of the view, with no lock
	// held, on the goroutine that made it. It must not block.
	OnView func()
}

// withDefaults fills in zeros, rounds and checks. Every fault is reported.
func (c Config) withDefaults() (Config, error) {
	setDefault(&c.Limit, DefaultLimit)
	items, index := SizesFor(c.Limit)
	setDefault(&c.RegionSize, items)
	setDefault(&c.IndexRegionSize, index)
	setDefault(&c.ItemsLimit, c.Limit)
	setDefault(&c.IndexLimit, c.Limit)
	if c.ReclaimEntries == 0 {
		c.ReclaimEntries = DefaultReclaimEntries
	}
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("region: "+format, args...)) }
	if c.Memory == nil {
		fault("Config.Memory is nil: nobody to ask for memory")
	}
	if c.Incarnation == 0 {
		fault("Config.Incarnation is 0: it must be random and not 0, or old places would verify")
	}
	if c.Shards < 1 || c.Shards > layout.MaxShards {
		fault("Config.Shards is %d: need 1 to %d", c.Shards, layout.MaxShards)
	}
	if c.ReclaimEntries < 1 || c.ReclaimEntries > 1<<20 {
		fault("Config.ReclaimEntries is %d: need 1 to %d", c.ReclaimEntries, 1<<20)
	}
	if c.Cells < 0 || c.Cells > layout.MaxCells {
		fault("Config.Cells is %d: need 0 to %d", c.Cells, layout.MaxCells)
	}
	for _, s := range []struct {
		name string
		size uint64
	}{{"RegionSize", c.RegionSize}, {"IndexRegionSize", c.IndexRegionSize}, {"Limit", c.Limit}} {
		if s.size > placeSpace {
			fault("Config.%s is %d bytes: the place space holds %d", s.name, s.size, uint64(placeSpace))
		}
	}
	c.RegionSize = roundUp(c.RegionSize, layout.RegionGranule)
	c.IndexRegionSize = roundUp(c.IndexRegionSize, layout.RegionGranule)
	return c, errors.Join(faults...)
}

func setDefault(v *uint64, d uint64) {
	if *v == 0 {
		*v = d
	}
}

// roundUp rounds n up to a multiple of unit.
func roundUp(n, unit uint64) uint64 { return (n + unit - 1) / unit * unit }

// ErrNoMemory: the limit is reached, or the system gave no memory. The error
// itself is a *NoMemoryError with the numbers.
var ErrNoMemory = errors.New("out of registered memory")

// ErrGrowing: memory for this is being registered at this moment. A caller that
// asks again when that is done finds room, unless others were faster.
var ErrGrowing = errors.New("registered memory is being added")

// NoMemoryError says what was asked for and what prevented it. It matches
// ErrNoMemory, and Cause when the Memory refused.
type NoMemoryError struct {
	Kind  layout.RegionKind // of the memory asked for
	Want  uint64            // bytes asked for
	InUse uint64            // bytes of all regions at that moment
	Limit uint64            // bytes, from Config
	Cause error             // what Memory.Alloc said; nil at the limit
}

// Error names the numbers and what to do about them.
func (e *NoMemoryError) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("out of registered memory: %d bytes for %v refused with %d of %d bytes in use: %v",
			e.Want, e.Kind, e.InUse, e.Limit, e.Cause)
	}
	return fmt.Sprintf("out of registered memory: %d bytes for %v with %d of %d bytes in use: raise the memory limit or delete keys",
		e.Want, e.Kind, e.InUse, e.Limit)
}

// Unwrap makes errors.Is find ErrNoMemory and the cause.
func (e *NoMemoryError) Unwrap() []error {
	if e.Cause != nil {
		return []error{ErrNoMemory, e.Cause}
	}
	return []error{ErrNoMemory}
}
