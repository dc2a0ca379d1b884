// Package store is one node's key-value store: an order of writes per shard,
// Pebble as the durable truth, and the registered memory that clients read by
// themselves. It knows no fabric: it is handed memory (region.Memory) and
// never learns who reads it.
//
// The way of a write, and the file that tells of each step:
//
//	Submit      submit.go   bounded by bytes and number in flight (internal/admit)
//	  order     internal/pipeline  under the shard's lock: version, memory, overlay;
//	                        conditions are judged here (internal/shard, internal/flight), retries
//	                        known (internal/dedup), the time stamped in (internal/clock)
//	  commit    direct.go   one goroutine: queued writes of all shards -> one change
//	                        (internal/disk: keys, their expiries, results of requests)
//	  publish   internal/shard  one goroutine: fsync over -> pending, kill, swing, live
//	Done                    the caller may say it happened
//
// internal/pipeline runs the last three, and knows nothing of disk and memory:
// direct.go hands it what they are. internal/disk alone reaches Pebble.
//
// What is asked by SEND is answered by internal/reads, which a Store embeds. What goes on by
// itself is done by internal/residents, which orders no write, and by internal/upkeep, which
// changes things by writes alone. Their goroutines live as long as a base.Life says.
//
// A comment names the rule that it speaks of in parentheses, as in (put-order): the table
// in docs/correctness.md says what each of them is, and which test finds it broken.
//
// Each shard has three marks, ordered >= durable >= published (internal/shard).
// Nothing leaves the store - no value, no "not found", no page of a scan -
// before published has reached the newest write it reflects. Under the sync
// policy Always, published implies durable: what a client sees, even
// one-sidedly, outlives a crash. Interval and Off give that up: a crash, of the
// process too, may lose acknowledged writes of the last SyncInterval (Interval)
// or second (Off; more if the machine crashes while the disk is behind); what is
// left is still a prefix of the order, and nothing is half there.
//
// After the commit nothing may fail. Memory is reserved before; where there is
// none the key goes without a slot, which its bucket's header counts, and is
// answered out of Pebble.
//
// Open serves at once. Until a shard has been filled from Pebble (internal/residents) all
// its headers say "ask", so that no miss is believed.
package store
