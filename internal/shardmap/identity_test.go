package shardmap

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/shardmap/format"
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
	newer := []byte(strings.Replace(string(good), "format 1", "format 2", 1))
	if _, err := format.ParseIdentity(newer); !errors.Is(err, format.ErrNewer) {
		t.Errorf("a newer file: %v", err)
	}
}

// FuzzFiles: what parses is what would be written.
func FuzzFiles(f *testing.F) {
	m := mapOf(f, 1, "red", 8, "a", "b")
	f.Add(format.AppendMap(nil, format.Promised, m))
	f.Add(format.AppendMap(nil, format.Committed, m))
	whole := format.AppendMap(nil, format.Committed, m)
	f.Add(whole[:len(whole)-sha256.Size])
	f.Add(format.AppendIdentity(nil, format.Identity{Node: "a", Cluster: "red"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if id, err := format.ParseIdentity(b); err == nil && string(format.AppendIdentity(nil, id)) != string(b) {
			t.Fatalf("identity not canonical: %q", b)
		}
		// The checksum keeps the fuzzer out; here it fits, too.
		sum := sha256.Sum256(b)
		if s, m, err := format.ParseMap(append(bytes.Clone(b), sum[:]...)); err == nil && !bytes.Equal(format.AppendMap(nil, s, m)[:len(b)], b) {
			t.Fatalf("map not canonical: %x", b)
		}
		if s, m, err := format.ParseMap(b); err == nil && string(format.AppendMap(nil, s, m)) != string(b) {
			t.Fatalf("map not canonical: %x", b)
		}
	})
}
