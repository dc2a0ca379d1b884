package shardmap

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/shardmap/format"
	"github.com/rdmakv/rdmakv/internal/wholefile"
)

// lives is a LIVES file as a node writes it.
func lives(seen ...format.Seen) []byte {
	return format.AppendLives(nil, format.Lives{Own: []format.Opening{{Epoch: 7, Incarnation: 8}, {Epoch: 3, Incarnation: 4}}, Seen: seen})
}

// sealed is a file with the checksum that keeps a fuzzer out.
func sealed(b []byte) []byte {
	sum := sha256.Sum256(b)
	return append(bytes.Clone(b), sum[:]...)
}

// FuzzLives: a node starts with any LIVES file, or says that it is damaged, or newer; what is read is what would be written. Whatever a node
// then tells of its starts, it is let in or not, the file stays one that can be read, and who was let in is let in again, also by the next life.
func FuzzLives(f *testing.F) {
	good := lives(format.Seen{Node: "b", Opening: format.Opening{Epoch: 5, Incarnation: 6}}, format.Seen{Node: "c", Opening: format.Opening{Epoch: 1, Incarnation: 1}})
	body := good[:len(good)-sha256.Size]
	said := func(list ...uint64) (b []byte) {
		for _, n := range list {
			b = binary.LittleEndian.AppendUint64(b, n)
		}
		return b
	}
	newer := bytes.Clone(body)
	newer[7]++
	for _, file := range [][]byte{body, newer, body[:len(body)-1], lives()[:16], nil} {
		f.Add(file, "b", said(5, 6))
		f.Add(file, "b", said(9, 9, 5, 6))
		f.Add(file, "b", said(9, 9))
		f.Add(file, "d", said(^uint64(0), ^uint64(0)))
		f.Add(file, "", said(1, 0))
		f.Add(file, string(bytes.Repeat([]byte("x"), 300)), bytes.Repeat(said(1<<63, 2), 70))
	}
	f.Fuzz(func(t *testing.T, file []byte, node string, told []byte) {
		fsys := vfs.NewMem()
		if err := fsys.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		path := fsys.PathJoin(dir, format.LivesFile)
		content := sealed(file)
		if had, err := format.ParseLives(content); err == nil && !bytes.Equal(format.AppendLives(nil, had), content) {
			t.Fatalf("not canonical: %x", content)
		}
		if len(file) > 0 {
			w, err := fsys.Create(path, vfs.WriteCategoryUnspecified)
			if err == nil {
				_, err = w.Write(content)
			}
			if err != nil {
				t.Fatal(err)
			}
			w.Close()
		}
		l, err := OpenLives(fsys, dir, format.Opening{Epoch: 11, Incarnation: 12})
		if err != nil {
			if !errors.Is(err, format.ErrDamaged) && !errors.Is(err, format.ErrNewer) {
				t.Fatalf("it does not start: %v", err)
			}
			return
		}
		var openings []format.Opening
		for len(told) >= 16 {
			openings = append(openings, format.Opening{Epoch: binary.LittleEndian.Uint64(told), Incarnation: binary.LittleEndian.Uint64(told[8:])})
			told = told[16:]
		}
		before, err := wholefile.Read(fsys, path, format.MaxFile)
		if err != nil {
			t.Fatal(err)
		}
		_, refused := l.Admit(node, openings)
		after, err := wholefile.Read(fsys, path, format.MaxFile)
		if err != nil {
			t.Fatal(err)
		}
		had, err := format.ParseLives(after)
		switch {
		case err != nil:
			t.Fatalf("after node %q with %v has asked, the file is: %v", node, openings, err)
		case refused != nil && !bytes.Equal(before, after):
			t.Fatalf("a node that is refused (%v) changes the file", refused)
		case refused != nil:
			return
		case cluster.CheckNodeID(node) != nil || len(openings) == 0:
			t.Fatalf("node %q with %v is let in", node, openings)
		}
		if len(had.Own) == 0 || had.Own[0] != (format.Opening{Epoch: 11, Incarnation: 12}) {
			t.Fatalf("its own starts: %v", had.Own)
		}
		next, err := OpenLives(fsys, dir, format.Opening{Epoch: 13, Incarnation: 14})
		if err != nil {
			t.Fatal(err)
		}
		for _, by := range []*Lives{l, next} {
			if seen, err := by.Admit(node, openings); err != nil || seen != openings[0] {
				t.Fatalf("who was let in is refused: %v, %v", seen, err)
			}
		}
	})
}

// TestLivesStayReadable: a node that cannot be in a cluster is refused, and the file stays as it was.
func TestLivesStayReadable(t *testing.T) {
	l := starts(t, newDisk(t), 1, 1)
	for _, node := range []string{"", "a b", "\x00", string(bytes.Repeat([]byte("x"), cluster.MaxName+1)), string(bytes.Repeat([]byte("x"), 300))} {
		if _, err := l.Admit(node, []format.Opening{{Epoch: 1, Incarnation: 1}}); err == nil || len(l.seen) != 0 {
			t.Errorf("%q is let in: %v", node, l.seen)
		}
	}
	if _, err := l.Admit("b", []format.Opening{{Epoch: 1}}); err == nil {
		t.Error("a start that is none is noted")
	}
}
