package store

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/store/layout"
)

// putParts puts a value in two parts of a store, as a server does for a client.
func putParts(t *testing.T, s *Store, key string, id byte) layout.PartKeys {
	t.Helper()
	of := layout.Upload{Shape: layout.Shape{Total: layout.MinPartLen + 7, PartLen: layout.MinPartLen}, Key: []byte(key)}
	keys, _ := layout.NewPartKeys(layout.UploadID{id}, func([]byte) bool { return true })
	head := layout.Head{ID: layout.UploadID{id}, Shape: of.Shape, Sums: make([]uint64, 2)}
	put := func(key, value []byte) {
		t.Helper()
		if _, err := s.Put(context.Background(), 0, key, value); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Parts().Begin(0, head.ID, keys, of, 0); err != nil {
		t.Fatal(err)
	}
	put(keys.Key(layout.UploadPart), layout.AppendUpload(nil, of))
	for n := 1; n <= 2; n++ {
		_, length := of.Part(n)
		part := make([]byte, length)
		part[0] = id
		head.Sums[n-1] = xxh3.Hash(part)
		if err := s.Parts().Part(keys.Key(n), length, head.Sums[n-1]); err != nil {
			t.Fatal(err)
		}
		put(keys.Key(n), part)
	}
	value := layout.AppendHead(nil, head)
	if _, err := s.Parts().Head([]byte(key), value); err != nil {
		t.Fatal(err)
	}
	put([]byte(key), value)
	return keys
}

// TestCacheIsCheckedInTurns: a look at the values in parts of a cache ends after so many items, and the next one goes
// on: each value is looked at once in a pass. One that has lost a part loses its head.
func TestCacheIsCheckedInTurns(t *testing.T) {
	c := testConfig(memFS())
	c.Mode = Cache
	n := open(t, c)
	const values = 5
	for i := range byte(values) {
		keys := putParts(t, n.Store, fmt.Sprint("film", i), i+1)
		if i%2 == 0 { // as an evictor would
			if _, err := n.Delete(context.Background(), 0, keys.Key(2)); err != nil {
				t.Fatal(err)
			}
		}
	}
	ctx, by := context.Background(), &collector{Store: n.Store, most: 3} // one value a look
	for look := range values {
		if err := by.checkCached(ctx); err != nil {
			t.Fatal(err)
		}
		if left := len(by.unchecked); left != values-1-look {
			t.Errorf("look %d leaves %d values", look, left)
		}
	}
	for i := range values {
		_, err := n.Get(ctx, 0, fmt.Append(nil, "film", i), nil)
		if lost := i%2 == 0; lost != errors.Is(err, ErrNotFound) {
			t.Errorf("film%d, a part is gone: %v: %v", i, lost, err)
		}
	}
}
