package journal

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/log/logtest"
)

// segments returns the names of the segments of a log.
func segments(d *logtest.Disk) []string {
	names := slices.DeleteFunc(d.Names(), func(name string) bool { return !log.IsPart(name) || name == "LIFE" })
	slices.Sort(names)
	return names
}

// TestTailDamages: of a log that is damaged in several files each of them is named, not the
// first alone; and what keeps it from being looked at otherwise is no damage.
func TestTailDamages(t *testing.T) {
	l := newLife(t, 7)
	l.sync = log.Always
	l.open()
	value := make([]byte, 100<<10)
	for i := range 40 {
		f := &flight.Flight{Op: &base.Op{}, Result: &base.Result{}}
		f.Effects = []*flight.Effect{{Effect: base.Effect{Key: []byte{byte(i)}, Value: value}}}
		l.next = f.Number(l.next)
		l.commit(f)
	}
	l.close(true)
	c := disk.TailConfig{Dir: l.disk, Store: [16]byte{9}}
	tail, err := OpenTail(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := tail.Close(); err != nil {
		t.Fatal(err)
	}
	names := segments(l.disk)
	if len(names) < 4 {
		t.Fatalf("the log has %q: too few for this test", names)
	}
	broken := []string{names[1], names[2]}
	for _, name := range broken {
		if err := l.disk.Flip(name, 300<<10, 1); err != nil {
			t.Fatal(err)
		}
	}
	_, err = OpenTail(t.Context(), c)
	var many disk.Damages
	if !errors.As(err, &many) || !errors.Is(err, base.ErrCorrupt) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("%v", err)
	}
	for _, name := range broken {
		n := 0
		for _, err := range many {
			var damage *base.CorruptError
			if errors.As(err, &damage) && damage.File == "log/"+name {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s is named %d times in %v", name, n, []error(many))
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []disk.TailConfig{c, {Dir: logtest.New(logtest.Options{}), Store: c.Store}, {Dir: l.disk, Store: [16]byte{8}}} {
		if _, err := OpenTail(ctx, c); err == nil {
			t.Errorf("%+v: it is read", c)
		} else if errors.As(err, &many) && len(many) < 2 {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
