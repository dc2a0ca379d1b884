package checkpoint

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/logged"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/log/logtest"
)

// ours is the stream of the tests; the others stand in the same log.
const ours = 7

// names are the facts of the stream.
var names = map[uint16]string{1: "clock", 2: "short", 3: ""}

var seedFlag = flag.Uint64("seed", 0, "the seed of the world to live through; 0: a new one")

// worlds lives through some worlds, each with a seed that is named if it fails.
func worlds(t *testing.T, n int, f func(t *testing.T, seed uint64)) {
	for range n {
		seed := rand.Uint64()
		if *seedFlag != 0 {
			seed = *seedFlag
		}
		if f(t, seed); t.Failed() {
			t.Fatalf("again: go test ./store/internal/checkpoint -run '^%s$' -seed %d", t.Name(), seed)
		}
		if *seedFlag != 0 {
			return
		}
	}
}

// A said is one record of the stream in the log, and what it came from.
type said struct {
	at     log.Position
	flight *flight.Flight
	fact   uint16
	body   []byte // of the fact
}

// A world is a log, a base, and all that was ever said.
type world struct {
	t    *testing.T
	rng  *rand.Rand
	next layout.Version
	keys map[string]uint64 // of the state: expiry of each key that there is
	said []said

	disk *logtest.Disk
	sync log.Sync
	log  *log.Log
	mem  *vfs.MemFS
	fs   vfs.FS // mem, or what counts its calls
	db   *pebble.DB
	from Place
}

// newWorld makes an empty world.
func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), next: 1, keys: map[string]uint64{},
		disk: logtest.New(logtest.Options{}), mem: vfs.NewCrashableMem(),
	}
	w.fs = w.mem
	w.sync = []log.Sync{log.Always, log.Off}[w.rng.IntN(2)]
	return w
}

// open opens the base and the log behind it.
func (w *world) open() error {
	db, err := pebble.Open("base", baseOptions(w.fs))
	if err != nil {
		return fmt.Errorf("open the base: %w", err)
	}
	w.db = db
	if w.from, err = readPlace(db); err != nil {
		return err
	}
	w.log, err = log.Open(log.Config{
		Dir: w.disk, Store: [16]byte{1}, Create: w.from.At == 0 && len(w.said) == 0, SegmentSize: 1 << 20, MaxFrame: 128 << 10,
		Sync: w.sync, From: w.from.At,
	})
	if err != nil {
		return fmt.Errorf("open the log behind %v: %w", w.from.At, err)
	}
	if err = w.log.Replay(func(*log.Record) error { return nil }); err == nil {
		err = w.log.Start(w.log.Found().Epoch + 1)
	}
	return err
}

// close ends a life, by a crash or not.
func (w *world) close() {
	if w.log != nil {
		_ = w.log.Close(false) // of a disk that is dead it fails
	}
	if w.db != nil {
		if err := w.db.Close(); err != nil {
			w.t.Error(err)
		}
	}
	w.log, w.db = nil, nil
}

// append writes frames of some records, of the stream and of others.
func (w *world) append(frames int) error {
	for range frames {
		f := w.log.Begin()
		var about []said
		var offsets []int
		for range 1 + w.rng.IntN(6) {
			rec := log.Record{Kind: log.Write, Stream: ours}
			var s said
			switch w.rng.IntN(10) {
			case 0: // of others, also what nobody here could parse
				rec.Stream, s.body = 8, []byte("another stream")
			case 1:
				s.fact, s.body = uint16(1+w.rng.IntN(3)), fmt.Append(nil, w.rng.IntN(100))
				if w.rng.IntN(3) == 0 {
					s.body = nil
				}
				rec.Kind, rec.Name = log.Fact, s.fact
			default:
				s.flight = w.flight()
				if s.body = make([]byte, logged.Size(s.flight)); len(s.body) == 0 {
					continue
				}
				logged.Put(s.body, s.flight)
			}
			at := f.Bytes()
			b, err := f.Add(&rec, len(s.body))
			if err != nil {
				f.Drop()
				return err
			}
			copy(b, s.body)
			if rec.Stream == ours {
				about, offsets = append(about, s), append(offsets, at)
			}
		}
		err := f.Seal()
		if err == nil {
			for i := range about {
				about[i].at = f.PositionOf(offsets[i])
			}
			w.said = append(w.said, about...)
			if err = f.Write(); err == nil {
				err = f.Turn()
			}
		}
		f.Pass()
		if err != nil {
			return err
		}
	}
	return nil
}

