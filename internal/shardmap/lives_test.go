package shardmap

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/shardmap/format"
	"github.com/rdmakv/rdmakv/internal/wholefile"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

// starts opens the lives of a directory: one more start of its node.
func starts(t testing.TB, fs vfs.FS, epoch, incarnation uint64) *Lives {
	t.Helper()
	l, err := OpenLives(fs, dir, format.Opening{Epoch: epoch, Incarnation: incarnation})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// clone is a copy of a directory as a crash leaves it now.
func clone(fs *crashfs.Disk) vfs.FS { return fs.CrashClone(vfs.CrashCloneCfg{}) }

// TestSetBackIsRefused: a directory that was set back is refused, also if it has been started so often since that its epoch is higher than the one
// that was seen; the one that it was copied from is not.
func TestSetBackIsRefused(t *testing.T) {
	node, other := newDisk(t), newDisk(t)
	peer := starts(t, other, 1, 100)
	admit := func(l *Lives) error { _, err := peer.Admit("b", l.Own()); return err }
	for e := range uint64(3) {
		if err := admit(starts(t, node, e+1, e+1)); err != nil {
			t.Fatal(err)
		}
	}
	old := clone(node)
	// It starts twice unseen, and is seen then.
	starts(t, node, 4, 4)
	newest := starts(t, node, 5, 5)
	if err := admit(newest); err != nil {
		t.Fatalf("a node that was not seen for two starts: %v", err)
	}
	for e := uint64(4); e < 9; e++ {
		back := starts(t, old, e, 1000+e)
		for range 2 {
			seen, err := peer.Admit("b", back.Own())
			if !errors.Is(err, ErrSetBack) || seen != (format.Opening{Epoch: 5, Incarnation: 5}) {
				t.Errorf("the older copy in epoch %d: %+v, %v", e, seen, err)
			}
			peer = starts(t, other, 2, 200+e) // what was seen outlives a restart
		}
	}
	if err := admit(newest); err != nil {
		t.Errorf("the newest directory: %v", err)
	}
	if err := admit(starts(t, node, 6, 6)); err != nil {
		t.Errorf("the newest directory, started again: %v", err)
	}
}

// TestTwoOfOneOpening: of two lives that began from the same state the one counts that was seen first.
func TestTwoOfOneOpening(t *testing.T) {
	node := newDisk(t)
	peer := starts(t, newDisk(t), 1, 1)
	starts(t, node, 1, 1)
	twin := clone(node)
	a, b := starts(t, node, 2, 20), starts(t, twin, 2, 21)
	if _, err := peer.Admit("b", a.Own()); err != nil {
		t.Fatal(err)
	}
	if _, err := peer.Admit("b", b.Own()); !errors.Is(err, ErrSetBack) {
		t.Errorf("the other: %v", err)
	}
	if _, err := peer.Admit("b", nil); err == nil || errors.Is(err, ErrSetBack) {
		t.Errorf("one that tells of no start: %v", err)
	}
}

// TestLongUnseen: a node that has started more often than it can tell of is let in.
func TestLongUnseen(t *testing.T) {
	node := newDisk(t)
	peer := starts(t, newDisk(t), 1, 1)
	var l *Lives
	for e := range uint64(3 * format.MaxOpenings) {
		if l = starts(t, node, e+1, e+1); e == 1 {
			if _, err := peer.Admit("b", l.Own()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := len(l.Own()); n != format.MaxOpenings {
		t.Fatalf("it tells of %d starts", n)
	}
	if _, err := peer.Admit("b", l.Own()); err != nil {
		t.Errorf("it is refused: %v", err)
	}
	back := append([]format.Opening(nil), l.Own()...)
	for i := range back {
		back[i].Incarnation += 1000
	}
	if _, err := peer.Admit("b", back); !errors.Is(err, ErrSetBack) {
		t.Errorf("a full list without what was seen: %v", err)
	}
}

// TestSeenIsDurable: what Admit has let in is on the disk when it returns, and what the disk has not is not let in.
func TestSeenIsDurable(t *testing.T) {
	disk := newDisk(t)
	fails := false
	fs := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if fails && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return errorfs.ErrInjected
		}
		return nil
	}))
	peer := starts(t, fs, 1, 1)
	first := []format.Opening{{Epoch: 1, Incarnation: 7}}
	if _, err := peer.Admit("b", first); err != nil {
		t.Fatal(err)
	}
	fails = true
	later := append([]format.Opening{{Epoch: 2, Incarnation: 8}}, first...)
	if _, err := peer.Admit("b", later); !errors.Is(err, errorfs.ErrInjected) || errors.Is(err, ErrSetBack) {
		t.Errorf("on a disk that fails: %v", err)
	}
	if _, err := peer.Admit("b", first); err != nil {
		t.Errorf("what is known needs no disk: %v", err)
	}
	fails = false
	if _, err := peer.Admit("b", later); err != nil {
		t.Errorf("the disk works again: %v", err)
	}
	again := starts(t, clone(disk), 2, 2)
	if seen, err := again.Admit("b", first); !errors.Is(err, ErrSetBack) || seen != later[0] {
		t.Errorf("after a crash: %+v, %v", seen, err)
	}
}

