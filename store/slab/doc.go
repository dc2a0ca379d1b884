// Package slab keeps the items' memory: pages of one size class for small items,
// spans of whole 4 KiB pages for large ones.
//
//	items region   ┌────────┬───────────┬─────────────┬─────────────┬───────┬────┐
//	               │ header │ spans or  │ page 64 KiB │ page 64 KiB │ span  │ …  │
//	               │ 4 KiB  │ free      │ class 18    │ class 5     │       │    │
//	               └────────┴───────────┴─────────────┴─────────────┴───────┴────┘
//	page           ┌─────────┬─────────┬─────────┬─ … ─┬─────────┬──────┐
//	               │ place 0 │ place 1 │ place 2 │     │ place n │ rest │
//	               └─────────┴─────────┴─────────┴─ … ─┴─────────┴──────┘
//
// A freed place may be used at once for another item of the same class: the order
// of a put (pending, kill, swing, live) and self-verifying items make that safe.
// Memory that changes class must take a longer way, because bytes chosen by an
// attacker could then lie where a client's location cache has an item:
//
//	in a class ──empty──▶ checksum of every place destroyed ──▶ listed, version
//	    ▲                                                       in the beat
//	    │                                                          │
//	    └── free for any class ◀── a lease (package reclaim) ◀─────┘
//
// Bookkeeping stands on the Go heap: one bit for a place, some words for a page,
// twelve bytes for each 4 KiB unit. Nothing is kept per small item.
//
// The package knows places, not what they are worth. The store, which knows that,
// samples them (sample.go) and frees those that it can do without; for memory of
// another class, or for a large item, it clears a run of memory (clearing.go).
//
// Pages are shared by all shards, so a store with few keys of many sizes has one
// page for each size, not one for each size and shard.
//
// Read slabs.go first (the calls), then page.go, span.go and space.go (where
// places come from); pressure.go, clearing.go and idle.go give memory back.
package slab
