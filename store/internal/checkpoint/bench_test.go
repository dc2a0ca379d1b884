package checkpoint

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/logged"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/log/logtest"
)

// segment is how many records of 100 B a segment of 64 MiB has.
const segment = 377_000

// puts are records of puts of 100 B, of random keys out of so many.
func puts(keys, n, size int) []log.Record {
	rng := rand.New(rand.NewPCG(1, 1))
	list := make([]log.Record, n)
	value := make([]byte, size)
	for i := range list {
		k := rng.IntN(keys)
		key := make([]byte, 16)
		binary.BigEndian.PutUint64(key, uint64(k)*0x9e3779b97f4a7c15)
		for j := 0; j+8 <= size; j += 8 {
			binary.LittleEndian.PutUint64(value[j:], rng.Uint64())
		}
		f := &flight.Flight{Shard: uint16(k % 256)}
		f.Effects = []*flight.Effect{{Effect: base.Effect{Shard: f.Shard, Key: key, Value: value}}}
		f.Number(layout.Version(1 + i))
		body := make([]byte, logged.Size(f))
		logged.Put(body, f)
		list[i] = log.Record{Kind: log.Write, Stream: ours, Position: log.Position(i), Body: body}
	}
	return list
}

// BenchmarkRange is a checkpoint without the reading: of records in memory, into tables
// in memory, with the ingest.
func BenchmarkRange(b *testing.B) {
	for _, keys := range []int{10_000_000, 100_000} {
		records := puts(keys, segment, 100)
		for _, step := range []string{"newest", "sorted", "all"} {
			b.Run(fmt.Sprintf("keys=%d/%s", keys, step), func(b *testing.B) {
				for b.Loop() {
					r := NewRange(ours, names, Bound{})
					for i := range records {
						if err := r.Add(&records[i]); err != nil {
							b.Fatal(err)
						}
					}
					if step == "newest" {
						continue
					}
					if r.order(); step == "all" {
						ingest(b, r, vfs.NewMem())
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/segment, "ns/record")
			})
		}
	}
}

// ingest writes a range into a new base, which it returns open if it is asked for.
func ingest(b *testing.B, r *Range, fs vfs.FS) {
	db, err := pebble.Open("base", baseOptions(fs))
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	write(b, r, db, fs)
}

// write ingests a range.
func write(b *testing.B, r *Range, db *pebble.DB, fs vfs.FS) Counts {
	walk, err := disk.NewValueWalk(db)
	if err != nil {
		b.Fatal(err)
	}
	defer walk.Close()
	t, err := beginPlain(db, fs)
	if err != nil {
		b.Fatal(err)
	}
	counts, err := r.Write(t, walk)
	if err == nil {
		_, err = t.Commit(context.Background())
	}
	if err != nil {
		b.Fatal(err)
	}
	return counts
}

// nowhere is a Sink that takes everything and keeps nothing.
type nowhere struct{}

func (nowhere) Set(_, _ []byte) error         { return nil }
func (nowhere) Delete(_ []byte) error         { return nil }
func (nowhere) DeleteRange(_, _ []byte) error { return nil }
func (nowhere) CutHere()                      {}
func (nowhere) Cut()                          {}

// BenchmarkDeadValues is what it costs to know which values of the base are dead when
// 100,000 small puts are written: over a base without values apart, one in which some of
// the keys have one, and one where all other keys have; against deletes of all.
func BenchmarkDeadValues(b *testing.B) {
	small := puts(1_000_000, 100_000, 100)
	for _, large := range []int{0, 1_000, 20_000} {
		fs := vfs.NewMem()
		db, err := pebble.Open("base", baseOptions(fs))
		if err != nil {
			b.Fatal(err)
		}
		r := NewRange(ours, names, Bound{})
		for i, rec := range puts(50_000_000, large, 4096) {
			rec.Position = log.Position(i)
			if err := r.Add(&rec); err != nil {
				b.Fatal(err)
			}
		}
		write(b, r, db, fs)
		r = NewRange(ours, names, Bound{})
		for i := range small {
			if err := r.Add(&small[i]); err != nil {
				b.Fatal(err)
			}
		}
		r.order()
		for _, blind := range []bool{false, true} {
			b.Run(fmt.Sprintf("values=%d/blind=%v", large, blind), func(b *testing.B) {
				var counts Counts
				for b.Loop() {
					walk, err := disk.NewValueWalk(db)
					if err != nil {
						b.Fatal(err)
					}
					var values Values = walk
					if blind {
						values = nil
					}
					t, err := beginPlain(db, fs)
					if err != nil {
						b.Fatal(err)
					}
					if counts, err = r.Write(t, values); err != nil {
						b.Fatal(err)
					}
					if err := t.Abort(); err != nil {
						b.Fatal(err)
					}
					walk.Close()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(small)), "ns/record")
				b.ReportMetric(float64(counts.Lookups), "lookups")
				b.ReportMetric(float64(counts.Deletes), "deletes")
			})
		}
		db.Close()
	}
}

