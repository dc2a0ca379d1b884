// Package warm has a store begin with the memory that the life before has left, where that outlives its process (region.Keeper).
//
// The record is what one life tells the next beside its memory: which incarnations wrote the items, under which seed keys are hashed, and above
// which versions and times the next life has to begin. It has two places, each with a checksum of its own. Every change is written to both, one after the other,
// before anybody depends on it: a process that ends in the middle of a write leaves the other place, and damage to one place leaves the other, which
// says the same.
//
//	record   0 │ first place    2048 │ second place       the valid one with the higher number counts
//	place    0 │ magic and format │ number │ fingerprint │ seed │ shards │ first version that is free │ bound of the clock │ incarnations
//
// Look decides whether memory can be used at all, by the record and the headers of the regions; the shards' indexes are put together again by
// store/index, item memory by store/slab; and then items are believed one by one (store/internal/shard, Left), by whoever asks for them, and by
// Pass, which goes through all of them.
//
// What was left is hostile until it was checked. Whatever is wrong with it costs keys, never an answer: a cache may lose keys at any time.
package warm
