package admit

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/logged"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/log/logtest"
)

var seedFlag = flag.Uint64("seed", 0, "the seed of what is drawn; 0: a new one")

// seeded returns a generator, and has its seed named if the test fails.
func seeded(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	if *seedFlag != 0 {
		seed = *seedFlag
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("again: go test ./store/internal/admit -run '^%s$' -seed %d", t.Name(), seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 1))
}

// newLog begins a log in memory.
func newLog(t testing.TB) *log.Log {
	t.Helper()
	l, err := log.Open(log.Config{
		Dir: logtest.New(logtest.Options{}), Store: [16]byte{1}, Create: true, SegmentSize: 1 << 20, MaxFrame: 128 << 10, Sync: log.Off,
	})
	if err == nil {
		if err = l.Replay(nil); err == nil {
			err = l.Start(1)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(false); err != nil {
			t.Error(err)
		}
	})
	return l
}

// charged is what the store admits an operation with.
func charged(f *flight.Flight) int64 {
	n := len(f.Op.Key) + len(f.Forget)*base.SlotKeyLen
	if f.Op.Kind == base.OpPut {
		n += len(f.Op.Value)
	}
	for i := range f.Op.Parts {
		if n += len(f.Op.Parts[i].Key); !f.Op.Parts[i].Delete {
			n += len(f.Op.Parts[i].Value)
		}
	}
	return int64(n)
}

// TestNeedIsEnough: whatever a write comes to, its records do not take more of the log than
// was set aside for it.
func TestNeedIsEnough(t *testing.T) {
	rng, real := seeded(t), newLog(t)
	now := time.Unix(1_800_000_000, 0)
	at := clock.New(func() (time.Time, time.Duration) { return now, 0 }, 0)
	apart, tight := 0, int64(1<<62)
	for range 1000 {
		f := drawFlight(rng)
		f.Reset(7)
		for _, e := range f.Effects {
			if rng.IntN(2) == 0 {
				e.State = flight.KeyState{Exists: true, Version: 1 << 50, Value: []byte("-9223372036854775807"), Expiry: rng.Uint64()}
			}
		}
		f.Evaluate(at)
		f.Number(layout.Version(rng.Uint64N(1 << 55)))
		for _, e := range f.Effects { // what only the disk tells
			e.Unlist = rng.Uint64()
			if e.Expiry == 0 && e.Puts() {
				e.Expiry = rng.Uint64()
			}
		}
		charge := charged(f)
		if f.Op.Kind == base.OpTouch && f.Effects[0].Puts() {
			charge += int64(len(f.Effects[0].Value)) // it is admitted anew with that
		}
		most := 1 << (10 + rng.IntN(9))
		if len(f.Op.Parts) > 32 {
			most = 256 << 10 // each piece is looked for among all parts
		}
		l := Log{Room: real, Piece: most}
		need, takes := l.need(bodyOf(charge, len(f.Op.Parts)), len(f.Op.Parts)), int64(0)
		if logged.Apart(f, most) {
			apart++
			for i := range logged.Pieces(f, most) {
				takes += real.Cost(logged.PieceSize(f, i, most))
			}
			takes += real.Cost(logged.SizeApart(f, most))
		} else {
			takes = real.Cost(logged.Size(f))
		}
		if tight = min(tight, need-takes); need < takes {
			t.Fatalf("%v of %d parts: %d bytes set aside, and it takes %d (apart: %v, pieces of %d)", f.Op.Kind, len(f.Op.Parts), need, takes, logged.Apart(f, most), most)
		}
	}
	if apart < 50 || tight > 0 {
		t.Errorf("%d writes in pieces, and none was closer to its bound than %d bytes", apart, tight)
	}
}

// drawFlight makes a write that nobody has judged yet.
func drawFlight(rng *rand.Rand) *flight.Flight {
	op := &base.Op{Kind: base.Kind(rng.IntN(int(base.NumKinds))), Key: bytesOf(rng, 1+rng.IntN(40))}
	f := &flight.Flight{Op: op, Result: &base.Result{}}
	if rng.IntN(2) == 0 {
		op.ID = base.RequestID{Client: [16]byte{1}, Slot: 2, Seq: rng.Uint64(), Owner: 3}
	}
	switch op.Kind {
	case base.OpPut:
		op.Value, op.TTL = bytesOf(rng, sizes[rng.IntN(len(sizes))]), time.Duration(rng.IntN(2))*time.Hour
	case base.OpTouch:
		op.TTL = time.Hour
	case base.OpIncrement:
		op.Delta = rng.Int64() - 1<<62
	case base.OpDelete:
		f.Due = uint64(rng.IntN(2))
	case base.OpForget:
		op.Key = nil
		f.Forget = make([]base.SlotKey, rng.IntN(513))
	case base.OpBatch:
		op.Key = nil
		for range 1 + rng.IntN([]int{1, 4, 4, 4, 30, 30, 30, base.MaxParts}[rng.IntN(8)]) {
			op.Parts = append(op.Parts, base.Part{
				Key: bytesOf(rng, 1+rng.IntN(40)), Delete: rng.IntN(4) == 0,
				Value: bytesOf(rng, sizes[rng.IntN(5)]), TTL: time.Duration(rng.IntN(2)) * time.Hour,
			})
		}
	}
	return f
}

var sizes = []int{0, 1, 25, 100, 1000, 4000, 4096 - 100, 70_000, 300_000}

func bytesOf(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range min(n, 8) {
		b[i] = byte(rng.Uint32())
	}
	return b
}
