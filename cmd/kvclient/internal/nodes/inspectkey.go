package nodes

import (
	"bytes"
	"fmt"

	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/store/layout"
)

// keyInfo is the path of one key through the index, in its JSON form. If the key is
// not found there is no path to show, only its fingerprint, by which a user can look
// for it in buckets.
type keyInfo struct {
	Key         string       `json:"key"`
	Fingerprint string       `json:"fingerprint"`
	Found       bool         `json:"found"`
	Shard       int          `json:"shard"` // where it was found; -1 if nowhere
	Root        string       `json:"root,omitempty"`
	Directory   string       `json:"directory,omitempty"`
	Buckets     []bucketInfo `json:"buckets,omitempty"`
}

// showKey follows the index to a key. Only the library knows which shard a key
// belongs to, the memory does not say, so the shard is found by looking into all
// of them.
func (in *inspector) showKey(key []byte) error {
	hash := layout.HashKey(in.view.Seed, key)
	info := keyInfo{Key: in.Show(key), Fingerprint: fmt.Sprintf("%04x", hash.Fingerprint()), Shard: -1}
	for shard := range int(in.view.Shards) {
		found, err := in.follow(uint16(shard), hash, key, &info)
		if err != nil {
			return fmt.Errorf("shard %d: %w", shard, err)
		}
		if found {
			info.Found, info.Shard = true, shard
			break
		}
	}
	var err error
	if in.Output == "json" {
		err = in.PrintJSON(info)
	} else {
		err = in.Print(info.text())
	}
	if err == nil && !info.Found {
		return app.ErrNotFound
	}
	return err
}

// follow looks for the key in one shard: root word, directory entry, the two
// pairs of buckets. When it is there, info is filled in.
func (in *inspector) follow(shard uint16, hash layout.Hash, key []byte, info *keyInfo) (bool, error) {
	root, err := in.word(in.view.RootPlace(shard))
	if err != nil {
		return false, err
	}
	// The root word names the directory and tells how many bits of the hash choose
	// an entry.
	dir, depth, ok := layout.ParseRoot(root)
	if !ok {
		return false, nil // nothing was ever stored there
	}
	// Entries are words, and places count words.
	entryPlace := dir + layout.Place(hash.Prefix(depth))
	entry, err := in.word(entryPlace)
	if err != nil {
		return false, err
	}
	segment, local, step, ok := layout.ParseDirEntry(entry)
	if !ok {
		return false, fmt.Errorf("the directory entry at %v is %#x", entryPlace, entry)
	}
	a, b := hash.Mains(layout.SegmentGroups(step))
	var buckets []bucketInfo
	// A key may be in either of two pairs of buckets. Both are read even if the
	// first has it, because the command shows the way with all that a reader looks
	// at.
	found := false
	for _, m := range []layout.Main{a, b} {
		place := segment + layout.PlaceOfByte(uint64(m.PairBucket()*layout.BucketSize))
		raw, err := in.read(place, layout.PairSize)
		if err != nil {
			return false, err
		}
		for i := range 2 {
			off := i * layout.BucketSize
			info, err := in.bucket(place+layout.PlaceOfByte(uint64(off)), raw[off:])
			if err != nil {
				return false, err
			}
			buckets = append(buckets, info)
			for _, s := range info.Slots {
				found = found || s.Item != nil && bytes.Equal(s.Item.raw, key)
			}
		}
	}
	// Shards in which the key is not leave no trace in what is shown.
	if found {
		info.Root = fmt.Sprintf("directory of depth %d at %v", depth, dir)
		info.Directory = fmt.Sprintf("entry %d: segment of depth %d, step %d at %v", hash.Prefix(depth), local, step, segment)
		info.Buckets = buckets
	}
	return found, nil
}

// text is the way as lines.
func (k keyInfo) text() string {
	if !k.Found {
		return fmt.Sprintf("key          %s\nfingerprint  %s\nno slot of any shard leads to it\n", k.Key, k.Fingerprint)
	}
	s := fmt.Sprintf("key          %s\nfingerprint  %s\nshard        %d\nroot         %s\ndirectory    %s\n\n",
		k.Key, k.Fingerprint, k.Shard, k.Root, k.Directory)
	for _, b := range k.Buckets {
		s += b.text()
	}
	return s
}