// TestDamagedLives: each flipped bit and each cut of LIVES is found, and a newer one is told from a damaged one.
func TestDamagedLives(t *testing.T) {
	fs := newDisk(t)
	l := starts(t, fs, 1, 1)
	for i := range 3 {
		if _, err := l.Admit(fmt.Sprint("n", i), []format.Opening{{Epoch: 1, Incarnation: uint64(i + 1)}}); err != nil {
			t.Fatal(err)
		}
	}
	path := fs.PathJoin(dir, format.LivesFile)
	whole, err := wholefile.Read(fs, path, format.MaxFile)
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(whole) {
		b := append([]byte(nil), whole...)
		b[i] ^= 1 << (i % 8)
		if _, err := format.ParseLives(b); !errors.Is(err, format.ErrDamaged) {
			t.Errorf("byte %d: %v", i, err)
		}
		if _, err := format.ParseLives(whole[:i]); !errors.Is(err, format.ErrDamaged) {
			t.Errorf("%d bytes: %v", i, err)
		}
	}
	if err := wholefile.Replace(fs, dir, format.LivesFile, whole[:len(whole)-1]); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenLives(fs, dir, format.Opening{Epoch: 2, Incarnation: 2}); !errors.Is(err, format.ErrDamaged) {
		t.Errorf("a damaged file: %v", err)
	}
}

// TestMostLives: there is room for what a cluster can have, and not for more.
func TestMostLives(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	var l format.Lives
	for range format.MaxOpenings {
		l.Own = append(l.Own, format.Opening{Epoch: rng.Uint64(), Incarnation: max(1, rng.Uint64())})
	}
	for i := range cluster.MaxNodes {
		l.Seen = append(l.Seen, format.Seen{Node: fmt.Sprintf("%0*d", cluster.MaxName, i), Opening: l.Own[i%len(l.Own)]})
	}
	b := format.AppendLives(nil, l)
	got, err := format.ParseLives(b)
	if err != nil || len(b) != format.MaxLives || fmt.Sprint(got) != fmt.Sprint(l) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	peer := starts(t, newDisk(t), 1, 1)
	peer.seen = l.Seen
	if _, err := peer.Admit("one more", l.Own); err == nil || errors.Is(err, ErrSetBack) {
		t.Errorf("one node more: %v", err)
	}
	l.Seen[3], l.Seen[4] = l.Seen[4], l.Seen[3]
	if _, err := format.ParseLives(format.AppendLives(nil, l)); !errors.Is(err, format.ErrDamaged) {
		t.Errorf("out of order: %v", err)
	}
}
