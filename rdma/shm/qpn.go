//go:build linux

package shm

import "sync"

// qpNumbers hands out the numbers of queue pairs: 24 bits, as everywhere, and
// unique among those that live. A completion names its QP by the number, and a
// program that shares a receive queue has nothing else to tell senders apart:
// were a number given out twice, one peer's messages could pass for another's.
//
// Numbers are taken in turn, so one that was given back rests as long as it
// can: completions of its last owner may still be in a CQ.
type qpNumbers struct {
	mu   sync.Mutex
	last uint32
	used map[uint32]struct{}
}

const (
	// 0 and 1 are special queue pairs elsewhere.
	firstQPN = 2
	lastQPN  = 1<<24 - 1
)

// take returns a number that no living QP has; false if there is none.
func (n *qpNumbers) take() (uint32, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.used == nil {
		n.used = make(map[uint32]struct{})
	}
	if len(n.used) > lastQPN-firstQPN {
		return 0, false
	}
	for {
		if n.last++; n.last < firstQPN || n.last > lastQPN {
			n.last = firstQPN
		}
		if _, taken := n.used[n.last]; !taken {
			n.used[n.last] = struct{}{}
			return n.last, true
		}
	}
}

// drop gives a number back.
func (n *qpNumbers) drop(num uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.used, num)
}
