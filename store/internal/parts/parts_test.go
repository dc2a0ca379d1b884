package parts

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A rig is a registry with a clock of its own.
type rig struct {
	*Registry
	t   *testing.T
	now time.Time
	v   layout.Version
}

func newRig(t *testing.T, looked bool) *rig {
	r := &rig{t: t, now: time.Unix(1000, 0)}
	r.Registry = New(Config{Now: func() time.Time { return r.now }, Idle: 10 * time.Second, Keep: 5 * time.Second, Most: 6, Open: 3, Share: 6}, looked)
	return r
}

// A value is one in two parts, as a client would put it.
type value struct {
	id   layout.UploadID
	of   layout.Upload
	keys layout.PartKeys
	head []byte
}

func valueOf(key string, id byte) value {
	v := value{id: layout.UploadID{id}, of: layout.Upload{Shape: layout.Shape{Total: layout.MinPartLen + 7, PartLen: layout.MinPartLen}, Key: []byte(key)}}
	v.keys, _ = layout.NewPartKeys(v.id, func([]byte) bool { return true })
	v.head = layout.AppendHead(nil, layout.Head{ID: v.id, Shape: v.of.Shape, Sums: []uint64{uint64(id), 2}})
	return v
}

func (r *rig) begin(v value) {
	r.t.Helper()
	if err := r.Begin(3, v.id, v.keys, v.of, 9); err != nil {
		r.t.Fatal(err)
	}
	r.note(v.keys.Key(layout.UploadPart), layout.AppendUpload(nil, v.of))
}

func (r *rig) part(v value, n int) error {
	_, length := v.of.Part(n)
	return r.Part(v.keys.Key(n), length, []uint64{uint64(v.id[0]), 2}[n-1])
}

func (r *rig) parts(v value) {
	r.t.Helper()
	for n := 1; n <= 2; n++ {
		if err := r.part(v, n); err != nil {
			r.t.Fatal(err)
		}
		r.note(v.keys.Key(n), []byte("part"))
	}
}

func (r *rig) note(key, value []byte) {
	r.v++
	r.Note(3, key, value, value == nil, r.v, false)
}

// whole is a value with its head.
func (r *rig) whole(v value) {
	r.t.Helper()
	r.begin(v)
	r.parts(v)
	list, err := r.Head(v.of.Key, v.head)
	if err != nil || len(list) != 2 || list[0].Read || list[0].Length != layout.MinPartLen || list[1].Length != 7 {
		r.t.Fatalf("%+v, %v", list, err)
	}
	r.note(v.of.Key, v.head)
}

func (r *rig) want(uploads, values, dying int) {
	r.t.Helper()
	if s := r.Stats(); s.Uploads != uploads || s.Values != values || s.Dying != dying {
		r.t.Errorf("%+v, want %d uploads, %d values, %d dying", s, uploads, values, dying)
	}
}

// collect removes what is due.
func (r *rig) collect() (n int) {
	for _, d := range r.Due(100, false, 0, all) {
		for i := d.Parts; i >= 0; i-- {
			r.note(d.Keys.Key(i), nil)
		}
		r.Gone(d.ID)
		n++
	}
	return n
}

// TestLife: an upload becomes a value, which dies with its head, and goes a while later.
func TestLife(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(r *rig)
	}{
		{"delete", func(r *rig) { r.note([]byte("film"), nil) }},
		{"another value", func(r *rig) { r.note([]byte("film"), []byte("small")) }},
		{"an empty value", func(r *rig) { r.note([]byte("film"), []byte{}) }},
	} {
		r := newRig(t, true)
		v := valueOf("film", 1)
		r.whole(v)
		r.want(0, 1, 0)
		if n, ok := r.LenOf([]byte("film")); !ok || n != v.of.Total {
			t.Errorf("%d, %v", n, ok)
		}
		r.note([]byte("film"), v.head) // a touch
		r.now = r.now.Add(24 * time.Hour)
		if r.collect() != 0 {
			t.Fatal("a value is removed")
		}
		c.end(r)
		r.want(0, 0, 1)
		if r.now = r.now.Add(4 * time.Second); r.collect() != 0 {
			t.Errorf("%s: parts go before their time", c.name)
		}
		if len(r.Due(100, true, 6*time.Second, all)) != 0 {
			t.Errorf("%s: in a hurry parts go before a lease", c.name)
		}
		if r.now = r.now.Add(time.Second); r.collect() != 1 {
			t.Errorf("%s: parts do not go", c.name)
		}
		r.want(0, 0, 0)
		if r.Any() || len(r.byKey)+len(r.owners)+len(r.Strays()) != 0 {
			t.Errorf("%s: something is left: %+v", c.name, r.Registry)
		}
	}
}

