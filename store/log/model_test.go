package log_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/log/logtest"
)

// The streams of the tests: one of writes, one of entries and facts, one of facts alone.
const (
	writes  = 1
	entries = 2
	facts   = 3
)

// A model is what a log must hold: the frames in the order in which they were sealed,
// without those that a start has found to be lost. It outlives the log.
type model struct {
	mu     sync.Mutex
	frames []frame
	base   int    // frames that the checkpoint has
	life   uint64 // the highest that was told
	epoch  uint64
	opened uint64 // how often
	ids    uint64 // of the newest frame; none is used twice
}

// A frame is one that was sealed.
type frame struct {
	id   uint64
	at   log.Position // of its first record, which is a write
	recs []log.Record
	sure bool // it was acknowledged, or synced: no power cut takes it
	done bool // the kernel had it: no kill takes it
}

func (m *model) clone() *model {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &model{frames: slices.Clone(m.frames), base: m.base, life: m.life, epoch: m.epoch, opened: m.opened, ids: m.ids}
}

// body makes a body that tells whose it is, in its first 8 bytes, and what it must be.
func body(id uint64, n int) []byte {
	b := make([]byte, max(n, 8))
	binary.LittleEndian.PutUint64(b, id)
	for i := 8; i < len(b); i++ {
		b[i] = byte(id)*31 + byte(i)*7 + byte(i>>8)
	}
	return b
}

// state is what the streams are after some frames.
type state struct {
	facts map[[2]uint64][]byte
	list  map[uint64]log.Record // entries, by index
	last  uint64
	trim  uint64
}

// state replays the first n frames.
func (m *model) state(n int) state {
	s := state{facts: map[[2]uint64][]byte{}, list: map[uint64]log.Record{}}
	for _, f := range m.frames[:n] {
		for _, r := range f.recs {
			switch r.Kind {
			case log.Fact:
				if r.Name == trimName {
					s.trim = r.Index
					continue
				}
				s.facts[[2]uint64{r.Stream, uint64(r.Name)}] = r.Body
				if len(r.Body) == 0 {
					delete(s.facts, [2]uint64{r.Stream, uint64(r.Name)})
				}
			case log.Entry:
				for i := r.Index; i <= s.last; i++ {
					delete(s.list, i)
				}
				s.list[r.Index], s.last = r, r.Index
			}
		}
	}
	return s
}

// trimName marks a trim in the records of the model; the log's own form is not its matter.
const trimName = 0xffff

// next makes the records of the next frame. The caller holds m.mu.
func (m *model) next(r *rand.Rand, size int) []log.Record {
	m.ids++
	id := m.ids
	s := m.state(len(m.frames))
	recs := []log.Record{{Kind: log.Write, Stream: writes, Index: id, Body: body(id, r.IntN(size))}}
	for range r.IntN(3) {
		switch r.IntN(5) {
		case 0:
			recs = append(recs, log.Record{Kind: log.Write, Stream: writes, Index: id, Term: uint64(len(recs)), Body: body(id, r.IntN(300))})
		case 1, 2:
			at, term := s.last+1, 1+id/4
			if s.last > s.trim+2 && r.IntN(4) == 0 {
				at = s.last - 1 // a new leader replaces the newest two
			}
			s.last = at
			recs = append(recs, log.Record{Kind: log.Entry, Stream: entries, Index: at, Term: term, Body: body(id, r.IntN(200))})
		case 3:
			var b []byte // removes the fact
			if r.IntN(4) != 0 {
				b = body(id, 8+r.IntN(40))
			}
			recs = append(recs, log.Record{Kind: log.Fact, Stream: entries + r.Uint64N(2), Name: 1 + uint16(r.IntN(3)), Body: b})
		}
	}
	return recs
}

// run is one life of a log, and the model of it.
type run struct {
	*log.Log
	m    *model
	rand *rand.Rand
	size int // of the bodies of writes
}

// config is how the tests open a log: small segments, no sync by the clock.
func config(d log.Dir, s log.Sync) log.Config {
	return log.Config{
		Dir: d, Store: [16]byte{1, 2, 3}, Create: true, Sync: s, Interval: 1 << 40,
		SegmentSize: 1 << 20, MaxFrame: 256 << 10, MaxBytes: 8 << 20,
	}
}

