package soft

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"sync"
)

// Keys draws the keys of regions. A key is a capability of 32 bits: a peer must not
// be able to guess it, and it never comes back within a process, because a stale key
// must be a fault and never lead to another owner's memory.
//
// Drawing random numbers and remembering every used one would do, at four bytes for
// each registration ever made. Instead the n-th key is P(n) for a secret permutation
// P of the 32-bit numbers: a permutation maps different n to different values, so
// uniqueness needs no memory and no search. P is a Feistel network of keyRounds
// rounds over two halves of 16 bits, its round function AES-128 under a key from
// crypto/rand; ten rounds is what the format-preserving ciphers of NIST SP 800-38G
// use or fall short of. Without the AES key the next key looks like any of those not
// yet seen.
type Keys struct {
	mu    sync.Mutex
	block cipher.Block
	next  uint32
	used  uint64 // keys drawn, to know when all are
}

const keyRounds = 10

// ProcessKeys returns the keys of this process, which all fabrics draw from: the
// promise "never again" is made for the process. It is the one value of this package
// that belongs to the process, and holds no channel, timer or goroutine, so that a
// bubble of testing/synctest may use what another one has made.
var ProcessKeys = sync.OnceValue(NewKeys)

// NewKeys returns a sequence of its own.
func NewKeys() *Keys {
	var seed [16 + 4]byte
	_, _ = rand.Read(seed[:]) // since Go 1.24 it cannot fail, it ends the process
	block, err := aes.NewCipher(seed[:16])
	if err != nil {
		panic("soft: AES-128 refused a key of 16 bytes: " + err.Error())
	}
	return &Keys{block: block, next: binary.LittleEndian.Uint32(seed[16:])}
}

// Draw returns a new key, never 0; ok is false once all of them are used up.
func (s *Keys) Draw() (key uint32, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.used < 1<<32 {
		key = s.permute(s.next)
		s.next++
		s.used++
		if key != 0 {
			return key, true
		}
	}
	return 0, false
}

// Peek returns the key that the next Draw would give, or 0. It is for tests in which
// a peer has guessed right.
func (s *Keys) Peek() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.permute(s.next)
}

// permute is P.
func (s *Keys) permute(n uint32) uint32 {
	l, r := uint16(n>>16), uint16(n)
	var b [aes.BlockSize]byte
	for round := range byte(keyRounds) {
		b = [aes.BlockSize]byte{0: round, 1: byte(r >> 8), 2: byte(r)}
		s.block.Encrypt(b[:], b[:])
		l, r = r, l^binary.LittleEndian.Uint16(b[:])
	}
	return uint32(l)<<16 | uint32(r)
}

// Numbers hands out the numbers of queue pairs: 24 bits, as on every fabric, and
// unique among those that live. A completion names its QP by the number, and a
// program that shares a receive queue has nothing else to tell senders apart. If a
// number were given out twice, one peer's messages could pass for another's.
//
// Numbers are taken in turn, so that a number that was given back is reused as late
// as possible: completions of its last owner may still be in a CQ.
type Numbers struct {
	mu   sync.Mutex
	last uint32
	used map[uint32]struct{}
}

const (
	// 0 and 1 are special queue pairs elsewhere.
	firstQPN = 2
	lastQPN  = 1<<24 - 1
)

// Take returns a number that no living QP has, or false if there is none.
func (n *Numbers) Take() (uint32, bool) {
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

// Drop gives a number back.
func (n *Numbers) Drop(num uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.used, num)
}
