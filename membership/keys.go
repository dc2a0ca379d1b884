package membership

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/hashicorp/memberlist"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// Rotating the gossip key takes three rounds over all nodes: AddKey
// everywhere, UseKey everywhere, RemoveKey everywhere. Each changes this node
// alone, and until it ends: the key file must follow.

// A KeyDigest names a gossip key without giving it away: cluster.GossipKeyDigest.
type KeyDigest string

// Digest returns the digest of a key.
func Digest(key []byte) KeyDigest { return KeyDigest(cluster.GossipKeyDigest(key)) }

// Errors of key rotation.
var (
	ErrNoKey      = errors.New("membership: no gossip key of that digest is here")
	ErrKeyInUse   = errors.New("membership: this is the key that encrypts: use another one first")
	ErrNoKeyring  = errors.New("membership: this cluster gossips without keys: give every node a gossip.key_file and restart them")
	ErrTooManyKey = errors.New("membership: there are 16 gossip keys already: remove one")
)

const maxKeys = 16

// A Keyring is the gossip keys of a node. It is safe for concurrent use.
type Keyring struct {
	ring   *memberlist.Keyring // nil: no encryption
	logger *slog.Logger
}

// Keys returns the digests of the keys that decrypt; the first one encrypts.
func (k *Keyring) Keys() []KeyDigest {
	ring := k.ring
	if ring == nil {
		return nil
	}
	var out []KeyDigest
	for _, key := range ring.GetKeys() {
		out = append(out, Digest(key))
	}
	return out
}

// AddKey makes a key decrypt.
func (k *Keyring) AddKey(key []byte) error {
	ring := k.ring
	switch {
	case ring == nil:
		return ErrNoKeyring
	case len(ring.GetKeys()) >= maxKeys:
		return ErrTooManyKey
	}
	if err := ring.AddKey(key); err != nil {
		return fmt.Errorf("%w: a gossip key of %d bytes; 16, 24 or 32 are possible", ErrConfig, len(key))
	}
	k.logger.Info("gossip key added", "key", Digest(key))
	return nil
}

// UseKey makes the key of this digest the one that encrypts.
func (k *Keyring) UseKey(d KeyDigest) error {
	key, err := k.find(d)
	if err != nil {
		return err
	}
	if err := k.ring.UseKey(key); err != nil {
		return fmt.Errorf("membership: %w", err)
	}
	k.logger.Info("gossip key in use", "key", d)
	return nil
}

// RemoveKey takes away the key of this digest. It refuses the key in use.
func (k *Keyring) RemoveKey(d KeyDigest) error {
	key, err := k.find(d)
	if err != nil {
		return err
	}
	if slices.Equal(key, k.ring.GetPrimaryKey()) {
		return ErrKeyInUse
	}
	if err := k.ring.RemoveKey(key); err != nil {
		return fmt.Errorf("membership: %w", err)
	}
	k.logger.Info("gossip key removed", "key", d)
	return nil
}

// find returns the key of a digest.
func (k *Keyring) find(d KeyDigest) ([]byte, error) {
	ring := k.ring
	if ring == nil {
		return nil, ErrNoKeyring
	}
	for _, key := range ring.GetKeys() {
		if Digest(key) == d {
			return key, nil
		}
	}
	return nil, fmt.Errorf("%w: %s", ErrNoKey, clean(string(d)))
}
