package log_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/log/logtest"
)

// atRest returns a disk with a log of several lives, and its model. The last life ends by
// a clean stop, or by a kill; nothing is pending on the disk then, either.
func atRest(t *testing.T, k kind, clean bool) (*logtest.Disk, *model) {
	t.Helper()
	d, m := logtest.New(logtest.Options{NoDirect: k.noDirect}), &model{}
	for life := range 3 {
		r := m.begin(t, d, k.sync, uint64(life))
		r.size = 2000
		// One writer: at each end just one frame is not known to be durable.
		for range 5 {
			must(t, r.put(true))
			must(t, r.sync())
		}
		if life == 2 && clean {
			must(t, r.Close(true))
		}
		r.end()
		d = d.Crash(1)
	}
	return d, m
}

// flipped opens and replays a log with one rotten byte. It returns what the log says, and
// how many frames it has told if that is nothing. What it tells must be what was written.
func flipped(k kind, d *logtest.Disk, m *model, reach log.Position) (frames int, err error) {
	m = m.clone()
	for i := range m.frames {
		m.frames[i].sure, m.frames[i].done = false, false
	}
	m.life, m.epoch = 0, 0
	c := config(d, k.sync)
	c.Reach = reach
	l, err := log.Open(c)
	if err != nil {
		return 0, err
	}
	err = m.replay(l, false)
	if err == nil {
		err = l.Start(l.Found().Epoch + 1)
	}
	return len(m.frames), errors.Join(err, l.Close(false))
}

// TestEveryByteFlipped flips bits of each byte of each file: of headers, frames, padding,
// LIFE, and free files. Either the log is damaged, or nothing that it tells changes. Only
// the newest frame of a log that was not stopped cleanly may pass for torn, and only if
// nobody knows from elsewhere that it was durable. The same for whole sectors.
func TestEveryByteFlipped(t *testing.T) {
	for _, k := range []kind{kinds[0], kinds[1], kinds[2], kinds[5]} {
		for _, clean := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/clean=%v", k.name, clean), func(t *testing.T) {
				t.Parallel()
				everyByte(t, k, clean)
			})
		}
	}
}

func everyByte(t *testing.T, k kind, clean bool) {
	d, m := atRest(t, k, clean)
	// The first opening writes again what has to be, and gives back what is left over; its
	// own life and segment stay, without a frame.
	r, err := m.open(config(d, k.sync), false, 99)
	must(t, err)
	r.size = 500
	for range 4 {
		must(t, errors.Join(r.put(true), r.sync()))
	}
	end := m.frames[len(m.frames)-1].at
	if clean {
		must(t, r.Close(true))
	}
	r.end()
	d = d.Crash(1)
	all := len(m.frames)
	part := 25 // of what is tried, one in so many
	if *crashEvery {
		part = 1
	} else if testing.Short() {
		part = 400
	}
	rnd := rand.New(rand.NewPCG(*crashSeed, 5))
	found, silent, torn := 0, 0, 0
	check := func(where string, d *logtest.Disk, reach log.Position) {
		t.Helper()
		n, err := flipped(k, d.Clone(), m, reach)
		switch {
		case errors.Is(err, errWrong):
			t.Fatalf("%s: %v", where, err)
		case err != nil:
			if !errors.Is(err, log.ErrDamaged) && !strings.Contains(err.Error(), "use a newer one") {
				t.Errorf("%s: %v, want a *DamageError", where, err)
			}
			found++
		case n == all:
			silent++
		case n == all-1 && !clean && reach == 0:
			torn++
		default:
			t.Fatalf("%s: %d frames of %d are told, and nothing is damaged", where, n, all)
		}
	}
	for _, name := range d.Names() {
		b, err := d.Contents(name)
		must(t, err)
		used := int64(len(b))
		for used > 0 && b[used-1] == 0 {
			used--
		}
		for off := int64(0); off < min(used+100, int64(len(b))); off++ {
			// Heads of frames and records are met more often than what is between.
			if rare := off%4096 > 130; rnd.IntN(part) != 0 || rare && !*crashEvery && rnd.IntN(40) != 0 {
				continue
			}
			rotten := d.Clone()
			must(t, rotten.Flip(name, off, 1<<(off%8)))
			where := fmt.Sprintf("%s, bit %d of byte %d", name, off%8, off)
			check(where, rotten, 0)
			if !clean {
				rotten := d.Clone()
				must(t, rotten.Flip(name, off, 0xff))
				check(where+" and all others, the end known", rotten, end+1)
			}
		}
		for off := int64(0); off < min(used+512, int64(len(b))); off += 512 {
			if rnd.IntN(part) > 4 {
				continue
			}
			rotten := d.Clone()
			must(t, rotten.RotSector(name, off))
			check(fmt.Sprintf("%s, sector at %d", name, off), rotten, 0)
			rotten = d.Clone()
			must(t, rotten.ZeroSector(name, off))
			check(fmt.Sprintf("%s, zeros at %d", name, off), rotten, 0)
		}
	}
	// The newest frame of all: it passes for torn, unless somebody knows better.
	rotten := d.Clone()
	must(t, rotten.Flip(fmt.Sprintf("%08x.seg", end.Segment()), end.Offset(), 1))
	before := torn
	check("the newest frame", rotten, 0)
	if k.sync == log.Always && !clean && torn != before+1 {
		t.Error("the newest frame that nobody knew to be durable does not pass for torn")
	}
	before = found
	check("the newest frame, its end known", rotten, end+1)
	if found != before+1 {
		t.Error("the newest frame is rotten, was durable for sure, and is not missed")
	}
	t.Logf("%d found, %d without effect, %d pass for torn", found, silent, torn)
	if found < 10 || silent+torn == 0 {
		t.Error("one of the outcomes was hardly met")
	}
}

