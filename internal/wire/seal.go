package wire

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
)

// The seal of a message: the last 24 bytes of its header.
//
//	┌sequence┬tag┐
//	└8       ┴16 ┘
//
// Sequence counts the messages of one direction of one session, from 1. Tag is
// AES-256-GMAC (GCM with nothing to encrypt) over the whole message, with zeros
// in place of the tag; the nonce is the direction and the sequence. Each
// direction has a key of its own, which HKDF-SHA256 derives from the secret and
// both private data, nonces included. So a party without the secret cannot change a
// message, leave one out, repeat one, send one again in another session or turn
// one around. The seal hides nothing: messages travel readable.
//
// With no secret there is no key: the sequence counts, the tag is zero.
const (
	SequenceSize = 8
	TagSize      = 16
)

// ErrTampered: the tag or the sequence of a message is wrong. It was changed,
// repeated, left out or made up on the way, or its sender does not know the
// secret.
var ErrTampered = errors.New("wire: message was altered, repeated or made up on the way")

// The first four bytes of a nonce.
const (
	fromClient uint32 = 1
	fromServer uint32 = 2
)

// A Seal is one direction of a session at one of its ends: the sender's Seal
// writes the last fields of the header, the receiver's Open checks them. It is
// not safe for concurrent use: the sender holds the lock under which messages
// are posted, so that they are numbered in the order in which they travel, and
// the receiver is the goroutine that takes in the completions of this queue
// pair.
type Seal struct {
	aead  cipher.AEAD // nil without a secret
	last  uint64      // sequence of the last message
	nonce [4 + SequenceSize]byte
	tag   [TagSize]byte // scratch: what is computed must not lie in the message
}

// NewSeals returns the two directions of a session. connect and accept are the
// private data of both ends, as they travelled.
func NewSeals(secret, connect, accept []byte) (client, server *Seal) {
	client, server = newSeal(fromClient), newSeal(fromServer)
	if len(secret) == 0 {
		return client, server
	}
	hashed := sha256.Sum256(secret)
	salt := append(append(make([]byte, 0, ConnectSize+AcceptSize), connect...), accept...)
	const each = 32
	keys, err := hkdf.Key(sha256.New, hashed[:], salt, "rkv session", 2*each)
	if err == nil {
		if client.aead, err = gcm(keys[:each]); err == nil {
			server.aead, err = gcm(keys[each:])
		}
	}
	if err != nil { // lengths are constants: no input of a peer leads here
		panic("wire: session keys: " + err.Error())
	}
	clear(keys)
	clear(hashed[:])
	return client, server
}

func newSeal(direction uint32) *Seal {
	s := new(Seal)
	binary.LittleEndian.PutUint32(s.nonce[:], direction)
	return s
}

func gcm(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// Seal numbers msg, which is complete, and writes its tag. msg must not be
// changed afterwards, and must be the next message to be posted. Seal does not
// allocate.
func (s *Seal) Seal(msg []byte) {
	s.last++
	binary.LittleEndian.PutUint64(msg[offSequence:], s.last)
	tag := msg[offTag:HeaderSize]
	clear(tag)
	if s.aead != nil {
		copy(tag, s.compute(msg))
	}
}

// Unseal takes the last number back: its message was not posted and never will
// be.
func (s *Seal) Unseal() { s.last-- }

// Open checks that msg is the next message of this direction, unaltered, before
// anything in it is believed. The tag is zero afterwards. Faults: ErrShort,
// ErrTampered. It does not allocate.
func (s *Seal) Open(msg []byte) error {
	if len(msg) < HeaderSize {
		return ErrShort
	}
	if binary.LittleEndian.Uint64(msg[offSequence:]) != s.last+1 {
		return ErrTampered
	}
	s.last++
	var got [TagSize]byte
	tag := msg[offTag:HeaderSize]
	copy(got[:], tag)
	clear(tag)
	want := tag // zeros
	if s.aead != nil {
		want = s.compute(msg)
	}
	if subtle.ConstantTimeCompare(got[:], want) != 1 {
		return ErrTampered
	}
	return nil
}

// compute returns the tag of msg, in which the tag is zero, under number last.
func (s *Seal) compute(msg []byte) []byte {
	binary.LittleEndian.PutUint64(s.nonce[4:], s.last)
	return s.aead.Seal(s.tag[:0], s.nonce[:], nil, msg)
}
