//go:build linux

package shm

import (
	"sync/atomic"

	"github.com/rdmakv/rdmakv/rdma/internal/memfd"
)

// This file is the memory of a connection: two halves, one for each direction
// (doc.go has the drawing). The acceptor makes it, the dialer maps it. Both may
// write all of it, so neither trusts anything in it.
const (
	offTail   = 0   // producer: bytes ever written to the ring
	offHead   = 128 // consumer: bytes ever taken out
	offAsleep = 256 // consumer: 1 = wake me when something comes
	offFull   = 384 // producer: 1 = wake me when there is room
	offBye    = 512 // producer: why it has ended the connection
	offSlots  = 4096

	slotCount = 4096
	offRing   = offSlots + 8*slotCount
	ringSize  = 128 << 10
	halfSize  = offRing + ringSize

	channelSize = 2 * halfSize
)

// A half is one direction, as both ends see it. The words stand in cache lines
// of their own, two apart: adjacent lines are fetched together.
type half struct {
	tail, head, asleep, full, bye *atomic.Uint64
	slots                         []atomic.Uint64 // of regions of the producer: rkey and slotValid, or 0
	ring                          []byte
}

// slotValid marks the word of a region that may be read.
const slotValid = 1 << 32

// A channel is the memory of one connection.
type channel struct {
	mem     []byte
	out, in half
}

// newChannel lays a channel over its memory.
func newChannel(pages []byte, dialer bool) *channel {
	a, b := halfAt(pages[:halfSize]), halfAt(pages[halfSize:])
	if !dialer {
		a, b = b, a
	}
	return &channel{mem: pages, out: a, in: b}
}

func halfAt(pages []byte) half {
	return half{
		tail: wordAt(pages, offTail), head: wordAt(pages, offHead), asleep: wordAt(pages, offAsleep),
		full: wordAt(pages, offFull), bye: wordAt(pages, offBye),
		slots: wordsAt(pages, offSlots, slotCount),
		ring:  pages[offRing:halfSize],
	}
}

// reset sets the words of a fresh channel: both consumers sleep.
func (c *channel) reset() {
	c.out.asleep.Store(1)
	c.in.asleep.Store(1)
}

func (c *channel) unmap() error { return memfd.UnmapSealed(c.mem) }
