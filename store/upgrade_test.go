package store

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

// TestUpgrade opens a store of format 1. Everything is there; it says format 2
// from then on, in STORE and in Pebble, so that an older program refuses it.
func TestUpgrade(t *testing.T) {
	fs := memFS()
	c := testConfig(fs)
	n := open(t, c)
	at := n.put(2, "k", "v")
	// Format 1 is format 2 in which nothing of what is new has happened.
	b := n.db.NewBatch()
	u32 := binary.LittleEndian.AppendUint32
	if err := setMeta(b, metaFormat, u32(u32(nil, 1), 1)); err != nil {
		t.Fatal(err)
	}
	if err := b.Commit(pebble.Sync); err != nil {
		t.Fatal(err)
	}
	id := n.ID()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	store := fs.PathJoin(c.Dir, identityFile)
	if err := writeFile(fs, store, identity{format: 1, reader: 1, shards: 4, id: id}.encode()); err != nil {
		t.Fatal(err)
	}
	if _, err := Check(t.Context(), c.Dir, fs); err != nil {
		t.Errorf("check of format 1: %v", err)
	}
	if err := upgradeIdentity(c, identity{shards: 4, id: id}); err != nil { // and then the power went
		t.Fatal(err)
	}
	if _, err := Check(t.Context(), c.Dir, fs); err != nil {
		t.Errorf("check of an upgrade that was cut short: %v", err)
	}
	for range 2 {
		n = open(t, testConfig(fs))
		n.want(2, "k", "v")
		if info, err := n.Stat(t.Context(), 2, []byte("k")); err != nil || info.Version != at {
			t.Errorf("version %#x, was %#x (%v)", info.Version, at, err)
		}
		text, err := readFile(fs, store)
		if err != nil || !strings.Contains(string(text), "reader 2\n") {
			t.Errorf("STORE: %q, %v", text, err)
		}
		f, err := readFacts(n.db)
		if err != nil || f.format != 2 || f.reader != 2 || f.id != id {
			t.Errorf("facts %+v, %v", f, err)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