// open opens a log, replays it, compares what it says with the model, and starts a life.
// killed: nobody has cut the power since the model saw the log.
func (m *model) open(c log.Config, killed bool, seed uint64) (*run, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opened++
	if c.Rand == nil {
		var key [32]byte
		binary.LittleEndian.PutUint64(key[:], seed)
		binary.LittleEndian.PutUint64(key[8:], m.opened)
		c.Rand = rand.NewChaCha8(key)
	}
	if m.base > 0 {
		c.From = m.frames[m.base-1].at
	}
	l, err := log.Open(c)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	if err := m.replay(l, killed); err != nil {
		return nil, errors.Join(err, l.Close(false))
	}
	epoch := max(m.epoch, l.Found().Epoch) + 1
	if err := l.Start(epoch); err != nil {
		return nil, errors.Join(fmt.Errorf("start: %w", err), l.Close(false))
	}
	m.epoch = epoch
	if l.Life() <= m.life {
		return nil, errors.Join(fmt.Errorf("life %d comes after life %d", l.Life(), m.life), l.Close(false))
	}
	m.life = l.Life()
	if m.base > 0 {
		l.Release(writes, m.frames[m.base-1].at)
	}
	return &run{Log: l, m: m, rand: rand.New(rand.NewPCG(seed, m.opened)), size: 60}, nil
}

// errWrong marks what a model does not allow, beside what a log reports by itself.
var errWrong = errors.New("wrong")

// replay compares what a log tells with the model, and forgets what it has lost.
func (m *model) replay(l *log.Log, killed bool) error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", errWrong, fmt.Sprintf(format, args...))
	}
	found := l.Found()
	if found.Life < m.life || found.Epoch < m.epoch {
		return wrong("it found life %d of epoch %d, and life %d of epoch %d was told", found.Life, found.Epoch, m.life, m.epoch)
	}
	first, at, rec := -1, 0, 0 // the next record is rec of frame at
	last := log.Position(0)
	err := l.Replay(func(r *log.Record) error {
		if r.Position <= last {
			return wrong("a record at %v after one at %v", r.Position, last)
		}
		last = r.Position
		if r.Kind == log.Fact {
			return nil // the newest values are compared below
		}
		if first < 0 {
			at = slices.IndexFunc(m.frames, func(f frame) bool { return r.Kind == log.Write && f.id == r.Index })
			if first = at; at < 0 {
				return wrong("the log begins with %v %d, which is lost or was never written", r.Kind, r.Index)
			}
		}
		for at < len(m.frames) {
			for rec < len(m.frames[at].recs) && m.frames[at].recs[rec].Kind == log.Fact {
				rec++
			}
			if rec < len(m.frames[at].recs) {
				break
			}
			at, rec = at+1, 0
		}
		if at >= len(m.frames) {
			return wrong("%v %d of stream %d stands behind everything that was written", r.Kind, r.Index, r.Stream)
		}
		want := m.frames[at].recs[rec]
		if want.Kind != r.Kind || want.Stream != r.Stream || want.Index != r.Index || want.Term != r.Term || !bytes.Equal(want.Body, r.Body) {
			return wrong("%v %d of stream %d where frame %d has %v %d of stream %d", r.Kind, r.Index, r.Stream, m.frames[at].id, want.Kind, want.Index, want.Stream)
		}
		if rec == 0 {
			m.frames[at].at = r.Position // a start may have moved it
		}
		rec++
		return nil
	})
	if err != nil {
		return err
	}
	for at < len(m.frames) && rec > 0 && rec < len(m.frames[at].recs) && m.frames[at].recs[rec].Kind == log.Fact {
		rec++
	}
	if at < len(m.frames) && rec > 0 {
		if rec != len(m.frames[at].recs) {
			return wrong("frame %d ends behind record %d of %d", m.frames[at].id, rec, len(m.frames[at].recs))
		}
		at++
	}
	if first < 0 {
		first, at = 0, 0
		if m.base > 0 {
			return wrong("the log is empty, and the checkpoint stands at frame %d", m.frames[m.base-1].id)
		}
	}
	if first > max(0, m.base-1) {
		return wrong("the log begins with frame %d, and the checkpoint has frames up to %d of %d", first, m.base, len(m.frames))
	}
	for _, f := range m.frames[at:] {
		if f.sure || killed && f.done {
			return wrong("frame %d was acknowledged and is gone; the log ends behind %d frames of %d", f.id, at, len(m.frames))
		}
	}
	m.frames = m.frames[:at]
	for i := range m.frames {
		m.frames[i].sure, m.frames[i].done = true, true // it has been told now
	}
	return m.compare(l)
}

