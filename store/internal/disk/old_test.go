package disk

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/test/crashfs"
	"github.com/rdmakv/rdmakv/test/oldstores"
)

// unpackOld puts a stored store into a file system in memory, durably, and returns the
// configuration that opens it, and what must be there.
func unpackOld(t *testing.T, name string) (*crashfs.Disk, Config, *oldstores.Store) {
	t.Helper()
	mem := crashfs.New()
	list, err := oldstores.Open(name, func(path string, content []byte) error {
		path = "/" + path
		if err := makeDirs(mem, mem.PathDir(path)); err != nil {
			return err
		}
		return writeFile(mem, path, content)
	})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	c := testConfig(mem)
	c.Shards, c.WALFailoverDir = list.Shards, list.Failover
	return mem, c, list
}

// makeDirs makes a directory and those above it, durably.
func makeDirs(fsys vfs.FS, dir string) error {
	if up := fsys.PathDir(dir); up != dir {
		if err := makeDirs(fsys, up); err != nil {
			return err
		}
	}
	return makeDir(fsys, dir)
}

// wantOld compares what a disk has with what must be there of a stored store: each record,
// nothing of what was deleted, that what expires is listed, and the results of requests.
func wantOld(d *Disk, list *oldstores.Store) error {
	listed := make(map[string]bool)
	for _, k := range list.Keys {
		rec, closer, err := d.Read(k.Shard, []byte(k.Key))
		if err != nil {
			return fmt.Errorf("shard %d, key %q: %w", k.Shard, k.Key, err)
		}
		if uint64(rec.Version) != k.Version || rec.Expiry != k.Expiry || !k.Has(rec.Value) {
			err = fmt.Errorf("shard %d, key %q: version %v, expiry %d, %d bytes; want %d, %d, %d",
				k.Shard, k.Key, uint64(rec.Version), rec.Expiry, len(rec.Value), k.Version, k.Expiry, k.Length)
		}
		if err = errors.Join(err, closer.Close()); err != nil {
			return err
		}
		if k.Expiry != 0 {
			listed[fmt.Sprintf("%d/%d/%s", k.Shard, clock.Second(k.Expiry), k.Key)] = true
		}
	}
	for _, k := range list.Gone {
		if _, _, err := d.Read(k.Shard, []byte(k.Key)); !errors.Is(err, base.ErrNotFound) {
			return fmt.Errorf("shard %d, key %q was deleted: %v", k.Shard, k.Key, err)
		}
	}
	keys, results := 0, make(map[string]oldstores.Result)
	for _, r := range list.Results {
		results[fmt.Sprintf("%d/%d", r.Shard, r.Slot)] = r
	}
	for shard := range uint16(list.Shards) {
		var wrong error
		err := errors.Join(
			d.EachKey(shard, func([]byte) bool { keys++; return true }),
			d.EachDue(shard, 0, nil, func(second uint64, key []byte) bool {
				// An entry more is no fault: its key was written again since.
				delete(listed, fmt.Sprintf("%d/%d/%s", shard, second, key))
				return true
			}),
			d.EachResult(shard, nil, func(_ []byte, k base.SlotKey, r dedup.Result) bool {
				at := fmt.Sprintf("%d/%d", shard, k.Slot)
				w := results[at]
				want := dedup.ResultOf(&base.RequestID{Seq: w.Seq}, &base.Result{Version: layout.Version(w.Version), Number: w.Number, Existed: w.Existed})
				if k.Client != oldstores.Client || r != want {
					wrong = fmt.Errorf("result %s: %+v, want %+v", at, r, want)
				}
				delete(results, at)
				return true
			}), wrong)
		if err != nil || wrong != nil {
			return errors.Join(err, wrong)
		}
	}
	if keys != len(list.Keys) || len(listed) != 0 || len(results) != 0 {
		return fmt.Errorf("%d keys, want %d; not listed: %v; no result: %v", keys, len(list.Keys), listed, results)
	}
	if id := d.ID(); hex.EncodeToString(id[:]) != list.ID {
		return fmt.Errorf("store %x, want %s", id, list.ID)
	}
	return nil
}

// TestOldInspect: a store of an older format can be looked at as it is, before its upgrade.
func TestOldInspect(t *testing.T) {
	for _, name := range oldstores.Names {
		mem, _, list := unpackOld(t, name)
		at := 0
		in, err := Check(t.Context(), testDir, InspectOptions{FS: mem, Each: func(e InspectEntry) error {
			if at == len(list.Keys) {
				return errors.New("more keys than there were")
			}
			k := list.Keys[at]
			if at++; e.Shard != k.Shard || string(e.Key) != k.Key || uint64(e.Version) != k.Version || !k.Has(e.Value) {
				return fmt.Errorf("shard %d, key %q, version %v; want %+v", e.Shard, e.Key, e.Version, k)
			}
			return nil
		}})
		if list.Failover != "" {
			// Nobody says to Inspect where the second directory is.
			if fault := (*base.OpenError)(nil); !errors.As(err, &fault) || !strings.Contains(err.Error(), list.Failover) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || at != len(list.Keys) || in.Format != list.Format || in.CleanStop != list.Clean || in.Epoch != list.Epoch || !in.Ledger || in.Log || in.Backup {
			t.Errorf("%s: %d of %d keys, %+v, %v", name, at, len(list.Keys), in, err)
		}
	}
}