// TestLostFiles takes away one file after the other. A segment or LIFE that is missing is
// damage; a free file is not missed. The newest segment is missed only by those who know
// up to where the log was durable: it could be one that a start was about to make.
func TestLostFiles(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		d, m := atRest(t, k, false)
		for _, name := range d.Names() {
			lost := d.Clone()
			lost.Lose(name)
			n, err := flipped(k, lost, m, m.frames[len(m.frames)-1].at+1)
			switch free := strings.HasSuffix(name, ".free"); {
			case errors.Is(err, errWrong):
				t.Errorf("%s is lost: %v", name, err)
			case free && (err != nil || n != len(m.frames)):
				t.Errorf("%s is lost: %d frames of %d, %v", name, n, len(m.frames), err)
			case !free && !errors.Is(err, log.ErrDamaged):
				t.Errorf("%s is lost: %d frames of %d, %v", name, n, len(m.frames), err)
			}
		}
	})
}

// TestForeignFiles: hostile and foreign files in the directory end an opening with an
// error, or change nothing. They never make it panic or tell what was not written.
func TestForeignFiles(t *testing.T) {
	k := kinds[0]
	d, m := atRest(t, k, false)
	names := d.Names()
	segment := ""
	for _, name := range names {
		if strings.HasSuffix(name, ".seg") {
			segment = name
		}
	}
	whole, err := d.Contents(segment)
	must(t, err)
	for name, b := range map[string][]byte{
		"ffffffff.seg":    whole,
		"00000063.seg":    whole,
		"0000000z.seg":    whole,
		"1.seg":           whole,
		"77.free":         whole,
		"78.free":         nil,
		"x.new":           whole,
		"lost+found":      nil,
		"LIFE":            nil,
		"00000000.seg":    whole,
		segment:           whole[:len(whole)/2+1],
		"00000001.seg":    nil,
		"00000002.seg":    whole,
		"99999999999.seg": whole,
	} {
		hostile := d.Clone()
		hostile.Put(name, b)
		n, err := flipped(k, hostile, m, 0)
		if errors.Is(err, errWrong) || err == nil && n != len(m.frames) && name != segment {
			t.Errorf("%s with %d bytes: %d frames of %d, %v", name, len(b), n, len(m.frames), err)
		}
	}
	c := config(d.Clone(), k.sync)
	c.Store[0]++
	if _, err := log.Open(c); !errors.Is(err, log.ErrForeign) {
		t.Errorf("another store's log: %v", err)
	}
	c = config(logtest.New(logtest.Options{}), k.sync)
	c.Create = false
	if _, err := log.Open(c); !errors.Is(err, log.ErrNoLog) {
		t.Errorf("no log: %v", err)
	}
}

// TestHeaderOfTheNewest: the header of the newest segment rots. It is the second of its
// life, so LIFE and the lives before know nothing of it: if a segment with a bad header
// counted as a file that was never used, what was acknowledged in it would be gone, and
// nothing would tell.
func TestHeaderOfTheNewest(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		d, m := logtest.New(logtest.Options{NoDirect: k.noDirect}), &model{}
		r := m.begin(t, d, k.sync, 1)
		r.size = 100 << 10
		for r.Stats().Changes == 0 {
			must(t, r.put(false))
		}
		r.size = 500
		must(t, errors.Join(r.put(true), r.sync()))
		end := r.Stats().End
		r.end()
		d = d.Crash(1)
		name := fmt.Sprintf("%08x.seg", end.Segment())
		for off := int64(0); off < 4096; off += 1 + off/120*101 {
			rotten := d.Clone()
			must(t, rotten.Flip(name, off, 0x10))
			_, err := flipped(k, rotten, m, 0)
			if !errors.Is(err, log.ErrDamaged) && (err == nil || !strings.Contains(err.Error(), "use a newer one")) {
				t.Fatalf("byte %d of %s: %v, want a *DamageError", off, name, err)
			}
		}
	})
}
