package store

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/test/crashfs"
	"github.com/rdmakv/rdmakv/test/oldstores"
)

// unpackOld puts a stored store into a file system in memory, durably, and returns the
// configuration that opens it a minute after its end, and what must be there.
func unpackOld(t *testing.T, name string) (*crashfs.Disk, Config, *oldstores.Store) {
	t.Helper()
	mem := crashfs.New()
	list, err := oldstores.Open(name, func(path string, content []byte) error {
		path = "/" + path
		err := mem.MkdirAll(mem.PathDir(path), 0o700)
		for dir := mem.PathDir(path); err == nil && dir != "/"; dir = mem.PathDir(dir) {
			err = syncNames(mem, mem.PathDir(dir))
		}
		return errors.Join(err, createText(mem, path, string(content)))
	})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return mem, oldConfig(mem, list), list
}

// oldConfig opens a stored store, or a later life of it.
func oldConfig(fs vfs.FS, list *oldstores.Store) Config {
	c := testConfig(fs)
	c.Shards, c.WALFailoverDir, c.PredecessorGone = list.Shards, list.Failover, true
	clock := &fakeTime{wall: list.Now().Add(time.Minute)}
	c.clock = clock.source
	return c
}

// wantOld compares what readers are shown with what must be there of a stored store.
func (n *node) wantOld(list *oldstores.Store) {
	n.t.Helper()
	for _, k := range list.Keys {
		value, ok := n.get(int(k.Shard), k.Key)
		if over := k.Expiry != 0 && k.Expiry <= uint64(n.Now().UnixMicro()); over || !ok {
			if over == ok {
				n.t.Errorf("shard %d, key %q, which expires at %d: it is there %v", k.Shard, k.Key, k.Expiry, ok)
			}
			continue
		}
		info, err := n.Stat(n.t.Context(), k.Shard, []byte(k.Key))
		if err != nil || uint64(info.Version) != k.Version || info.Expiry != k.Expiry || !k.Has([]byte(value)) {
			n.t.Errorf("shard %d, key %q: %d bytes, %+v, %v; want %+v", k.Shard, k.Key, len(value), info, err, k)
		}
	}
	for _, k := range list.Gone {
		n.wantAbsent(int(k.Shard), k.Key)
	}
}

// wantRetries sends all requests again whose results were kept: the answers are those that
// were given before the upgrade.
func (n *node) wantRetries(list *oldstores.Store) {
	n.t.Helper()
	for _, r := range list.Results {
		id := RequestID{Client: oldstores.Client, Slot: r.Slot, Seq: r.Seq, Age: time.Minute}
		op := Op{Shard: r.Shard, Kind: OpDelete, Key: []byte(r.Key), ID: id}
		if r.Kind == "increment" {
			op.Kind, op.Delta = OpIncrement, 1
		}
		w := n.do(Write{Op: op})
		if w.Err != nil || uint64(w.Version) != r.Version || w.Number != r.Number || w.Existed != r.Existed {
			n.t.Errorf("%+v again: version %v, number %d, existed %v, %v", r, uint64(w.Version), w.Number, w.Existed, w.Err)
		}
	}
}

// TestUpgrade opens stores of formats 1 and 2. Everything is there, before the fill and
// behind it, after a stop and after a crash; what was sent before the upgrade and is sent
// again behind it takes effect once; and STORE and the base say format 3 from then on, so
// that an older program refuses them.
func TestUpgrade(t *testing.T) {
	for _, name := range oldstores.Names {
		t.Run(name, func(t *testing.T) {
			fs, c, list := unpackOld(t, name)
			if list.Refused != "" {
				if _, err := tryOpen(t, c); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), list.Refused) {
					t.Fatalf("a refused store: %v", err)
				}
				return
			}
			if list.Failover == "" {
				if in, err := Check(t.Context(), c.Dir, fs); err != nil || in.Keys != uint64(len(list.Keys)) || in.Format != list.Format {
					t.Errorf("before the upgrade: %+v, %v", in, err)
				}
			}
			c.holdFill = make(chan struct{})
			n := open(t, c)
			n.wantOld(list)
			close(c.holdFill)
			n.fill()
			n.wantOld(list)
			n.wantRetries(list)
			newest := layout.Version(0)
			for _, k := range list.Keys {
				newest = max(newest, layout.Version(k.Version))
			}
			if v := n.put(2, "new", "of format 4"); v <= newest {
				t.Errorf("version %v, and there were versions up to %v", v, newest)
			}
			if list.Format > 1 {
				waitFor(t, "the key whose time is over", func() bool {
					n.checkpoint()
					_, err := n.record(0, "second")
					return errors.Is(err, ErrNotFound)
				})
			}
			n = open(t, oldConfig(fs.CrashClone(vfs.CrashCloneCfg{}), list))
			again := n.cfg.FS
			for range 2 {
				n.wantOld(list)
				n.wantRetries(list)
				n.want(2, "new", "of format 4")
				if err := n.Close(); err != nil {
					t.Fatal(err)
				}
				in, err := Check(t.Context(), c.Dir, again)
				if err != nil || in.Format != 4 || !in.CleanStop || !strings.Contains(readText(t, again, "/store/STORE"), "reader 4\n") {
					t.Errorf("after the upgrade: %+v, %v", in, err)
				}
				n = open(t, oldConfig(again, list))
			}
		})
	}
}
