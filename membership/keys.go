package membership

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
)

// Rotating the gossip key takes three rounds over all nodes: AddKey
// everywhere, UseKey everywhere, RemoveKey everywhere. Each changes this node
// alone, and until it ends: the key file must follow.

// A KeyDigest names a gossip key without giving it away: the first 8 bytes of
// the SHA-256 of a label and the key, in hex.
type KeyDigest string

// Digest returns the digest of a key.
func Digest(key []byte) KeyDigest {
	h := sha256.New()
	h.Write([]byte("rkv gossip key"))
	h.Write(key)
	return KeyDigest(fmt.Sprintf("%x", h.Sum(nil)[:8]))
}

// Errors of key rotation.
var (
	ErrNoKey      = errors.New("membership: no gossip key of that digest is here")
	ErrKeyInUse   = errors.New("membership: this is the key that encrypts: use another one first")
	ErrNoKeyring  = errors.New("membership: this cluster gossips without keys: give every node a gossip.key_file and restart them")
	ErrTooManyKey = errors.New("membership: there are 16 gossip keys already: remove one")
)

const maxKeys = 16

// Keys returns the digests of the keys that decrypt; the first one encrypts.
func (m *Members) Keys() []KeyDigest {
	ring := m.keyring
	if ring == nil {
		return nil
	}
	var out []KeyDigest
	for _, k := range ring.GetKeys() {
		out = append(out, Digest(k))
	}
	return out
}

// AddKey makes a key decrypt.
func (m *Members) AddKey(key []byte) error {
	ring := m.keyring
	switch {
	case ring == nil:
		return ErrNoKeyring
	case len(ring.GetKeys()) >= maxKeys:
		return ErrTooManyKey
	}
	if err := ring.AddKey(key); err != nil {
		return fmt.Errorf("%w: a gossip key of %d bytes; 16, 24 or 32 are possible", ErrConfig, len(key))
	}
	m.log.Info("gossip key added", "key", Digest(key))
	return nil
}

// UseKey makes the key of this digest the one that encrypts.
func (m *Members) UseKey(d KeyDigest) error {
	key, err := m.find(d)
	if err != nil {
		return err
	}
	if err := m.keyring.UseKey(key); err != nil {
		return fmt.Errorf("membership: %w", err)
	}
	m.log.Info("gossip key in use", "key", d)
	return nil
}

// RemoveKey takes the key of this digest away; not the one in use.
func (m *Members) RemoveKey(d KeyDigest) error {
	key, err := m.find(d)
	if err != nil {
		return err
	}
	if slices.Equal(key, m.keyring.GetPrimaryKey()) {
		return ErrKeyInUse
	}
	if err := m.keyring.RemoveKey(key); err != nil {
		return fmt.Errorf("membership: %w", err)
	}
	m.log.Info("gossip key removed", "key", d)
	return nil
}

func (m *Members) find(d KeyDigest) ([]byte, error) {
	ring := m.keyring
	if ring == nil {
		return nil, ErrNoKeyring
	}
	for _, k := range ring.GetKeys() {
		if Digest(k) == d {
			return k, nil
		}
	}
	return nil, fmt.Errorf("%w: %s", ErrNoKey, clean(string(d)))
}