// flight makes a write as it is when it is queued.
func (w *world) flight() *flight.Flight {
	f := &flight.Flight{Op: &base.Op{}, Result: &base.Result{}, Shard: uint16(w.rng.IntN(3))}
	if w.rng.IntN(12) == 0 {
		f.Op.Kind, f.Noop = base.OpForget, true
		f.Forget = []base.SlotKey{w.slot(), w.slot()}
		w.next = f.Number(w.next)
		return f
	}
	if w.rng.IntN(2) == 0 {
		k := w.slot()
		f.Op.ID = base.RequestID{Client: k.Client, Slot: k.Slot, Seq: 1 + w.rng.Uint64N(1000), Owner: 3}
	}
	parts := 1
	if w.rng.IntN(5) == 0 {
		parts, f.Op.Kind = 1+w.rng.IntN(4), base.OpBatch
	}
	refused := w.rng.IntN(10) == 0
	used := map[string]bool{}
	for range parts {
		e := w.effect(f.Shard)
		if used[string(e.Key)] {
			continue
		}
		used[string(e.Key)] = true
		if refused {
			e = base.Effect{Shard: f.Shard, Kind: e.Kind, Key: e.Key, Noop: true}
		} else {
			w.after(&e)
		}
		f.Effects = append(f.Effects, &flight.Effect{Effect: e})
	}
	if refused {
		f.Noop, f.Result.Err, f.Result.Actual = true, base.ErrCondition, 5
	} else if f.Op.Kind != base.OpBatch {
		f.Noop = f.Effects[0].Noop
	}
	w.next = f.Number(w.next)
	return f
}

func (w *world) slot() base.SlotKey {
	return base.SlotKey{Client: [16]byte{byte(w.rng.IntN(3))}, Slot: uint16(w.rng.IntN(3))}
}

// effect makes what a write does to one key.
func (w *world) effect(shard uint16) base.Effect {
	// Some keys are the beginnings of others, and some end with zeros.
	key := []string{"a", "a\x00", "a\x00\x00", "b", "bbbbbbbbbbbbbbbbbbbb", "bbbbbbbbbbbbbbbbbbbbb", "c", "\xff\xff"}[w.rng.IntN(8)]
	e := base.Effect{Shard: shard, Key: []byte(key)}
	expiry, there := w.keys[fmt.Sprint(shard, key)]
	if expiry != 0 && w.rng.IntN(8) != 0 { // a put does not always know what it replaces
		e.Unlist = clock.Second(expiry)
	}
	switch n := w.rng.IntN(10); {
	case n == 0 && expiry != 0: // the expirer
		e.Kind, e.Due, e.Unlist = base.OpDelete, clock.Second(expiry), 0
	case n == 1: // the expirer, too late
		e.Kind, e.Due, e.Noop, e.Unlist = base.OpDelete, 1+w.rng.Uint64N(5), true, 0
	case n <= 3:
		e.Kind, e.Noop = base.OpDelete, !there
	case n == 4:
		e.Kind, e.Value, e.Expiry = base.OpIncrement, []byte("17"), expiry
	case n == 5 && there:
		e.Kind, e.Value, e.Expiry = base.OpTouch, w.value(), w.expiry()
	default:
		e.Kind, e.Value, e.Expiry = base.OpPut, w.value(), w.expiry()
	}
	return e
}

func (w *world) value() []byte {
	n := []int{0, 1, 10, disk.SeparateFrom - 1, disk.SeparateFrom, 3000}[w.rng.IntN(6)]
	return bytes.Repeat([]byte{byte(w.rng.Uint32())}, n)
}

func (w *world) expiry() uint64 {
	if w.rng.IntN(2) == 0 {
		return 0
	}
	return uint64(1+w.rng.IntN(6)) * 1_000_000
}

// after notes what the state is after an effect.
func (w *world) after(e *base.Effect) {
	k := fmt.Sprint(e.Shard, string(e.Key))
	switch {
	case e.Noop:
	case e.Kind == base.OpDelete:
		delete(w.keys, k)
	default:
		w.keys[k] = e.Expiry
	}
}
