//go:build linux

package shm

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"sync"
)

// Keys are capabilities: 32 bits that a peer must not be able to guess, and
// that never come back within a process, so that a stale one is a fault and
// never somebody else's memory.
//
// Drawing random numbers and remembering every used one would do, at four
// bytes for each registration ever made. Instead the n-th key is P(n) for a
// secret permutation P of the 32-bit numbers: a permutation maps different n to
// different values, so uniqueness needs no memory and no search. P is a Feistel
// network of keyRounds rounds over two halves of 16 bits, its round function
// AES-128 under a key from crypto/rand; ten rounds is what the format-preserving
// ciphers of NIST SP 800-38G use or fall short of. Without the key the next
// key looks like any of those not yet seen.
const keyRounds = 10

type keySource struct {
	mu    sync.Mutex
	block cipher.Block
	next  uint32
	used  uint64 // keys drawn, to know when all are
}

// processKeys is the one value in this package that belongs to the process
// and not to a Fabric: the promise "never again" is made for the process.
var processKeys = sync.OnceValue(newKeySource)

func newKeySource() *keySource {
	var seed [16 + 4]byte
	_, _ = rand.Read(seed[:]) // since Go 1.24 it cannot fail, it ends the process
	block, err := aes.NewCipher(seed[:16])
	if err != nil {
		panic("shm: AES-128 refused a key of 16 bytes: " + err.Error())
	}
	return &keySource{block: block, next: binary.LittleEndian.Uint32(seed[16:])}
}

// draw returns a new key, never 0; ok is false once all of them are used up.
func (s *keySource) draw() (key uint32, ok bool) {
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

// permute is P.
func (s *keySource) permute(n uint32) uint32 {
	l, r := uint16(n>>16), uint16(n)
	var b [aes.BlockSize]byte
	for round := range byte(keyRounds) {
		b = [aes.BlockSize]byte{0: round, 1: byte(r >> 8), 2: byte(r)}
		s.block.Encrypt(b[:], b[:])
		l, r = r, l^binary.LittleEndian.Uint16(b[:])
	}
	return uint32(l)<<16 | uint32(r)
}