// BenchmarkLarge is a whole checkpoint of large values, from a log in memory into a base in
// memory, read at full rate: of one of the largest, and of a hundred of 1 MiB.
func BenchmarkLarge(b *testing.B) {
	for _, c := range []struct{ values, size int }{{1, 64 << 20}, {100, 1 << 20}} {
		b.Run(fmt.Sprintf("%dx%dMiB", c.values, c.size>>20), func(b *testing.B) {
			w := &world{disk: logtest.New(logtest.Options{}), next: 1, rate: -1}
			var err error
			w.log, err = log.Open(log.Config{Dir: w.disk, Store: [16]byte{1}, Create: true, Sync: log.Off, MaxBytes: 1 << 30})
			if err == nil {
				err = w.log.Replay(nil)
			}
			if err == nil {
				err = w.log.Start(1)
			}
			if err != nil {
				b.Fatal(err)
			}
			defer w.log.Close(false)
			rng := rand.New(rand.NewPCG(1, 1))
			value := make([]byte, c.size)
			for i := range c.values {
				for j := 0; j < c.size; j += 8 {
					binary.LittleEndian.PutUint64(value[j:], rng.Uint64())
				}
				f := &flight.Flight{Shard: 1}
				f.Effects = []*flight.Effect{{Effect: base.Effect{Shard: 1, Key: fmt.Appendf(nil, "key %03d", i), Value: value}}}
				w.next = f.Number(w.next)
				if err := w.put(f, 8<<20-4096); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(c.values * c.size))
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				fs := vfs.NewMem()
				db, err := pebble.Open("base", baseOptions(fs))
				if err != nil {
					b.Fatal(err)
				}
				w.db, w.fs = db, fs
				b.StartTimer()
				done, err := w.run(0, Bound{})
				if err != nil || done.More || done.Counts.Apart != c.values {
					b.Fatalf("%+v: %v", done, err)
				}
				b.ReportMetric(float64(done.Read.Microseconds())/1000, "ms-read")
				b.ReportMetric(float64(done.Written.Microseconds())/1000, "ms-written")
				b.StopTimer()
				if err := db.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

// put writes a write into the log, in pieces if its record would have more than most bytes.
func (w *world) put(f *flight.Flight, most int) error {
	var at []uint64
	for i := range logged.Pieces(f, most) {
		if !logged.Apart(f, most) {
			break
		}
		b := make([]byte, logged.PieceSize(f, i, most))
		logged.PutPiece(b, f, i, most)
		positions, err := w.seal([]line{{rec: log.Record{Kind: log.Write, Stream: ours}, body: b}})
		if err != nil {
			return err
		}
		at = append(at, uint64(positions[0]))
	}
	b := make([]byte, logged.Size(f))
	if at != nil {
		b = b[:logged.SizeApart(f, most)]
		logged.PutApart(b, f, most, at)
	} else {
		logged.Put(b, f)
	}
	_, err := w.seal([]line{{rec: log.Record{Kind: log.Write, Stream: ours}, body: b}})
	return err
}
