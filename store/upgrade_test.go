package store

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/store/internal/disk"
)

// TestUpgrade opens a store of format 1. Everything is there; it says the newest format
// from then on, in STORE and in Pebble, so that an older program refuses it.
func TestUpgrade(t *testing.T) {
	fs := memFS()
	newest := uint32(2)
	if *ownLog {
		newest = 3
	}
	c := testConfig(fs)
	c.pebbleLog = true // no store of format 1 has a log of its own
	n := open(t, c)
	at := n.put(2, "k", "v")
	// Format 1 is format 2 in which nothing of what is new has happened.
	b := n.disk.ForTests().DB().NewBatch()
	u32 := binary.LittleEndian.AppendUint32
	key := disk.AppendKey(nil, disk.StoreShard, disk.KindMeta, []byte("format"))
	record := make([]byte, disk.RecordSize(8, false))
	disk.PutRecord(record, key, disk.Record{Value: u32(u32(nil, 1), 1)})
	if err := b.Set(key, record, nil); err != nil {
		t.Fatal(err)
	}
	if err := b.Commit(pebble.Sync); err != nil {
		t.Fatal(err)
	}
	id, d := n.ID(), n.disk
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.ForTests().WriteIdentity(1); err != nil {
		t.Fatal(err)
	}
	if _, err := Check(t.Context(), c.Dir, fs); err != nil {
		t.Errorf("check of format 1: %v", err)
	}
	if err := d.ForTests().WriteIdentity(2); err != nil { // and then the power went
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
		text := readText(t, fs, fs.PathJoin(c.Dir, "STORE"))
		if !strings.Contains(text, fmt.Sprintf("reader %d\n", newest)) {
			t.Errorf("STORE: %q", text)
		}
		format, reader, written, _, err := n.disk.ForTests().Written()
		if err != nil || format != newest || reader != newest || written != id {
			t.Errorf("format %d, reader %d, store %x, %v", format, reader, written, err)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
