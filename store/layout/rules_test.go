package layout

import (
	"bytes"
	"testing"

	"github.com/rdmakv/rdmakv/internal/teeth"
)

// Three rules of the reader, each in a scene that shows plainly what happens
// without it, and in the model, which has to find it by itself.

// mustNot fails if a scene reports that the violation happened.
func mustNot(t *testing.T, violated func() bool) {
	t.Helper()
	if violated() {
		t.Error("violated")
	}
}

// inModel runs the model: so many worlds if a rule is broken, and few if not,
// since TestModel runs many all the time.
func inModel(t *testing.T, worlds int) {
	t.Helper()
	if teeth.Mutant == "" {
		worlds = 40
	}
	var sum tally
	if err := runModel(1000, worlds, bugNone, &sum); err != nil {
		t.Error(err)
	}
}

// checksum-covers-version: the state word is sampled while v1 is live at a place, the
// body after v3 was written there as pending. In between v2 was live elsewhere.
func TestChecksumCoversVersionScene(t *testing.T) {
	mustNot(t, func() bool {
		const place = 77
		mem := testMem(64)
		key := []byte("k")
		write := func(v Version, value string) {
			WriteItem(mem, testInc, place, Item{Version: v, Key: key, Value: []byte(value)}, Pending)
		}
		write(1, "one")
		SetState(mem, 1, Live)
		sampled := bytes.Clone(mem[:wordSize])
		SetState(mem, 1, Dead)
		write(3, "two")
		read := append(sampled, mem[wordSize:]...)
		v, err := ParseItem(read, testInc, place)
		return err == nil && v.State == Live
	})
}

// A single get over bytes that the scene gives for each READ.
func scene(v *View, key []byte, answer func(n int, r *Read)) Action {
	var l Lookup
	l.Start(v, NewDir(v), 0, key, Loc{}, 1<<20)
	for n := 0; ; n++ {
		a := l.Step()
		if a != ActionRead {
			return a
		}
		for i := range l.Reads {
			l.Reads[i].Buf = make([]byte, l.Reads[i].Len)
			answer(n, &l.Reads[i])
		}
	}
}

// mismatch-proves-nothing: a slot is sampled, the key moves on, its former place is
// given to another key, and only then the item is READ. The key was there all
// the time.
func TestMismatchProvesNothingScene(t *testing.T) {
	mustNot(t, func() bool {
		w := newWorld(1, modelHashSeed, twinKeys(), 4, false)
		finish := func() {
			for w.clock = 1; w.busy(); {
				w.tickWriter()
			}
		}
		k, other := w.keys[0], w.keys[2]
		w.put(k)
		finish()
		former := k.cell
		return scene(&w.view, k.name, func(n int, r *Read) {
			if r.Place == w.cellPlace(former) && k.cell == former {
				w.put(k)
				finish()
				for other.cell != former { // until the free list hands it out
					w.put(other)
					finish()
				}
			}
			copy(r.Buf, w.mem[r.Place.Byte():])
		}) == ActionAbsent
	})
}

// headers-fit-the-key: index memory that was zeroed, or that holds another segment by now, has
// empty slots; a directory that is out of date leads there.
func TestHeadersFitTheKeyScene(t *testing.T) {
	mustNot(t, func() bool {
		w := newWorld(1, modelHashSeed, twinKeys(), 4, false)
		seg := w.segs[0].place
		return scene(&w.view, w.keys[0].name, func(n int, r *Read) {
			copy(r.Buf, w.mem[r.Place.Byte():])
			if r.Place >= seg && r.Len == PairSize {
				clear(r.Buf)
			}
		}) == ActionAbsent
	})
}

func TestChecksumCoversVersionModel(t *testing.T) { inModel(t, 800) }
func TestMismatchProvesNothingModel(t *testing.T) { inModel(t, 40) }
func TestHeadersFitTheKeyModel(t *testing.T)      { inModel(t, 400) }