// TestReplaced: an upload over an upload; the newer one stays.
func TestReplaced(t *testing.T) {
	r := newRig(t, true)
	a, b := valueOf("film", 1), valueOf("film", 2)
	r.whole(a)
	r.whole(b)
	r.want(0, 1, 1)
	// A retry of the first head, in time, is let pass: the store knows whether it is one.
	if _, err := r.Head([]byte("film"), a.head); err != nil {
		t.Error(err)
	}
	r.now = r.now.Add(time.Minute)
	if r.collect() != 0 {
		t.Error("parts go while a head that needs them is on its way")
	}
	r.note([]byte("film"), a.head)
	r.want(0, 1, 1)
	r.now = r.now.Add(time.Minute)
	r.collect()
	r.want(0, 1, 0)
	if _, err := r.Head([]byte("film"), b.head); !errors.Is(err, ErrNoUpload) {
		t.Errorf("a head whose parts are gone: %v", err)
	}
}

// TestRefusals: what does not fit its upload is refused, and typed.
func TestRefusals(t *testing.T) {
	r := newRig(t, true)
	v, other := valueOf("film", 1), valueOf("film", 2)
	if err := r.part(v, 1); !errors.Is(err, ErrNoUpload) {
		t.Errorf("a part of no upload: %v", err)
	}
	if _, err := r.Head(v.of.Key, v.head); !errors.Is(err, ErrNoUpload) {
		t.Errorf("a head of no upload: %v", err)
	}
	if err := r.Begin(3, v.id, v.keys, v.of, 9); err != nil {
		t.Fatal(err)
	}
	if err := r.part(v, 1); !errors.Is(err, ErrParts) {
		t.Errorf("a part before the record is published: %v", err)
	}
	r.begin(v) // the retry
	if err := r.Begin(3, v.id, v.keys, valueOf("other", 1).of, 9); !errors.Is(err, ErrParts) {
		t.Errorf("the id of another: %v", err)
	}
	for name, err := range map[string]error{
		"too long":      r.Part(v.keys.Key(1), layout.MinPartLen+1, 1),
		"empty":         r.Part(v.keys.Key(2), 0, 1),
		"no such part":  r.Part(v.keys.Key(3), 1, 1),
		"the record":    r.Part(v.keys.Key(0), 1, 1),
		"no key":        r.Part([]byte("film"), 1, 1),
		"another nonce": r.Part(otherNonce(v).Key(1), layout.MinPartLen, 1),
	} {
		if !errors.Is(err, ErrParts) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.Head(v.of.Key, v.head); !errors.Is(err, ErrParts) {
		t.Errorf("a head without parts: %v", err)
	}
	r.parts(v)
	if err := r.Part(v.keys.Key(1), layout.MinPartLen, 77); !errors.Is(err, ErrParts) {
		t.Errorf("a part with other bytes: %v", err)
	}
	for name, head := range map[string][]byte{
		"another sum":    layout.AppendHead(nil, layout.Head{ID: v.id, Shape: v.of.Shape, Sums: []uint64{1, 3}}),
		"another length": layout.AppendHead(nil, layout.Head{ID: v.id, Shape: layout.Shape{Total: v.of.Total + 1, PartLen: v.of.PartLen}, Sums: []uint64{1, 2}}),
		"other parts":    layout.AppendHead(nil, layout.Head{ID: v.id, Shape: layout.Shape{Total: v.of.Total, PartLen: 2 * layout.MinPartLen}, Sums: []uint64{1}}),
		"garbage":        v.head[:40],
	} {
		if _, err := r.Head(v.of.Key, head); !errors.Is(err, ErrParts) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.Head([]byte("film2"), v.head); !errors.Is(err, ErrParts) {
		t.Errorf("the head of another key: %v", err)
	}
	// A shorter value than the record has allowed is one.
	short := layout.AppendHead(nil, layout.Head{ID: v.id, Shape: layout.Shape{Total: layout.MinPartLen, PartLen: v.of.PartLen}, Sums: []uint64{1}})
	if list, err := r.Head(v.of.Key, short); err != nil || len(list) != 1 {
		t.Errorf("a shorter value: %v", err)
	}
	r.note(v.of.Key, v.head)
	if err := r.part(v, 1); !errors.Is(err, ErrNoUpload) {
		t.Errorf("a part of what has a head: %v", err)
	}
	if _, err := r.Head(v.of.Key, short); !errors.Is(err, ErrParts) {
		t.Errorf("another head: %v", err)
	}
	if err := r.GiveUp(other.keys.Key(0)); err != nil {
		t.Errorf("an upload that is none is given up: %v", err)
	}
	if err := r.GiveUp(v.keys.Key(0)); err != nil {
		t.Error(err)
	}
	r.want(0, 1, 0)
	if err := r.GiveUp(v.keys.Key(1)); !errors.Is(err, ErrParts) {
		t.Errorf("a part is given up: %v", err)
	}
}

func otherNonce(v value) layout.PartKeys {
	n := 0
	k, _ := layout.NewPartKeys(v.id, func([]byte) bool { n++; return n == 2 })
	return k
}

// TestBounds: uploads under way are bounded, of each owner and with the values together.
func TestBounds(t *testing.T) {
	r := newRig(t, true)
	for i := range byte(3) {
		r.begin(valueOf("film", i))
	}
	v := valueOf("film", 3)
	if err := r.Begin(3, v.id, v.keys, v.of, 9); !errors.Is(err, base.ErrOverloaded) {
		t.Errorf("one more of an owner: %v", err)
	}
	for i := range byte(3) {
		v := valueOf(fmt.Sprint(i), 10+i)
		if err := r.Begin(3, v.id, v.keys, v.of, 8); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Begin(3, v.id, v.keys, v.of, 7); !errors.Is(err, base.ErrOverloaded) {
		t.Errorf("one more in all: %v", err)
	}
	if err := r.GiveUp(valueOf("film", 0).keys.Key(0)); err != nil {
		t.Fatal(err)
	}
	if n := r.collect(); n != 1 {
		t.Errorf("%d are collected: nobody reads the parts of what was given up", n)
	}
	if err := r.Begin(3, v.id, v.keys, v.of, 9); err != nil {
		t.Errorf("there is room again: %v", err)
	}
	r.now = r.now.Add(11 * time.Second)
	if n := r.collect(); n != 6 {
		t.Errorf("%d idle uploads are collected, want 6", n)
	}
	if r.Any() || len(r.byKey)+len(r.owners) != 0 {
		t.Errorf("something is left: %+v", r.Registry)
	}
}

// TestShares: one owner has its share of the values, whatever becomes of them, and of the bytes under way what is its;
// the others are not kept out. What is gone is its again.
func TestShares(t *testing.T) {
	r := newRig(t, true)
	r.cfg.Share, r.cfg.OpenBytes = 2, 3*layout.MinPartLen
	begin := func(id byte, owner uint32) error {
		v := valueOf(fmt.Sprint("film", id), id)
		return r.Begin(3, v.id, v.keys, v.of, owner)
	}
	r.whole(valueOf("film0", 0))
	r.whole(valueOf("film1", 1))
	if err := begin(2, 9); !errors.Is(err, base.ErrOverloaded) {
		t.Errorf("one more than its share: %v", err)
	}
	if err := begin(3, 8); err != nil {
		t.Errorf("another owner: %v", err)
	}
	for id := range byte(2) {
		if err := begin(10+id, 0); err != nil {
			t.Errorf("the main login has no share: %v", err)
		}
	}
	if err := begin(12, 0); !errors.Is(err, base.ErrOverloaded) {
		t.Errorf("more bytes under way than are one's own: %v", err)
	}
	r.note([]byte("film0"), nil)
	if err := begin(2, 9); !errors.Is(err, base.ErrOverloaded) {
		t.Errorf("its parts are there yet: %v", err)
	}
	r.now = r.now.Add(6 * time.Second)
	r.collect()
	if err := begin(2, 9); err != nil {
		t.Errorf("there is room again: %v", err)
	}
	large := valueOf("large", 20)
	large.of.Total = 100 * layout.MinPartLen
	if err := r.Begin(3, large.id, large.keys, large.of, 7); err != nil {
		t.Errorf("one alone may be larger: %v", err)
	}
}

// TestStrays: what is published of an upload that is gone is noted and goes.
func TestStrays(t *testing.T) {
	r := newRig(t, true)
	v := valueOf("film", 1)
	r.note(v.keys.Key(1), []byte("part"))
	r.note([]byte("film"), v.head)
	s := r.Strays()
	if len(s) != 2 || string(s[0].Key) != string(v.keys.Key(1)) || s[0].Version != 0 || string(s[1].Key) != "film" || s[1].Version != r.v {
		t.Errorf("%+v", s)
	}
	r.begin(v)
	r.now = r.now.Add(11 * time.Second)
	r.Due(1, false, 0, all)
	r.note(v.keys.Key(2), []byte("part")) // while its upload goes
	if s := r.Strays(); len(s) != 1 {
		t.Errorf("%+v", s)
	}
	if r.Look() {
		t.Error("a look is needed")
	}
	for range maxStrays + 1 {
		r.note(valueOf("x", 5).keys.Key(1), []byte("part"))
	}
	if len(r.Strays()) != maxStrays || !r.Look() || r.Look() {
		t.Error("too many strays do not lead to one look")
	}
}

// TestFound: what a start finds is live, or an upload; what is published meanwhile counts more.
func TestFound(t *testing.T) {
	for _, c := range []struct {
		name            string
		between         func(r *rig, v value)
		head            bool // what the look reads
		values, uploads int
	}{
		{"a head", func(*rig, value) {}, true, 1, 0},
		{"no head", func(*rig, value) {}, false, 0, 1},
		{"replaced meanwhile", func(r *rig, v value) { r.note(v.of.Key, []byte("x")) }, true, 0, 0},
		{"put meanwhile", func(r *rig, v value) { r.note(v.of.Key, v.head) }, false, 1, 0},
	} {
		r := newRig(t, false)
		v := valueOf("film", 1)
		if !r.Look() || !r.Any() {
			t.Fatal("no look is needed")
		}
		if err := r.Begin(3, layout.UploadID{7}, v.keys, v.of, 9); !errors.Is(err, base.ErrOverloaded) {
			t.Errorf("before the look is over: %v", err)
		}
		if err := r.part(v, 1); !errors.Is(err, base.ErrOverloaded) {
			t.Errorf("before the look is over: %v", err)
		}
		r.note(v.of.Key, v.head) // a touch of what is not found yet
		id, of, fresh := r.Found(3, v.keys.Key(0), layout.AppendUpload(nil, v.of))
		if id != v.id || !fresh || string(of.Key) != "film" {
			t.Fatal(id, of, fresh)
		}
		if _, err := r.Head(v.of.Key, v.head); !errors.Is(err, base.ErrOverloaded) {
			t.Errorf("before it is settled: %v", err)
		}
		c.between(r, v)
		head := []byte("another")
		if c.head {
			head = v.head
		}
		r.Settle(id, head)
		r.FoundPart(3, v.keys.Key(1))
		if _, _, fresh := r.Found(3, v.keys.Key(0), layout.AppendUpload(nil, v.of)); fresh {
			t.Error("it is found twice")
		}
		r.now = r.now.Add(time.Hour)
		if r.collect() != 0 {
			t.Error("something goes before the look is over")
		}
		r.now = r.now.Add(-time.Hour)
		r.EndLook()
		if s := r.Stats(); s.Values != c.values || s.Uploads != c.uploads {
			t.Errorf("%s: %+v", c.name, s)
		}
		if s := r.Strays(); len(s) != 0 {
			t.Errorf("%s: strays %+v", c.name, s)
		}
		if c.uploads == 1 { // its client goes on: parts may be there of which nothing is known
			if err := r.part(v, 2); err != nil {
				t.Error(err)
			}
			r.note(v.keys.Key(2), []byte("part"))
			list, err := r.Head(v.of.Key, v.head)
			if err != nil || !list[0].Read || list[1].Read {
				t.Errorf("%+v, %v", list, err)
			}
		}
	}
	r := newRig(t, false)
	v := valueOf("film", 1)
	r.FoundPart(3, v.keys.Key(1))
	r.Found(3, v.keys.Key(0), []byte("garbage"))
	if s := r.Strays(); len(s) != 2 {
		t.Errorf("a part of no upload, and a record that is none: %+v", s)
	}
}

// TestAnyOrder: whatever comes in whatever order, the parts of a head that is published stay, and in
// the end nothing else is left.
func TestAnyOrder(t *testing.T) {
	for seed := range uint64(2000) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		r := newRig(t, true)
		var head []byte // what the store has under the key
		there := map[string]bool{}
		publish := func(key, value []byte) {
			switch {
			case !layout.IsPartKey(key):
				head = value
			case value == nil:
				delete(there, string(key))
			default:
				there[string(key)] = true
			}
			r.note(key, value)
		}
		// What is let pass is ordered at once or later, and published in its order.
		var way, parked []func()
		flush := func() {
			for _, f := range way {
				f()
			}
			way = nil
			for len(parked) > 0 && rnd.IntN(3) == 0 {
				i := rnd.IntN(len(parked))
				way, parked = append(way, parked[i]), append(parked[:i:i], parked[i+1:]...)
			}
		}
		note := func(key, value []byte) {
			f := func() { publish(key, value) }
			if rnd.IntN(3) == 0 {
				parked = append(parked, f)
			} else {
				way = append(way, f)
			}
		}
		check := func() {
			h, err := layout.ParseHead(head)
			if err != nil {
				return
			}
			v := valueOf("film", h.ID[0])
			for n := range 3 {
				if !there[string(v.keys.Key(n))] {
					t.Fatalf("seed %d: the head %x is there without part %d", seed, h.ID[0], n)
				}
			}
		}
		for range 60 {
			v := valueOf("film", byte(rnd.IntN(4)))
			n := 1 + rnd.IntN(2)
			switch rnd.IntN(10) {
			case 0:
				if r.Begin(3, v.id, v.keys, v.of, 9) == nil {
					note(v.keys.Key(0), layout.AppendUpload(nil, v.of))
				}
			case 1, 2, 3:
				if r.part(v, n) == nil {
					note(v.keys.Key(n), []byte("part"))
				}
			case 4, 5:
				if _, err := r.Head(v.of.Key, v.head); err == nil {
					note(v.of.Key, v.head)
				}
			case 6:
				note(v.of.Key, []byte("small"))
				fallthrough
			default:
				flush()
			case 7:
				r.now = r.now.Add(time.Duration(rnd.IntN(8)) * time.Second)
				for _, d := range r.Due(100, false, 0, all) {
					for i := d.Parts; i >= 0; i-- {
						flush()
						publish(d.Keys.Key(i), nil)
					}
					r.Gone(d.ID)
				}
			}
			check()
		}
		publish([]byte("film"), nil)
		for range 2 {
			r.now = r.now.Add(2 * time.Hour)
			for _, d := range r.Due(100, false, 0, all) {
				for i := d.Parts; i >= 0; i-- {
					publish(d.Keys.Key(i), nil)
				}
				r.Gone(d.ID)
			}
		}
		for _, f := range append(way, parked...) {
			f()
		}
		for _, s := range r.Strays() {
			delete(there, string(s.Key))
		}
		if len(there) != 0 || r.Any() {
			t.Fatalf("seed %d: %d keys are left", seed, len(there))
		}
	}
}

// all says that every shard is ours.
func all(uint16) bool { return true }

// elsewhere notes a write that another replica has ordered.
func (r *rig) elsewhere(key, value []byte) {
	r.v++
	r.Note(3, key, value, value == nil, r.v, true)
}

// TestOrderedElsewhere: of an upload that another replica has let begin this one knows by the record. Its parts are no strays, its head
// makes it live, and it is gone when its record is. Who may remove parts is said by shard.
func TestOrderedElsewhere(t *testing.T) {
	r := newRig(t, true)
	v := valueOf("k", 1)
	r.elsewhere(v.keys.Key(layout.UploadPart), layout.AppendUpload(nil, v.of))
	for n := 1; n <= 2; n++ {
		r.elsewhere(v.keys.Key(n), []byte("part"))
	}
	if s := r.Strays(); len(s) != 0 {
		t.Fatalf("%d strays", len(s))
	}
	// This replica leads now: the head is let pass once its parts are read.
	list, err := r.Head([]byte("k"), v.head)
	if err != nil || len(list) != 2 || !list[0].Read {
		t.Fatalf("%+v, %v", list, err)
	}
	r.elsewhere([]byte("k"), v.head)
	if st := r.Stats(); st.Values != 1 || st.Uploads != 0 {
		t.Errorf("%+v", st)
	}
	r.elsewhere([]byte("k"), []byte("another value"))
	r.now = r.now.Add(time.Hour)
	nobody := func(uint16) bool { return false }
	if due := r.Due(10, false, 0, nobody); len(due) != 0 {
		t.Errorf("%d uploads are to be removed by one who must not", len(due))
	}
	if due := r.Due(10, false, 0, all); len(due) != 1 || due[0].ID != v.id {
		t.Errorf("due: %+v", due)
	}
	for n := 2; n >= layout.UploadPart; n-- {
		r.elsewhere(v.keys.Key(n), nil)
	}
	if st := r.Stats(); st.Dying != 0 || r.Any() {
		t.Errorf("the record is gone: %+v", st)
	}
	// A record that makes no sense is a stray, wherever it was ordered.
	other := valueOf("l", 2)
	r.elsewhere(other.keys.Key(layout.UploadPart), []byte("nonsense"))
	if s := r.Strays(); len(s) != 1 {
		t.Errorf("%d strays", len(s))
	}
	if r.Look() {
		t.Error("a look is needed")
	}
	if r.LookAgain(); !r.Look() || r.Look() {
		t.Error("one look was asked for")
	}
}

// TestForget: uploads in shards that have another state by now count no more, under way or not; those in others stay. What was being looked
// for before is looked for again.
func TestForget(t *testing.T) {
	r := newRig(t, true)
	r.whole(valueOf("k", 1))
	r.begin(valueOf("l", 2))
	other := valueOf("m", 3)
	if err := r.Begin(4, other.id, other.keys, other.of, 9); err != nil {
		t.Fatal(err)
	}
	r.LookAgain()
	if !r.Look() {
		t.Fatal("no look")
	}
	r.Forget([]uint16{2, 3})
	r.EndLook()
	if st := r.Stats(); st.Values != 0 || st.Uploads != 1 {
		t.Errorf("%+v", st)
	}
	if !r.Look() {
		t.Error("the look of before counts")
	}
	if err := r.Begin(3, valueOf("n", 4).id, valueOf("n", 4).keys, valueOf("n", 4).of, 9); !errors.Is(err, base.ErrOverloaded) {
		t.Errorf("nobody knows what is there, and an upload begins: %v", err)
	}
	r.EndLook()
	for i := range byte(2) { // Open is 3, and one is under way
		v := valueOf("n", 4+i)
		if err := r.Begin(3, v.id, v.keys, v.of, 9); err != nil {
			t.Errorf("the forgotten ones are counted: %v", err)
		}
	}
	r.Gone(other.id)
	if st := r.Stats(); st.Uploads != 2 {
		t.Errorf("%+v", st)
	}
}
