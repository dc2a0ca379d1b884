package member

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/membership"
)

// Gossip keys change while the cluster runs: the new one is added to the key
// file of every node and read there (understood everywhere), then made the first
// (used everywhere), then the old one is taken out. A key itself never travels
// over a session, which cannot hide it; its digest does.

// ReloadKeys reads the gossip keys again: those that are new are
// understood, the first one is used, those that are gone are forgotten. After an
// error the keys are as before.
func (c *Member) ReloadKeys() error {
	switch {
	case c == nil || c.members == nil:
		return errors.New("server: this server is no node of a cluster")
	case c.cfg.ReloadKeys == nil:
		return errors.New("server: the gossip keys come from no file that could be read again (gossip.key_file)")
	}
	keys, err := c.cfg.ReloadKeys()
	if err != nil {
		return err
	}
	if len(keys) == 0 {
		return errors.New("server: there is no gossip key any more")
	}
	c.keys.Lock()
	defer c.keys.Unlock()
	var want []membership.KeyDigest
	for _, key := range keys {
		d := membership.Digest(key)
		want = append(want, d)
		if !slices.Contains(c.members.Keys(), d) {
			if err := c.members.AddKey(key); err != nil {
				return err
			}
		}
	}
	if err := c.members.UseKey(want[0]); err != nil {
		return err
	}
	for _, d := range c.members.Keys() {
		if !slices.Contains(want, d) {
			if err := c.members.RemoveKey(d); err != nil {
				return err
			}
		}
	}
	c.log.Info("gossip keys read again", "keys", len(want), "in_use", string(want[0]))
	return nil
}

// Keys are the digests of the keys, the one in use first.
type Keys struct {
	Primary string   `json:"primary"`
	Keys    []string `json:"keys"`
	Source  string   `json:"source"` // file, environment, none
}

func (c *Member) keyDigests() Keys {
	k := Keys{Keys: []string{}, Source: "none"}
	for _, d := range c.members.Keys() {
		k.Keys = append(k.Keys, string(d))
	}
	if len(k.Keys) > 0 {
		k.Primary, k.Source = k.Keys[0], "environment"
		if c.cfg.ReloadKeys != nil {
			k.Source = "file"
		}
	}
	return k
}

// ChangeKeys makes the document wire.AdminGossipKeys. The answer is Keys after what was
// done: "" or "list" does nothing, "reload" reads the file again, "use" and
// "remove" take a digest.
func (c *Member) ChangeKeys(what string) (any, error) {
	if c == nil {
		return nil, errAlone()
	}
	verb, digest, _ := strings.Cut(what, " ")
	var err error
	switch verb {
	case "", "list":
	case "reload":
		err = c.ReloadKeys()
	case "use", "remove":
		c.keys.Lock()
		if verb == "use" {
			err = c.members.UseKey(membership.KeyDigest(digest))
		} else {
			err = c.members.RemoveKey(membership.KeyDigest(digest))
		}
		c.keys.Unlock()
		if err == nil {
			c.log.Info("gossip keys changed", "what", verb, "key", digest)
		}
	default:
		err = fmt.Errorf("%q: want list, reload, use DIGEST or remove DIGEST", verb)
	}
	if err != nil {
		return nil, base.Refuse(wire.StatusBadRequest, "%v", err)
	}
	return c.keyDigests(), nil
}
