package reads

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/internal/base"
)

var historySeed = flag.Uint64("history.seed", 0, "of TestHistories; 0: new ones")

// TestHistories: whatever is written, whatever memory has of it, and at every step of a
// checkpoint, each answer is what a model says that keeps everything: of a key what is
// published, of a page what was published when it was begun.
func TestHistories(t *testing.T) {
	runs := 12
	if testing.Short() {
		runs = 3
	}
	for range runs {
		seed := *historySeed
		if seed == 0 {
			seed = rand.Uint64()
		}
		t.Run(fmt.Sprintf("history.seed=%d", seed), func(t *testing.T) {
			h := &history{world: newWorld(t, 3, vfs.NewMem()), rng: rand.New(rand.NewPCG(seed, 0))}
			for range 400 {
				h.step()
				h.look(h.key())
				if t.Failed() {
					return
				}
			}
			h.land()
			h.page()
			h.walk()
			for _, key := range keysOf(h.state) {
				h.look(key)
			}
		})
	}
}

// A history is a world at random.
type history struct {
	*world
	rng  *rand.Rand
	open *PageForTests // a page that was begun
	was  map[string]record
}

// key returns one of few, so that most are written often.
func (h *history) key() string { return fmt.Sprintf("%c%d", 'a'+h.rng.IntN(6), h.rng.IntN(4)) }

// value returns one of each size that stands differently somewhere.
func (h *history) value() string {
	n := h.rng.IntN(40)
	switch h.rng.IntN(12) {
	case 0:
		n = 900 + h.rng.IntN(300)
	case 1:
		n = 70_000 + h.rng.IntN(10_000)
	case 2:
		n = mostBody + h.rng.IntN(mostBody)
	}
	return strings.Repeat(string(rune('a'+h.rng.IntN(26))), n)
}

func (h *history) ttl() time.Duration {
	if h.rng.IntN(3) == 0 {
		return time.Duration(1+h.rng.IntN(20)) * time.Second
	}
	return 0
}

// step is one thing that happens.
func (h *history) step() {
	switch n := h.rng.IntN(20); n {
	case 0:
		h.wall = h.wall.Add(time.Duration(h.rng.IntN(4000)) * time.Millisecond)
	case 1:
		if n := len(h.history); n > 0 && !h.behind() {
			h.bring(1+h.rng.IntN(n), h.rng.IntN(3) == 0)
		}
	case 2, 3:
		h.leave(1 + h.rng.IntN(4))
	case 4, 5:
		h.evict(h.key())
	case 6:
		h.full = !h.full
	case 7:
		h.begin()
	case 8:
		h.page()
	case 9:
		h.land()
		h.walk()
	case 10, 11, 12:
		for len(h.flying) > 0 && h.rng.IntN(3) > 0 {
			h.publish()
		}
	default:
		h.write()
	}
}

// behind says whether the last checkpoint has not ended: one at a time.
func (h *history) behind() bool {
	for _, sh := range h.shards {
		sh.Mu.Lock()
		clean := sh.Dirty.Clean()
		sh.Mu.Unlock()
		if clean < h.brought {
			return true
		}
	}
	return false
}

// write orders a write of any kind.
func (h *history) write() {
	key := h.key()
	op := base.Op{Key: []byte(key), Shard: h.shardOf(key).ID}
	switch h.rng.IntN(8) {
	case 0:
		op.Kind = base.OpDelete
	case 1:
		op.Kind, op.TTL = base.OpTouch, h.ttl()
	case 2:
		op.Kind, op.Delta = base.OpIncrement, 1
	case 3:
		op.Kind, op.Key = base.OpBatch, nil
		for i := range 4 {
			p := base.Part{Key: fmt.Appendf(nil, "%c%d", key[0], i), TTL: h.ttl()}
			if p.Delete = h.rng.IntN(4) == 0; !p.Delete {
				p.Value = []byte(h.value())
			} else {
				p.TTL = 0
			}
			op.Parts = append(op.Parts, p)
		}
	case 4:
		op.Value, op.If = []byte(h.value()), base.CondAbsent
	default:
		op.Value, op.TTL = []byte(h.value()), h.ttl()
	}
	h.order(op)
}

// alive returns what is published of a key now. sure: no write is in flight that may have
// been judged while the key was there.
func (h *history) alive(key string) (rec record, there, sure bool) {
	rec, there = h.state[key]
	if there && rec.expiry != 0 && rec.expiry <= h.mem.Clock.Now() {
		sh := h.shardOf(key)
		sh.Mu.Lock()
		defer sh.Mu.Unlock()
		return rec, false, sh.Inflight(h.hash(key), []byte(key)) == nil
	}
	return rec, there, true
}

