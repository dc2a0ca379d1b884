package checkpoint

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
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
	"github.com/rdmakv/rdmakv/test/crashfs"
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
	mem  *crashfs.Disk
	fs   vfs.FS // mem, or what counts its calls
	db   *pebble.DB
	from Place

	plain   bool  // the ingest is one by hand
	most    int   // bytes of a write's record; what is larger goes in pieces
	orphans int   // writes of which there are only pieces
	rate    int64 // at which a checkpoint reads
}

// newWorld makes an empty world.
func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), next: 1, keys: map[string]uint64{},
		disk: logtest.New(logtest.Options{}), mem: crashfs.New(),
	}
	w.fs = w.mem
	w.sync = []log.Sync{log.Always, log.Off}[w.rng.IntN(2)]
	w.plain, w.most = w.rng.IntN(3) == 0, 200+w.rng.IntN(4000)
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

// A line is a record on its way into a frame, and what is said of it.
type line struct {
	rec  log.Record
	body []byte
	said *said
}

// append writes frames of some records, of the stream and of others. A write that is too
// large for them goes in pieces; some of those never get their write.
func (w *world) append(frames int) error {
	for range frames {
		var lines []line
		for range 1 + w.rng.IntN(6) {
			keys := maps.Clone(w.keys)
			l, pieces := w.line()
			if pieces == nil {
				if len(l.body) > 0 || l.rec.Kind == log.Fact {
					lines = append(lines, l)
				}
				continue
			}
			if _, err := w.seal(lines); err != nil {
				return err
			}
			lines = nil
			whole, err := w.pieces(l.said.flight, pieces)
			switch {
			case err != nil:
				return err
			case whole != nil:
				l.body = whole
				lines = append(lines, l)
			default:
				w.keys, w.orphans = keys, w.orphans+1
			}
		}
		if _, err := w.seal(lines); err != nil {
			return err
		}
	}
	return nil
}

// line makes a record up, or the pieces of one.
func (w *world) line() (l line, pieces [][]byte) {
	l = line{rec: log.Record{Kind: log.Write, Stream: ours}, said: &said{}}
	switch w.rng.IntN(10) {
	case 0: // of others, also what nobody here could parse
		l.rec.Stream, l.body, l.said = 8, []byte("another stream"), nil
	case 1:
		l.said.fact, l.body = uint16(1+w.rng.IntN(3)), fmt.Append(nil, w.rng.IntN(100))
		if w.rng.IntN(3) == 0 {
			l.body = nil
		}
		l.rec.Kind, l.rec.Name, l.said.body = log.Fact, l.said.fact, l.body
	default:
		f := w.flight()
		l.said.flight = f
		if logged.Apart(f, w.most) {
			for i := range logged.Pieces(f, w.most) {
				b := make([]byte, logged.PieceSize(f, i, w.most))
				logged.PutPiece(b, f, i, w.most)
				pieces = append(pieces, b)
			}
			return l, pieces
		}
		if l.body = make([]byte, logged.Size(f)); len(l.body) > 0 {
			logged.Put(l.body, f)
		}
	}
	return l, nil
}

// pieces writes the pieces of a write, with facts and other streams between them, and
// returns the body of its record; nil: the last pieces are not there, nor is the record.
func (w *world) pieces(f *flight.Flight, pieces [][]byte) ([]byte, error) {
	there := len(pieces)
	if w.rng.IntN(4) == 0 {
		there = w.rng.IntN(there + 1)
	}
	var at []uint64
	for n := 0; n < there; {
		var lines []line
		var mine []int
		for range 1 + w.rng.IntN(5) {
			if w.rng.IntN(4) == 0 {
				l, big := w.line()
				if l.said == nil || big == nil && l.said.flight == nil {
					lines = append(lines, l)
				}
			} else if n < there {
				mine = append(mine, len(lines))
				lines = append(lines, line{rec: log.Record{Kind: log.Write, Stream: ours}, body: pieces[n]})
				n++
			}
		}
		positions, err := w.seal(lines)
		if err != nil {
			return nil, err
		}
		for _, i := range mine {
			at = append(at, uint64(positions[i]))
		}
	}
	if there < len(pieces) {
		return nil, nil
	}
	b := make([]byte, logged.SizeApart(f, w.most))
	logged.PutApart(b, f, w.most, at)
	return b, nil
}

// seal writes a frame, and returns where its records are.
func (w *world) seal(lines []line) (at []log.Position, err error) {
	if len(lines) == 0 {
		return nil, nil
	}
	f := w.log.Begin()
	var offsets []int
	for i := range lines {
		offsets = append(offsets, f.Bytes())
		b, err := f.Add(&lines[i].rec, len(lines[i].body))
		if err != nil {
			f.Drop()
			return nil, err
		}
		copy(b, lines[i].body)
	}
	if err = f.Seal(); err == nil {
		for i, l := range lines {
			at = append(at, f.PositionOf(offsets[i]))
			if l.said != nil {
				l.said.at = at[i]
				w.said = append(w.said, *l.said)
			}
		}
		if err = f.Write(); err == nil {
			err = f.Turn()
		}
	}
	f.Pass()
	return at, err
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
	n := []int{0, 1, 10, disk.SeparateFrom - 1, disk.SeparateFrom, 3000, 20_000}[w.rng.IntN(7)]
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
