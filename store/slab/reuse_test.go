package slab

import (
	"bytes"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/reclaim"
)

// The story behind the list of retired pages: a client remembers where "victim"
// was. The page is given to another class, and an attacker's value there holds
// bytes that are a live item of "victim" for exactly that place (incarnation
// and place are known to every client). A client that believed them would
// return a value that no client wrote.

const victimSize = 144

var victimKey = []byte("victim--16 bytes")

// reader is the part of a client that the rule is about: a remembered place,
// and the newest reclaim version whose list it has seen.
type reader struct {
	w     *world
	place layout.Place // 0: none
	seen  uint64
}

// renew is what a client does before it uses a lease that came with a higher
// reclaim version: it reads the list and drops its places there.
func (r *reader) renew() {
	hdr := r.w.table.Header()
	beat, err := layout.ParseBeat(r.w.table.Root()[layout.BeatOffset:], hdr.Incarnation)
	if err != nil {
		r.w.t.Fatal(err)
	}
	if beat.ReclaimVersion-r.seen > uint64(hdr.ReclaimEntries) {
		r.place = 0
	}
	for v := r.seen + 1; r.place != 0 && v <= beat.ReclaimVersion; v++ {
		e, err := layout.ParseRetired(r.w.table.Root()[layout.RetiredOffset(hdr, v):])
		if err != nil || e.Version != v || e.Contains(r.place) {
			r.place = 0
		}
	}
	r.seen = beat.ReclaimVersion
}

// get READs the remembered place and says whether it accepts what it finds.
func (r *reader) get() (value []byte, believed bool) {
	if r.place == 0 {
		return nil, false
	}
	v, err := layout.ParseItem(bytes.Clone(r.w.table.Bytes(r.place, victimSize)), 3, r.place)
	if err != nil || v.State != layout.Live || !bytes.Equal(v.Key(), victimKey) {
		return nil, false
	}
	return v.Value(), true
}

// fillPage writes a page full of items with the victim among them, lets a
// client see it, and takes them all away again, so that the page is retired.
func (w *world) fillPage() *reader {
	w.table.Beat(1)
	r := &reader{w: w}
	type place struct {
		p     layout.Place
		class uint8
	}
	var all []place
	for i := range 3 * PageBytes / victimSize {
		p, class, err := w.slabs.Alloc(victimSize)
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, place{p, class})
		version := layout.Version(i + 1)
		layout.WriteItem(w.slabs.Bytes(p, class), 3, p, layout.Item{Version: version, Key: victimKey, Value: make([]byte, 100)}, layout.Pending)
		layout.SetState(w.slabs.Bytes(p, class), version, layout.Live)
		r.place = p
	}
	r.place = all[40].p
	r.renew()
	if _, ok := r.get(); !ok {
		w.t.Fatal("the client does not find the item at all")
	}
	for i, it := range all {
		layout.SetState(w.slabs.Bytes(it.p, it.class), layout.Version(i+1), layout.Dead)
		w.slabs.Free(it.p, it.class)
	}
	return r
}

// forge takes all memory there is for values that hold live items of the
// victim at the very place, and returns how many of them lie over it.
func (w *world) forge(at layout.Place) (hits int) {
	for {
		p, class, err := w.slabs.Alloc(4096)
		if err != nil {
			return hits
		}
		mem := w.slabs.Bytes(p, class)
		if at < p || at+victimSize/8 > p+4096/8 {
			continue
		}
		hits++
		off := int(at-p) * 8
		// The forger works in memory of its own and hands the bytes in as a
		// value; where they land in the item is its choice too.
		forged := mem[off : off+victimSize]
		layout.WriteItem(forged, 3, at, layout.Item{Version: 1 << 40, Key: victimKey, Value: bytes.Repeat([]byte{0xbd}, 100)}, layout.Pending)
		layout.SetState(forged, 1<<40, layout.Live)
	}
}

// An operation that starts long after the page was reused, with a place that
// was remembered all the time and a lease that is quite fresh.
func hourLater(t *testing.T) (forgedBelieved bool) {
	w := newWorld(t, 3*mib)
	r := w.fillPage()
	w.pass(10 * time.Second)
	hits := w.forge(r.place)
	w.pass(10 * time.Second) // what was found under pressure, too
	if hits += w.forge(r.place); hits == 0 {
		t.Fatal("the page never changed class: the scenario proves nothing")
	}
	r.renew()
	_, believed := r.get()
	return believed
}

// An operation whose READ was posted just before the page was retired, and
// whose words are fetched up to the end of the lease that it had.
func inFlight(t *testing.T) (forgedBelieved bool) {
	w := newWorld(t, 3*mib)
	r := w.fillPage() // posted in here
	for w.now.Before(time.Unix(1000, 0).Add(lease)) {
		w.forge(r.place)
		if _, believed := r.get(); believed {
			return true
		}
		w.pass(reclaim.BeatMargin)
	}
	return false
}

func TestReuseIsNeverBelieved(t *testing.T) {
	if hourLater(t) {
		t.Error("a remembered place showed a forged item")
	}
	if inFlight(t) {
		t.Error("a READ in flight fetched a forged item within its lease")
	}
}
