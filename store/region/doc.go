// Package region keeps the registered memory of one store: the regions, the
// place space they lie in, and the view of them that clients are given.
//
// A region is the unit of registration: one contiguous piece of memory with one
// rkey, of one kind for as long as it lives. Regions lie side by side in the
// store's place space, whose positions are never given to another region within
// an incarnation:
//
//	place space   0             base 1        base 2                 base 3
//	              ┌─────────────┬─────────────┬──────────────────────┬───
//	              │ 0 index     │ 1 items     │ 2 items              │ …
//	              │ root region │             │                      │
//	              └─────────────┴─────────────┴──────────────────────┴───
//
//	region 0      ┌────────┬────────────┬──────────────┬─────────────────┐
//	              │ header │ root table │ reclaim ring │ index memory …  │
//	              │ + beat │ 8 B/shard  │ 32 B/entry   │ in 4 KiB pages  │
//	              └────────┴────────────┴──────────────┴─────────────────┘
//	              0        4096         ReclaimOffset
//
// Every other region is a header page and then pages of its kind.
//
// The package knows no fabric: it is given a Memory that allocates and
// registers. It starts no goroutine and reads no clock. Read config.go first
// (what is asked of the caller), then table.go (place -> memory), extent.go (4
// KiB pages inside a region), indexmem.go (the pages of all indexes), beat.go
// (the live words of region 0), growth.go (regions that come) and retire.go
// (regions that go).
package region
