package shardmap

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/feature"
	"github.com/rdmakv/rdmakv/internal/shardmap/format"
	"github.com/rdmakv/rdmakv/internal/wholefile"
)

func TestIdentity(t *testing.T) {
	disk := newDisk(t)
	a := format.Identity{Node: "a", Cluster: "red"}
	if _, err := ReadIdentity(disk, dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nobody's: %v", err)
	}
	if err := CheckIdentity(disk, dir, a); err != nil {
		t.Error(err)
	}
	if err := Claim(disk, dir, a); err != nil {
		t.Fatal(err)
	}
	disk = disk.CrashClone(vfs.CrashCloneCfg{})
	if got, err := ReadIdentity(disk, dir); err != nil || got != a {
		t.Errorf("read back %+v, %v", got, err)
	}
	if err := Claim(disk, dir, a); err != nil {
		t.Errorf("again: %v", err)
	}
	for _, other := range []format.Identity{{Node: "b", Cluster: "red"}, {Node: "a", Cluster: "blue"}} {
		for _, err := range []error{Claim(disk, dir, other), CheckIdentity(disk, dir, other)} {
			if !errors.Is(err, ErrOtherNode) || !strings.Contains(err.Error(), `node "a" of cluster "red"`) {
				t.Errorf("%+v: %v", other, err)
			}
		}
	}
	// Without a map no node is missing; with one, keys are elsewhere.
	if err := CheckAlone(disk, dir); err != nil {
		t.Error(err)
	}
	if err := open(t, disk).Prepare(t.Context(), mapOf(t, 1, "red", 8, "a")); err != nil {
		t.Fatal(err)
	}
	if err := CheckAlone(disk, dir); !errors.Is(err, ErrClustered) {
		t.Errorf("alone on a node's directory: %v", err)
	}
	good := format.AppendIdentity(nil, a)
	for i := range len(good) * 8 {
		bad := append([]byte(nil), good...)
		bad[i/8] ^= 1 << (i % 8)
		if id, err := format.ParseIdentity(bad); err == nil {
			t.Errorf("bit %d flipped: %+v", i, id)
		}
	}
	for i := range good {
		if id, err := format.ParseIdentity(good[:i]); err == nil {
			t.Errorf("cut to %d bytes: %+v", i, id)
		}
	}
	newer := []byte(strings.Replace(string(good), "format 1", "format 3", 1))
	if _, err := format.ParseIdentity(newer); !errors.Is(err, format.ErrNewer) {
		t.Errorf("a newer file: %v", err)
	}
}

// TestRaise: the feature level rises in NODE, durably, and never falls there; at level 0 the file is what programs write and read that know no levels.
func TestRaise(t *testing.T) {
	disk := newDisk(t)
	a := format.Identity{Node: "a", Cluster: "red"}
	if _, err := Raise(disk, dir, 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of nobody's directory: %v", err)
	}
	if err := Claim(disk, dir, a); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("rdmakv node\nformat 1\nnode a\ncluster red\n"))
	if b, err := wholefile.Read(disk, disk.PathJoin(dir, format.NodeFile), format.MaxFile); err != nil || string(b) != fmt.Sprintf("rdmakv node\nformat 1\nnode a\ncluster red\nsum %x\n", sum) {
		t.Errorf("at level 0: %q, %v", b, err)
	}
	for _, c := range []struct{ to, is feature.Level }{{0, 0}, {1, 1}, {1, 1}, {0, 1}, {3, 3}, {2, 3}} {
		if got, err := Raise(disk, dir, c.to); err != nil || got != c.is {
			t.Errorf("to %d: %d, %v, want %d", c.to, got, err, c.is)
		}
		disk = disk.CrashClone(vfs.CrashCloneCfg{})
		want := a
		want.Level = c.is
		if got, err := ReadIdentity(disk, dir); err != nil || got != want {
			t.Errorf("to %d: behind a crash %+v, %v", c.to, got, err)
		}
		if err := errors.Join(CheckIdentity(disk, dir, a), Claim(disk, dir, a)); err != nil {
			t.Errorf("to %d: the node's own start: %v", c.to, err)
		}
	}
	raised := format.AppendIdentity(nil, format.Identity{Node: "a", Cluster: "red", Level: 3})
	for name, bad := range map[string]string{
		"no level":        strings.Replace(string(raised), "level 3\n", "", 1),
		"no number":       strings.Replace(string(raised), "level 3", "level x", 1),
		"another number":  strings.Replace(string(raised), "level 3", "level 4", 1),
		"form 1":          strings.Replace(string(raised), "format 2", "format 1", 1),
		"level 300":       strings.Replace(string(raised), "level 3", "level 300", 1),
		"level 3, as 003": strings.Replace(string(raised), "level 3", "level 003", 1),
	} {
		if id, err := format.ParseIdentity([]byte(bad)); !errors.Is(err, format.ErrDamaged) {
			t.Errorf("%s: %+v, %v", name, id, err)
		}
	}
}

// mapFile is the content of MAP with a map in force, a promised one, or both.
func mapFile(m, promised *cluster.Map) []byte {
	switch {
	case m == nil:
		return format.AppendMap(nil, format.Promised, promised)
	case promised == nil:
		return format.AppendMap(nil, format.Committed, m)
	}
	return format.AppendBoth(nil, m, promised)
}

// FuzzFiles: what parses is what would be written.
func FuzzFiles(f *testing.F) {
	m := mapOf(f, 1, "red", 8, "a", "b")
	f.Add(format.AppendMap(nil, format.Promised, m))
	f.Add(format.AppendMap(nil, format.Committed, m))
	whole := format.AppendMap(nil, format.Committed, m)
	f.Add(whole[:len(whole)-sha256.Size])
	both := format.AppendBoth(nil, m, upgradeOf(f, m))
	f.Add(both)
	f.Add(both[:len(both)-sha256.Size])
	f.Add(format.AppendIdentity(nil, format.Identity{Node: "a", Cluster: "red"}))
	f.Add(format.AppendIdentity(nil, format.Identity{Node: "a", Cluster: "red", Level: 1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if id, err := format.ParseIdentity(b); err == nil && string(format.AppendIdentity(nil, id)) != string(b) {
			t.Fatalf("identity not canonical: %q", b)
		}
		// The checksum keeps the fuzzer out; here it fits, too.
		sum := sha256.Sum256(b)
		if m, p, err := format.ParseMap(append(bytes.Clone(b), sum[:]...)); err == nil && !bytes.Equal(mapFile(m, p)[:len(b)], b) {
			t.Fatalf("map not canonical: %x", b)
		}
		if m, p, err := format.ParseMap(b); err == nil && string(mapFile(m, p)) != string(b) {
			t.Fatalf("map not canonical: %x", b)
		}
	})
}
