package main

import (
	"fmt"
	"io"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A constant of the code that the page computes with. TestConstants finds its line in the
// file, so the page cannot say what the code has left behind.
type constant struct {
	name  string
	value string
	file  string // below the root
	line  string // that sets it, as it stands there, spaces apart
	what  string
}

func constants() []constant {
	return []constant{
		{"layout.ItemHeaderSize", fmt.Sprintf("%d B", layout.ItemHeaderSize), "store/layout/item.go", "ItemHeaderSize = offItemSum + wordSize", "before key and value of an item; the place is the next of `layout.ClassSize`"},
		{"layout.BucketSlots", fmt.Sprintf("%d in %d B", layout.BucketSlots, layout.BucketSize), "store/layout/bucket.go", "BucketSlots = BucketSize/wordSize - 1", "keys of a bucket of the index"},
		{"layout.SegmentBytes", fmt.Sprintf("%d to %d KiB", layout.SegmentBytes(0)>>10, layout.SegmentBytes(layout.SegmentSteps-1)>>10), "store/layout/bucket.go", "SegmentSteps = 4", "a segment of the index, which splits when the largest is full"},
		{"layout.DirCachePages", fmt.Sprint(layout.DirCachePages), "store/layout/dir.go", "const DirCachePages = 4096", "pages of directories that a client keeps of one node, 4 KiB each"},
		{"places.setBytes", fmt.Sprintf("%d B for %d", placesSet, placesWays), "client/internal/places/cache.go", "const setBytes = 64", "a set of the location cache"},
		{"client.DefaultCacheEntries", fmt.Sprint(client.DefaultCacheEntries), "client/config.go", "DefaultCacheEntries = 2_000_000", "of one node, if the program asks for so many keys"},
		{"client.DefaultMaxInflight", fmt.Sprint(client.DefaultMaxInflight), "client/config.go", "DefaultMaxInflight  = 64", "requests of a session; each has a buffer to send from and one to receive in"},
		{"session.MessageSize", fmt.Sprintf("%d B", messageSize), "client/internal/session/slots.go", "const MessageSize = 16<<10 + 256", "such a buffer of a client"},
		{"device.SpareReceives", fmt.Sprint(spareReceives), "client/internal/device/device.go", "SpareReceives   = 1 + UnaskedReceives", "more of them to receive in"},
		{"device.minBlock", fmt.Sprintf("%d KiB", minBlock>>10), "client/internal/device/pool.go", "const minBlock = 256 << 10", "the first block of memory that READs of a node land in, of its own for each size of buffer"},
		{"Config.RequestSize", fmt.Sprintf("%d KiB", requestSize>>10), "internal/server/config.go", "def(&c.RequestSize, 16<<10)", "a receive of the server"},
		{"Config.InitialCredits", fmt.Sprint(initialCredits), "internal/server/config.go", "def(&c.InitialCredits, min(8, c.Credits))", "receives that a session begins with, and one for a Ping"},
		{"Config.Credits", fmt.Sprint(credits), "internal/server/config.go", "def(&c.Credits, 64)", "to which it grows if it has to wait"},
		{"Config.ReceiveBytes", fmt.Sprintf("%d MiB", receiveBytes>>20), "internal/server/config.go", "def(&c.ReceiveBytes, 256<<20)", "all receives of a node"},
		{"Config.Keepalive", fmt.Sprint(keepalive), "internal/server/config.go", "def(&c.Keepalive, 5*time.Second)", "after which a silent client sends a Ping"},
		{"session.MaxReadDepth", fmt.Sprint(readDepth), "internal/server/session/rail.go", "MaxReadDepth = 16", "READs of one client's large puts"},
		{"lease", fmt.Sprint(lease), "store/config.go", "c.Lease = cmp.Or(c.Lease, 2*time.Second)", "`lease` of the configuration"},
		{"session.MaxTick", fmt.Sprint(maxTick), "client/internal/session/tick.go", "const MaxTick = 100 * time.Millisecond", "how often a client looks at a session"},
		{"client.DefaultLeaseKeep", fmt.Sprint(client.DefaultLeaseKeep), "client/config.go", "DefaultLeaseKeep    = time.Minute", "for how long after a get a client keeps its lease"},
		{"max_sessions", fmt.Sprint(maxSessions), "config.yaml", fmt.Sprintf("max_sessions: %d", maxSessions), "sessions of a node"},
		{"cluster.MaxMeta", "200 B", "internal/cluster/member.go", "const MaxMeta = 200", "metadata of a member, at most"},
		{"membership.hurryNodes", fmt.Sprint(hurryNodes), "membership/tables.go", "hurryNodes = 5", "members that hear of a new table at once"},
		{"membership.maxPush", fmt.Sprintf("%d MiB", maxPush>>20), "membership/message.go", "maxPush   = 1 << 20", "tables in a push/pull"},
		{"GossipInterval", fmt.Sprint(gossipInterval), "membership/config.go", "c.GossipInterval = 100 * time.Millisecond", "between rounds of gossip, to 3 members each (memberlist), in which news is repeated"},
		{"bumpEvery", "1s", "internal/server/space/beat.go", "bumpEvery = time.Second", "how often clients are told that the cluster has changed, at most"},
	}
}

func constantsTable(w io.Writer, _ *results) error {
	l := &lines{w: w}
	l.say("| constant | value | what |")
	l.say("|---|---|---|")
	for _, c := range constants() {
		l.say("| `%s` | %s | %s |", c.name, c.value, c.what)
	}
	return l.err
}
