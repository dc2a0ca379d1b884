package newest

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/dirty"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/logged"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
)

// A rig is a reader of one shard, with a log that is a map, and a base that is a Pebble in
// memory. Writes are published and brought into the base by hand.
type rig struct {
	*Reader
	t     *testing.T
	shard *shard.Shard
	log   *mapLog
	next  layout.Version
}

// mostBody is how many bytes a record of the log may have.
const mostBody = 8000

func newRig(t *testing.T) *rig {
	t.Helper()
	counts := new(base.Counters)
	fence := base.NewFence(slog.New(slog.DiscardHandler), func(err error) { t.Errorf("fenced: %v", err) })
	d := disk.New(disk.Config{Dir: "store", FS: vfs.NewMem(), Shards: 4, MinFreeBytes: -1}, fence, counts)
	if _, _, err := d.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.ForTests().Drop(); err != nil {
			t.Error(err)
		}
	})
	sh := &shard.Shard{ID: 3}
	l := &mapLog{t: t, shard: sh, records: make(map[log.Position]log.Record), end: 100}
	return &rig{Reader: &Reader{Base: d, Log: l, Seed: 5, Counts: counts}, t: t, shard: sh, log: l, next: layout.MakeVersion(1, 1)}
}

// A mapLog is a log in memory.
type mapLog struct {
	t       *testing.T
	shard   *shard.Shard
	records map[log.Position]log.Record
	end     log.Position
	held    int
	reads   int
	holdErr error
	readErr error
}

func (l *mapLog) Hold() (release func(), err error) {
	if l.shard.Mu.TryLock() {
		l.shard.Mu.Unlock()
		l.t.Error("the log is held when the shard's lock was let go: what is in the set may have left, and its segment be freed")
	}
	if l.holdErr != nil {
		return nil, l.holdErr
	}
	l.held++
	return func() { l.held-- }, nil
}

func (l *mapLog) Near() func(at log.Position) (log.Record, error) { return l.ReadAt }

func (l *mapLog) ReadAt(at log.Position) (log.Record, error) {
	l.reads++
	if l.held == 0 {
		l.t.Error("a record is read that nobody holds")
	}
	if l.readErr != nil {
		return log.Record{}, l.readErr
	}
	r, ok := l.records[at]
	if !ok {
		return log.Record{}, &log.DamageError{File: "some.log", At: at, Detail: "no good record"}
	}
	return r, nil
}

// add appends a body.
func (l *mapLog) add(body []byte) log.Position {
	at := l.end
	l.records[at] = log.Record{Kind: log.Write, Stream: 1, Position: at, Body: body}
	l.end += log.Position(len(body))
	return at
}

// flight makes a write of an operation, which is judged on nothing.
func (r *rig) flight(op base.Op) *flight.Flight {
	op.Shard = r.shard.ID
	f := &flight.Flight{Op: &op, Result: new(base.Result)}
	f.Reset(r.Seed)
	for _, e := range f.Effects {
		e.State = flight.KeyState{Exists: true, Version: 1, Value: []byte("7")}
	}
	f.Evaluate(clock.New(func() (time.Time, time.Duration) { return time.Unix(1000, 0), 0 }, 0))
	r.next = f.Number(r.next)
	return f
}

// publish puts a write into the log, and its keys into the set.
func (r *rig) publish(op base.Op) *flight.Flight {
	f := r.flight(op)
	if !logged.Apart(f, mostBody) {
		body := make([]byte, logged.Size(f))
		logged.Put(body, f)
		f.At = r.log.add(body)
	} else {
		var at []uint64
		for i := range logged.Pieces(f, mostBody) {
			body := make([]byte, logged.PieceSize(f, i, mostBody))
			logged.PutPiece(body, f, i, mostBody)
			at = append(at, uint64(r.log.add(body)))
		}
		body := make([]byte, logged.SizeApart(f, mostBody))
		logged.PutApart(body, f, mostBody, at)
		f.At = r.log.add(body)
	}
	r.shard.Mu.Lock()
	defer r.shard.Mu.Unlock()
	part := uint32(0)
	for _, e := range f.Effects {
		if !e.Noop {
			r.shard.Dirty.Note(e.Hash, e.Key, dirty.Entry{Version: e.Version, Gone: e.Removes(), At: f.At, Part: part})
			part++
		}
	}
	return f
}

// bring puts a write into the base.
func (r *rig) bring(f *flight.Flight) {
	db := r.Base.ForTests().DB()
	b := db.NewBatch()
	for _, e := range f.Effects {
		key := disk.AppendKey(nil, e.Shard, disk.KindData, e.Key)
		var err error
		if e.Removes() {
			err = b.Delete(key, nil)
		} else {
			rec := make([]byte, disk.RecordSize(len(e.Value), e.Expiry != 0))
			disk.PutRecord(rec, key, disk.Record{Version: e.Version, Expiry: e.Expiry, Value: e.Value})
			err = b.Set(key, rec, nil)
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
	if err := b.Commit(pebble.NoSync); err != nil {
		r.t.Fatal(err)
	}
}

// entry is what the set has of a key.
func (r *rig) entry(key string) dirty.Entry {
	r.t.Helper()
	e, ok := r.shard.Dirty.Find(r.HashOf([]byte(key)), []byte(key))
	if !ok {
		r.t.Fatalf("%s is not in the set", key)
	}
	return e
}

// want reads a key and compares. A value of "" stands for none.
func (r *rig) want(key, value string) {
	r.t.Helper()
	rec, closer, err := r.Read(r.shard, []byte(key))
	switch {
	case value == "":
		if err != base.ErrNotFound {
			r.t.Errorf("%s: %q, %v; want none", key, rec.Value, err)
		}
	case err != nil || !bytes.Equal(rec.Value, []byte(value)):
		r.t.Errorf("%s: %.20q of %d, %v; want %.20q of %d", key, rec.Value, len(rec.Value), err, value, len(value))
	}
	if err == nil {
		if err := closer.Close(); err != nil {
			r.t.Error(err)
		}
	}
	if r.log.held != 0 {
		r.t.Errorf("%d holds are left behind %s", r.log.held, key)
	}
	if !r.shard.Mu.TryLock() {
		r.t.Fatalf("the lock is kept behind %s", key)
	}
	r.shard.Mu.Unlock()
}
