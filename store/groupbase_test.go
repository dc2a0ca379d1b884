package store

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/image"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

// atItsBase makes a group that begins with keys, and returns a disk on which its base is at entry 1 still: a crash came before the first checkpoint behind the making.
func atItsBase(t *testing.T) *crashfs.Disk {
	t.Helper()
	fs := memFS()
	cfg := alone(fs)
	cfg.LogBytes = MinLogBytes
	n := openWith(t, cfg, aGroup(7, 0, 2))
	n.leads(0)
	for i := range 20 {
		n.put(i%2*2, fmt.Sprint("k", i), "v")
	}
	n.put(0, "large", string(pattern(disk.SeparateFrom, "large")))
	w := &Write{Op: Op{Kind: OpIncrement, Shard: 2, Key: []byte("n"), Delta: 1, ID: RequestID{Client: [16]byte{1}, Seq: 1}}}
	if err := n.Do(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	n.recovers(7, 1, recovered(9, "n0", 0, 2))
	left := fs.CrashClone(vfs.CrashCloneCfg{})
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	return left
}

// TestGroupBase: a replica whose base is not what its group began with takes no part and says why, when it is opened behind a crash, and sends nobody what it has; one whose base is whole goes on.
func TestGroupBase(t *testing.T) {
	key := func(kind disk.Kind, name string) []byte { return disk.AppendKey(nil, 0, kind, []byte(name)) }
	record := func(k []byte, r disk.Record) []byte {
		b := make([]byte, disk.RecordSize(len(r.Value), r.Expiry != 0))
		disk.PutRecord(b, k, r)
		return b
	}
	for name, plant := range map[string]struct {
		do   func(db *pebble.DB, was disk.Record) error
		want string // "": the base is whole
	}{
		"whole":      {func(*pebble.DB, disk.Record) error { return nil }, ""},
		"a key less": {func(db *pebble.DB, _ disk.Record) error { return db.Delete(key(disk.KindData, "k0"), pebble.NoSync) }, "has 21 keys and 1 results"},
		"a key more": {func(db *pebble.DB, r disk.Record) error {
			return db.Set(key(disk.KindData, "more"), record(key(disk.KindData, "more"), r), pebble.NoSync)
		}, "has 23 keys"},
		"no keys at all": {func(db *pebble.DB, _ disk.Record) error {
			return errors.Join(db.DeleteRange(disk.AppendKey(nil, 0, 0, nil), disk.AppendKey(nil, 1, 0, nil), pebble.NoSync), db.DeleteRange(disk.AppendKey(nil, 2, 0, nil), disk.AppendKey(nil, 3, 0, nil), pebble.NoSync))
		}, "has 0 keys and 0 results"},
		"a result less": {func(db *pebble.DB, _ disk.Record) error {
			lower, upper := disk.KindBounds(2, disk.KindDedup)
			return db.DeleteRange(lower, upper, pebble.NoSync)
		}, "has 22 keys and 0 results"},
		"an older version": {func(db *pebble.DB, r disk.Record) error {
			r.Version--
			return db.Set(key(disk.KindData, "k0"), record(key(disk.KindData, "k0"), r), pebble.NoSync)
		}, "began with 22 and 1"},
		"another value": {func(db *pebble.DB, r disk.Record) error {
			r.Value = []byte("w")
			return db.Set(key(disk.KindData, "k0"), record(key(disk.KindData, "k0"), r), pebble.NoSync)
		}, "began with 22 and 1"},
		"rot": {func(db *pebble.DB, r disk.Record) error {
			b := record(key(disk.KindData, "k0"), r)
			b[len(b)-1] ^= 1
			return db.Set(key(disk.KindData, "k0"), b, pebble.NoSync)
		}, "checksum"},
		"half of what it began with": {func(db *pebble.DB, _ disk.Record) error {
			k, _ := (&disk.Replica{Group: 9}).BaseRecord(nil)
			return db.Set(k, record(k, disk.Record{Value: []byte("half")}), pebble.NoSync)
		}, "4 bytes, expected 32"},
	} {
		left := atItsBase(t)
		open1 := func(keeps bool, says *lines) *node {
			t.Helper()
			cfg := alone(left)
			cfg.LogBytes = MinLogBytes
			cfg.Keeps = func(consensus.GroupID, consensus.ReplicaID) bool { return keeps }
			if says != nil {
				cfg.Logger = slog.New(slog.NewTextHandler(says, nil))
			}
			n, err := tryOpen(t, cfg)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return n
		}
		n := open1(false, nil)
		db := n.disk.ForTests().DB()
		raw, closer, err := db.Get(key(disk.KindData, "k0"))
		if err != nil {
			t.Fatal(err)
		}
		was, err := disk.ParseRecord(raw, key(disk.KindData, "k0"))
		was.Value = []byte("v")
		if err := errors.Join(err, closer.Close(), plant.do(db, was), db.Flush()); err != nil {
			t.Fatal(err)
		}
		// It is sent, or not.
		m := &machine{n.groups.of[0].Load(), n.Store}
		if at := m.found.Applied; at != 1 {
			t.Fatalf("%s: the base is at entry %d", name, at)
		}
		snap, err := m.Snapshot(t.Context())
		if err == nil {
			_, err = io.Copy(io.Discard, snap)
			err = errors.Join(err, snap.Close())
		}
		if (err == nil) != (plant.want == "") || err != nil && !strings.Contains(err.Error(), plant.want) {
			t.Errorf("%s: it is sent, %v, want %q", name, err, plant.want)
		}
		entry := []consensus.Entry{{Index: 2, Term: 1, Kind: consensus.Empty}}
		if unlike := m.unlike.Load(); (unlike != nil) != errors.Is(err, image.ErrBase) || unlike != nil && !errors.Is(m.Apply(entry), image.ErrBase) {
			t.Errorf("%s: it goes on", name)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		// It takes part, or not.
		var says lines
		n = open1(true, &says)
		if plant.want == "" {
			n.leads(0)
			n.want(0, "k0", "v")
			n.put(0, "k0", "w")
			n.checkpoint()
			if err := n.Close(); err != nil {
				t.Fatal(err)
			}
			n = open1(true, nil) // the base has moved on, and nothing is compared any more
			n.leads(0)
			n.want(0, "k0", "w")
		} else {
			waitFor(t, name+": the replica to be refused", func() bool {
				m := n.groups.of[0].Load()
				m.part.Lock()
				defer m.part.Unlock()
				return m.gone
			})
			if _, err := EngineOf(n.Store).Status(9); !errors.Is(err, consensus.ErrNoGroup) {
				t.Errorf("%s: it takes part: %v", name, err)
			}
			if err := Confirm(t.Context(), n.Store, 0); !errors.Is(err, ErrNotLeader) {
				t.Errorf("%s: who asks for its keys is told %v", name, err)
			}
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		if plant.want != "" && !strings.Contains(says.String(), plant.want) {
			t.Errorf("%s: the log says %q, want %q", name, says.String(), plant.want)
		}
	}
}

// A lines is a log that a test reads.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