// compare compares facts and entries.
func (m *model) compare(l *log.Log) error {
	s := m.state(len(m.frames))
	for _, stream := range []uint64{entries, facts} {
		for name := range uint16(4) {
			want := s.facts[[2]uint64{stream, uint64(name)}]
			if got, _ := l.Fact(stream, name); !bytes.Equal(got, want) {
				return fmt.Errorf("%w: fact %d of stream %d is %x, want %x", errWrong, name, stream, got, want)
			}
		}
	}
	first, last := l.Entries(entries)
	if last != s.last || last > 0 && first != s.trim+1 {
		return fmt.Errorf("%w: entries from %d to %d, want %d to %d", errWrong, first, last, s.trim+1, s.last)
	}
	for i := first; i <= last; i++ {
		want := s.list[i]
		got, err := l.ReadEntries(entries, i, i+1, 1)
		if err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
		if len(got) != 1 || got[0].Term != want.Term || !bytes.Equal(got[0].Body, want.Body) {
			return fmt.Errorf("%w: entry %d is %v, want %v", errWrong, i, got, want)
		}
	}
	return nil
}

// seal fills and seals the next frame, and notes it.
func (r *run) seal() (*log.Frame, uint64, error) {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	recs := r.m.next(r.rand, r.size)
	var trim uint64
	if s := r.m.state(len(r.m.frames)); s.last > s.trim+6 && r.rand.IntN(3) == 0 {
		trim = s.last - 3
		for _, rec := range recs {
			if rec.Kind == log.Entry {
				trim = 0 // it may replace the one to be trimmed
			}
		}
	}
	f := r.Begin()
	for i := range recs {
		b, err := f.Add(&recs[i], len(recs[i].Body))
		if err != nil {
			f.Drop()
			return nil, 0, err
		}
		copy(b, recs[i].Body)
	}
	if trim != 0 {
		if err := f.AddTrim(entries, trim); err != nil {
			f.Drop()
			return nil, 0, err
		}
		recs = append(recs, log.Record{Kind: log.Fact, Name: trimName, Index: trim})
	}
	if err := f.Seal(); err != nil {
		f.Drop()
		return nil, 0, err
	}
	id := recs[0].Index
	r.m.frames = append(r.m.frames, frame{id: id, at: f.PositionOf(0), recs: recs})
	return f, id, nil
}

// mark notes that frames up to one are done, or sure.
func (m *model) mark(id uint64, sure bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := len(m.frames) - 1; i >= 0; i-- {
		f := &m.frames[i]
		if f.id > id {
			continue
		}
		if f.done && (f.sure || !sure) {
			break
		}
		f.done, f.sure = true, f.sure || sure
	}
}

// put writes one frame.
func (r *run) put(always bool) error {
	f, id, err := r.seal()
	if err != nil {
		return err
	}
	err = f.Write()
	if err == nil {
		err = f.Turn()
	}
	if err == nil {
		r.m.mark(id, always)
	}
	f.Pass()
	return err
}

// sync makes everything durable.
func (r *run) sync() error {
	r.m.mu.Lock()
	last := uint64(0)
	if n := len(r.m.frames); n > 0 {
		last = r.m.frames[n-1].id
	}
	r.m.mu.Unlock()
	if err := r.Sync(); err != nil {
		return err
	}
	r.m.mark(last, true)
	return nil
}

// release says that a checkpoint has all but the newest few frames. They are durable.
func (r *run) release(but int) {
	r.m.mu.Lock()
	base := 0
	for base < len(r.m.frames)-but && r.m.frames[base].sure {
		base++
	}
	r.m.base = max(r.m.base, base)
	base = r.m.base
	var at log.Position
	if base > 0 {
		at = r.m.frames[base-1].at
	}
	r.m.mu.Unlock()
	if base > 0 {
		r.Release(writes, at)
	}
}

// crashed reports whether an error is what a log returns when the power goes.
func crashed(err error) bool { return errors.Is(err, logtest.ErrCrashed) }

// A disk with its policy.
type kind struct {
	name     string
	sync     log.Sync
	noDirect bool
}

var kinds = []kind{
	{"always", log.Always, false},
	{"always/buffered", log.Always, true},
	{"interval", log.Interval, false},
	{"interval/buffered", log.Interval, true},
	{"off", log.Off, false},
	{"off/buffered", log.Off, true},
}

// eachKind runs a test for each policy, with and without direct access.
func eachKind(t *testing.T, f func(t *testing.T, k kind)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) { f(t, k) })
	}
}