// look asks for one key in each way.
func (h *history) look(key string) {
	h.Helper()
	want, there, sure := h.alive(key)
	if !sure {
		return // the answer waits for what is in flight: TestExpiredWaits
	}
	id := h.shardOf(key).ID
	info, err := h.reads.Stat(h.Context(), id, []byte(key))
	if there != (err == nil) || !there && !errors.Is(err, base.ErrNotFound) ||
		there && info != (Info{Version: want.version, ValLen: len(want.value), Expiry: want.expiry}) {
		h.Errorf("stat %s: %+v, %v; want %v %s", key, info, err, there, tellRecord(want))
	}
	v, err := h.reads.Get(h.Context(), id, []byte(key), nil)
	if there != (err == nil) || !there && !errors.Is(err, base.ErrNotFound) ||
		there && (v.Version != want.version || string(v.Data) != want.value || v.Expiry != want.expiry) {
		h.Errorf("get %s: %v %q, %v; want %v %s", key, v.Version, clip(string(v.Data)), err, there, tellRecord(want))
	}
}

func tellRecord(r record) string {
	return fmt.Sprintf("%v %q until %d", r.version, clip(r.value), r.expiry)
}

// begin begins a page, which is read later.
func (h *history) begin() {
	if h.open != nil {
		return
	}
	p, err := OpenForTests(h.reads, largePage, 0)
	h.fatal(err)
	h.open, h.was = &p, maps.Clone(h.state)
}

var largePage = ScanRequest{MaxBytes: MaxScanBytes, Limit: MaxScanLimit}

// page reads the page that was begun: it is what was published then.
func (h *history) page() {
	h.Helper()
	if h.open == nil {
		return
	}
	h.land() // no answer waits
	p, err := h.open.Read(h.Context(), largePage)
	h.fatal(err)
	h.open.Close()
	h.open = nil
	h.compare(p, h.was, "a page of before")
}

// compare holds a page without bounds to a state. A key that has expired since is asked for
// again, and ends the page if it lives.
func (h *history) compare(p ScanPage, state map[string]record, what string) {
	h.Helper()
	now, at := h.mem.Clock.Now(), 0
	for _, key := range keysOf(state) {
		want, last := state[key], false
		if want.expiry != 0 && want.expiry <= now {
			if want, last, _ = h.alive(key); !last {
				continue
			}
		}
		if at == len(p.Entries) {
			h.Errorf("%s ends before %s", what, key)
			return
		}
		e := p.Entries[at]
		if string(e.Key) != key || e.Version != want.version || string(e.Value) != want.value || e.ValLen != len(want.value) || e.Expiry != want.expiry || e.Omitted {
			h.Errorf("%s has %s: %v %q until %d; want %s: %s", what, e.Key, e.Version, clip(string(e.Value)), e.Expiry, key, tellRecord(want))
			return
		}
		if at++; last {
			break
		}
	}
	if at != len(p.Entries) {
		h.Errorf("%s has %s, which was not there", what, p.Entries[at].Key)
	}
}

// walk goes through all pages, of some size, and within some bounds: together they are what
// is published. Nothing is written meanwhile.
func (h *history) walk() {
	h.Helper()
	req := ScanRequest{Limit: 1 + h.rng.IntN(8), MaxBytes: 1 + h.rng.IntN(3000), KeysOnly: h.rng.IntN(3) == 0}
	if h.rng.IntN(2) == 0 {
		req.Prefix = []byte(h.key()[:1])
	}
	if h.rng.IntN(3) == 0 {
		req.After, req.From = []byte(h.key()), h.rng.IntN(2) == 0
	}
	if h.rng.IntN(3) == 0 {
		req.End = []byte(h.key())
	}
	asked := req
	var got []ScanEntry
	for {
		p, err := h.reads.Scan(h.Context(), req)
		h.fatal(err)
		for _, e := range p.Entries {
			// What is omitted, and was not looked at, may have expired.
			if _, there, _ := h.alive(string(e.Key)); there || !e.Omitted || e.Version != 0 {
				got = append(got, e)
			}
		}
		if !p.More {
			break
		}
		req.After, req.From = p.Next, false
	}
	at := 0
	for _, key := range keysOf(h.state) {
		want, there, _ := h.alive(key)
		if !there || !strings.HasPrefix(key, string(asked.Prefix)) || key < string(asked.After) ||
			len(asked.After) > 0 && key == string(asked.After) && !asked.From || len(asked.End) > 0 && key >= string(asked.End) {
			continue
		}
		if at == len(got) {
			h.Errorf("%+v: it ends before %s", asked, key)
			return
		}
		e := got[at]
		if at++; !h.agrees(e, key, want, asked.KeysOnly) {
			h.Errorf("%+v: %s: %v %q of %d until %d, omitted %v; want %s: %s", asked, e.Key, e.Version, clip(string(e.Value)), e.ValLen, e.Expiry, e.Omitted, key, tellRecord(want))
			return
		}
	}
	if at != len(got) {
		h.Errorf("%+v: it has %s, which is not there", asked, got[at].Key)
	}
}

// agrees says whether an entry of a page with bounds is right: what is omitted, and was only
// looked at, may say less.
func (h *history) agrees(e ScanEntry, key string, want record, keysOnly bool) bool {
	if string(e.Key) != key || e.Version != 0 && (e.Version != want.version || e.Expiry != want.expiry || e.ValLen != len(want.value)) {
		return false
	}
	return keysOnly && e.Value == nil || e.Omitted && e.Value == nil || !keysOnly && !e.Omitted && e.Version != 0 && string(e.Value) == want.value
}
