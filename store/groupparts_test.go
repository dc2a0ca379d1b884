package store

import (
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/store/layout"
)

// TestGroupPartsDuringLook: a value in parts that was acknowledged is there after a fail-over, although the replica that leads next
// was looking for its uploads (it had adopted a snapshot, or started) when the value's upload began elsewhere.
func TestGroupPartsDuringLook(t *testing.T) {
	c := newCluster(t, nil)
	lead, next := c.hosts[0], c.hosts[1]
	c.lead(pair, lead)
	c.put(0, "k", "v")
	c.settle()
	waitFor(t, "the first looks", func() bool { return !lead.parts.Any() && !next.parts.Any() })
	of := layout.Upload{Shape: layout.Shape{Total: layout.MinPartLen + 7, PartLen: layout.MinPartLen}, Key: []byte("film")}
	keys, _ := layout.NewPartKeys(layout.UploadID{1}, func([]byte) bool { return true })
	head := layout.Head{ID: layout.UploadID{1}, Shape: of.Shape, Sums: make([]uint64, 2)}
	if err := lead.parts.Begin(0, head.ID, keys, of, 0); err != nil {
		t.Fatal(err)
	}

	// What Adopt does, and then the collector with a scan that is behind the record's place when that comes.
	next.parts.Forget([]uint16{0, 2})
	next.parts.Look()
	c.put(0, string(keys.Key(layout.UploadPart)), string(layout.AppendUpload(nil, of)))
	c.settle()
	next.parts.EndLook()

	for n := 1; n <= 2; n++ {
		_, length := of.Part(n)
		part := make([]byte, length)
		head.Sums[n-1] = xxh3.Hash(part)
		if err := lead.parts.Part(keys.Key(n), length, head.Sums[n-1]); err != nil {
			t.Fatal(err)
		}
		c.put(0, string(keys.Key(n)), string(part))
	}
	value := layout.AppendHead(nil, head)
	if _, err := lead.parts.Head(of.Key, value); err != nil {
		t.Fatal(err)
	}
	c.put(0, "film", string(value)) // it is acknowledged
	c.settle()
	c.lead(pair, next)
	time.Sleep(2500 * time.Millisecond)
	c.settle()
	for _, h := range c.hosts {
		h.want(0, "film", string(value))
		for n := 1; n <= 2; n++ {
			if _, ok := h.get(0, string(keys.Key(n))); !ok {
				t.Errorf("store %d: part %d is gone", h.id, n)
			}
		}
	}
}
