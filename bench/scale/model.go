package main

import (
	"math"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/region"
)

// What the page computes. Constants that packages export are taken from there; the others
// are written down here, and TestConstants holds them to the code.
const (
	// Of a client, client/internal: places (a set of the location cache), session
	// (MessageSize), device (SpareReceives).
	placesSet, placesWays = 64, 7
	messageSize           = 16<<10 + 256
	spareReceives         = 3
	minBlock              = 256 << 10 // of device: a block of memory that READs land in
	// Of a session on the server, internal/server: Config and SessionConfig.
	requestSize, initialCredits, credits, receiveBytes = 16 << 10, 8, 64, 256 << 20
	readDepth                                          = 16
	lease, keepalive                                   = 2 * time.Second, 5 * time.Second
	// maxTick is client/internal/session.MaxTick.
	maxTick = 100 * time.Millisecond
	// Of membership, profile lan, and memberlist.
	probeInterval, gossipInterval = time.Second, 100 * time.Millisecond
	pushPullInterval              = 30 * time.Second
	gossipNodes, hurryNodes       = 3, 5
	suspicionMult, suspicionMax   = 4, 6
	retransmitMult                = 4
	pushPullThreshold             = 32 // memberlist: up to which number the interval is not stretched
	maxPush                       = 1 << 20

	// A card's tables: an entry of its translation table is a page's address
	// (struct mlx5_mtt in include/linux/mlx5/device.h of Linux).
	mttEntry = 8
)

// itemBytes is the place that a key of 16 B with a value of 64 B takes.
func itemBytes() int {
	class, _ := layout.ClassFor(layout.ItemHeaderSize + keyBytes + valueBytes)
	return layout.ClassSize(class)
}

// regionsFor is how many regions of items a limit allows, and their size.
func regionsFor(limit uint64) (n int, size uint64) {
	size, _ = region.SizesFor(limit)
	return int((limit + size - 1) / size), size
}

// translations is how many bytes of a card's table memory takes with pages of a size.
func translations(bytes, page uint64) uint64 { return (bytes + page - 1) / page * mttEntry }

// cacheBytes is what a location cache of so many entries takes at most.
func cacheBytes(entries int) int { return (entries + placesWays - 1) / placesWays * placesSet }

// zipf is the share of gets that go to the most wanted of all keys, by a Zipfian choice
// of 0.99: what a cache that knew the future would hit. The sum over a power is its
// integral from where the first hundred terms end.
func zipf(wanted, all float64) float64 { return harmonic(wanted) / harmonic(all) }

func harmonic(n float64) (sum float64) {
	const s, exact = 0.99, 100
	for i := 1.0; i <= min(n, exact); i++ {
		sum += math.Pow(i, -s)
	}
	if n > exact {
		sum += (math.Pow(n+0.5, 1-s) - math.Pow(exact+0.5, 1-s)) / (1 - s)
	}
	return sum
}

// dirPages is how many pages of directories a client caches at most for so many segments,
// of shards that are alike.
func dirPages(segments, shards int) int {
	each := max(1, (segments+shards-1)/shards)
	entries := 1
	for entries < each {
		entries *= 2
	}
	return min(shards*((entries+layout.DirPageEntries-1)/layout.DirPageEntries), layout.DirCachePages)
}

// sessionMemory is the registered memory of one session on the server that has a receive
// queue of its own, and of one on the client. Both are mapped whole and resident as far as
// they were used.
func sessionMemory() (server, client_ int) {
	slots := client.DefaultMaxInflight + 1
	return (initialCredits + 1) * requestSize, (slots + slots + spareReceives) * messageSize
}

// sessionsOf is how many sessions one of so many fabrics of a node takes, if they stay idle: the
// fabrics share the receives, sessions begin with all their first ones until half of them
// are in use, and then with one, and one for a Ping (internal/server/session: scarce, hello).
func sessionsOf(fabrics int) int {
	half := receiveBytes / requestSize / fabrics / 2
	return half/(initialCredits+1) + half/2
}

// beats is how many READs of the beat a session makes in a second whose program has made a
// get not long ago. The watch finds it due at the first tick after a third of the lease,
// and the keeper READs it at the next one.
func beats() float64 {
	ticks := math.Ceil(float64(lease/3)/float64(maxTick)) + 1
	return 1 / (time.Duration(ticks) * maxTick).Seconds()
}

// pushPull is how often a member of a cluster of n does a push/pull (memberlist's
// pushPullScale).
func pushPull(n int) time.Duration {
	if n <= pushPullThreshold {
		return pushPullInterval
	}
	return time.Duration(math.Ceil(math.Log2(float64(n))-math.Log2(pushPullThreshold))+1) * pushPullInterval
}

// memberEntry is what memberlist says of a member beside name and metadata, in a push/pull
// (pushNodeState) and as much in a broadcast: msgpack with the names of the fields.
const memberEntry = 73

// stateBytes is one way of a push/pull: memberlist's list of members, and ours (digests,
// tables as far as they fit, lives).
func stateBytes(n, id, meta, table int) int {
	// A statement (membership/life.go) has the names of the node and its address, too.
	const entry, digest, statement = memberEntry, 32, 16 + 8*3 + 2 + 16
	const addr = len("127.0.0.1:12345")
	return n*(entry+id+meta+digest+statement+id+addr) + min(maxPush, n*(4+table))
}

// repeats is how often a member sends one piece of news (memberlist's retransmitLimit).
func repeats(n int) int { return retransmitMult * int(math.Ceil(math.Log10(float64(n+1)))) }

// newsBytes is what a member sends of a new table that fits a packet: the table to a few at
// once, and in rounds the table and the metadata, which has its version.
func newsBytes(n, id, meta, table int) int {
	return hurryNodes*(1+table) + repeats(n)*(1+table+memberEntry+id+meta)
}

// suspicion is for how long a member that does not answer is suspected before it counts
// as dead: between these, the sooner the more others suspect it, too.
func suspicion(n int) (least, most time.Duration) {
	scale := max(1, math.Log10(float64(n)))
	least = time.Duration(suspicionMult * scale * float64(probeInterval))
	return least, suspicionMax * least
}
