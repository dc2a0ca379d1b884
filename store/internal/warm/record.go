package warm

import (
	"encoding/binary"
	"errors"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/region"
)

const (
	// MaxIncarnations bounds the lives whose items may be there: a life that ends before it has believed all leaves items of the one before.
	MaxIncarnations = 4

	placeBytes = region.RecordBytes / 2

	// recordMagic has the format of the record in its last byte, and that of the regions in the two before.
	recordMagic = 0x524b5657_00000001 | uint64(layout.FormatVersion)<<8

	wordMagic       = 0
	wordNumber      = 1
	wordFingerprint = 2
	wordSeed        = 3
	wordShards      = 4
	wordVersions    = 5
	wordClock       = 6
	wordCount       = 7
	wordIncs        = 8
	wordSum         = wordIncs + MaxIncarnations
	recordWords     = wordSum + 1

	recordSeed = 0x7761726d_72656331

	// MaxVersions is the last beginning of a life that leaves it versions enough, and maxClock the last time, in microseconds since 1970, behind which expiries
	// can be reckoned. No life gets there, so a record that says more is damaged, though its checksum holds.
	MaxVersions = layout.MaxVersion - 1<<50
	maxClock    = 1 << 60
)

var _ [placeBytes - 8*recordWords]struct{}

// A Life is what a life tells the next one.
type Life struct {
	Fingerprint uint64 // of what has to be the same in both: see Config
	Seed        uint64 // of the hash of keys
	Shards      int
	Versions    layout.Version // the first that this life has not given out, and will not before it says so
	Clock       uint64         // no later time was shown, microseconds since 1970; 0: it has no bound
	// Incarnations are those of the items, the latest first.
	Incarnations []uint64
}

// ErrNoLife: no life has left a record, or none that this program reads.
var ErrNoLife = errors.New("warm: no record of a life before")

// ReadLife reads a record. It fails with ErrNoLife.
func ReadLife(mem []byte) (Life, error) {
	best, number := Life{}, uint64(0)
	for at := 0; at < region.RecordBytes; at += placeBytes {
		l, n, ok := readPlace(mem[at : at+placeBytes])
		if ok && n > number {
			best, number = l, n
		}
	}
	if number == 0 {
		return Life{}, ErrNoLife
	}
	return best, nil
}

func readPlace(mem []byte) (l Life, number uint64, ok bool) {
	var w [recordWords]uint64
	for i := range w {
		w[i] = layout.LoadWord(mem, 8*i)
	}
	n := w[wordCount]
	if w[wordMagic] != recordMagic || w[wordSum] != sumOf(&w) || n == 0 || n > MaxIncarnations ||
		w[wordShards] == 0 || w[wordShards] > layout.MaxShards || w[wordVersions] == 0 || w[wordVersions] > uint64(MaxVersions) || w[wordClock] > maxClock {
		return Life{}, 0, false
	}
	l = Life{
		Fingerprint: w[wordFingerprint], Seed: w[wordSeed], Shards: int(w[wordShards]), Versions: layout.Version(w[wordVersions]), Clock: w[wordClock],
		Incarnations: append([]uint64(nil), w[wordIncs:wordIncs+n]...),
	}
	return l, w[wordNumber], true
}

func sumOf(w *[recordWords]uint64) uint64 {
	var b [8 * wordSum]byte
	for i := range wordSum {
		binary.LittleEndian.PutUint64(b[8*i:], w[i])
	}
	return xxh3.HashSeed(b[:], recordSeed)
}

// A Record is what this life tells the next one, in memory that outlives it. Safe for concurrent use.
type Record struct {
	mu     sync.Mutex
	mem    []byte
	life   Life
	number uint64
}

// NewRecord begins a record in the memory of the one before, which is not valid any more when it returns.
func NewRecord(mem []byte, l Life) *Record {
	r := &Record{mem: mem, life: l}
	for at := 0; at < region.RecordBytes; at += placeBytes {
		if _, n, ok := readPlace(mem[at : at+placeBytes]); ok {
			r.number = max(r.number, n)
		}
	}
	r.write()
	return r
}

// Change changes what the record says. When it returns, the next life is told so.
func (r *Record) Change(f func(*Life)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.life)
	r.write()
}

// write writes the record into both places, first the one that is not the newest. The caller holds mu, or nobody else has the record.
func (r *Record) write() {
	r.writePlace()
	r.writePlace()
}

func (r *Record) writePlace() {
	r.number++
	var w [recordWords]uint64
	w[wordMagic], w[wordNumber], w[wordFingerprint], w[wordSeed] = recordMagic, r.number, r.life.Fingerprint, r.life.Seed
	w[wordShards], w[wordVersions], w[wordClock] = uint64(r.life.Shards), uint64(r.life.Versions), r.life.Clock
	n := copy(w[wordIncs:wordSum], r.life.Incarnations)
	w[wordCount] = uint64(n)
	w[wordSum] = sumOf(&w)
	mem := r.mem[int(r.number%2)*placeBytes:]
	layout.StoreWord(mem, 8*wordSum, 0)
	for i, v := range w {
		layout.StoreWord(mem, 8*i, v)
	}
}
