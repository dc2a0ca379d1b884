package store

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/layout"
)

// TestTTLOfEveryOp is the table of every operation that a client can ask for,
// alone and in a batch, with and without a time to live, under every condition,
// of a key that is not there, lasts, or expires, in memory, on the disk alone, and
// in a store without a disk. Each write is ordered or refused within a bounded
// time, and leaves the expiry that its definition says.
func TestTTLOfEveryOp(t *testing.T) {
	for _, mode := range []Mode{Durable, Cache} {
		for _, where := range []string{"in memory", "in flight", "on the disk"} {
			if mode == Cache && where == "on the disk" {
				continue
			}
			t.Run(fmt.Sprintf("%v/%s", mode, where), func(t *testing.T) { ttlTable(t, mode, where) })
		}
	}
}

// ttlOps are the operations of the table. Parts of a batch are puts and deletes.
var ttlOps = []struct {
	op      Kind
	batch   bool
	takes   bool // a TTL
	ignores bool // ... without a word: a part that deletes
}{
	{op: OpPut, takes: true},
	{op: OpDelete},
	{op: OpIncrement},
	{op: OpTouch, takes: true},
	{op: OpPut, batch: true, takes: true},
	{op: OpDelete, batch: true, takes: true, ignores: true},
}

func ttlTable(t *testing.T, mode Mode, where string) {
	fs := newStalledFS()
	conf := testConfig(fs)
	if conf.Mode = mode; mode == Cache {
		conf.FS, conf.Dir = nil, ""
	}
	if where == "on the disk" {
		c := testConfig(fs)
		first := open(t, c)
		ttlRows(func(r ttlRow) { r.before(first) })
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		conf.holdFill = make(chan struct{}) // memory knows nothing
		defer close(conf.holdFill)
	}
	n := open(t, conf)
	if where != "on the disk" {
		n.fill()
	}
	ttlRows(func(r ttlRow) {
		r.run(n, where)
		if t.Failed() {
			t.FailNow() // a store that hangs would hang once more
		}
	})
}

// A ttlRow is a line of the table.
type ttlRow struct {
	op       int // in ttlOps
	ttl      time.Duration
	existing string // "absent", "lasting", "expiring"
	cond     Cond
}

func ttlRows(f func(ttlRow)) {
	for op := range ttlOps {
		for _, ttl := range []time.Duration{0, 1, time.Hour, 100 * 366 * 24 * time.Hour} {
			for _, existing := range []string{"absent", "lasting", "expiring"} {
				for cond := range base.NumConds {
					f(ttlRow{op, ttl, existing, cond})
				}
			}
		}
	}
}

func (r ttlRow) key() []byte {
	return fmt.Appendf(nil, "%d/%v/%s/%v", r.op, r.ttl, r.existing, r.cond)
}

// first is the put that makes the key what the row says; nil: none.
func (r ttlRow) first() *Write {
	switch r.existing {
	case "lasting":
		return &Write{Op: Op{Key: r.key(), Value: []byte("41")}}
	case "expiring":
		return &Write{Op: Op{Key: r.key(), Value: []byte("41"), TTL: 2 * time.Hour}}
	}
	return nil
}

func (r ttlRow) before(n *node) layout.Version {
	if w := r.first(); w != nil {
		return n.do(*w).Version
	}
	return 0
}

func (r ttlRow) run(n *node, where string) {
	t, op := n.t, ttlOps[r.op]
	var at layout.Version
	done := make(chan *Write, 2)
	tell := func(w *Write) { done <- w }
	bounded := func(what string, f func() error) error {
		err := make(chan error, 1)
		go func() { err <- f() }()
		select {
		case err := <-err:
			return err
		case <-time.After(time.Minute):
			panic(fmt.Sprintf("%s: %s does not end", r.key(), what)) // a store that spins cannot be closed
		}
	}
	switch where {
	case "in memory":
		at = r.before(n)
	case "in flight":
		// Not waited for: what is under test is judged on a write in flight, as
		// far as the committer is slower than this.
		if w := r.first(); w != nil {
			w.Done = tell
			if err := n.Submit(w); err != nil {
				t.Fatal(err)
			}
			at = w.Version
			defer func() { <-done }()
		}
	case "on the disk":
		if r.first() != nil {
			info, err := n.Stat(t.Context(), 0, r.key())
			if err != nil {
				t.Fatal(err)
			}
			at = info.Version
		}
	}
	w := &Write{Op: Op{Key: r.key(), Kind: op.op, If: r.cond, IfVersion: at, TTL: r.ttl, Value: []byte("7"), Delta: 1}, Done: tell}
	if op.batch {
		w = &Write{Done: tell, Op: Op{Kind: OpBatch, Parts: []Part{
			{Key: append(r.key(), " beside"...), Value: []byte("x"), TTL: time.Minute},
			{Key: r.key(), Value: []byte("7"), Delete: op.op == OpDelete, If: r.cond, IfVersion: at, TTL: r.ttl},
		}}}
	}
	asked := n.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := bounded("the write", func() error { return n.Do(ctx, w) })
	if r.ttl != 0 && !op.takes {
		if !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v, want ErrUnsupported", r.key(), err)
		}
		return
	}
	there := r.existing != "absent"
	holds := r.cond == CondNone || r.cond == CondAbsent && !there || (r.cond == CondExists || r.cond == CondVersion) && there
	if holds = holds && (there || op.op != OpTouch); !holds {
		if !errors.Is(err, ErrCondition) {
			t.Errorf("%s: %v, want ErrCondition", r.key(), err)
		}
		return
	}
	if err != nil {
		t.Errorf("%s: %v", r.key(), err)
		return
	}
	info, err := n.Stat(t.Context(), 0, r.key())
	if op.op == OpDelete {
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %+v, %v after a delete", r.key(), info, err)
		}
		return
	}
	if r.ttl == 1 { // a nanosecond: it has expired, or is about to
		if err != nil && !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", r.key(), err)
		}
		return
	}
	want := r.ttl
	if op.op == OpIncrement {
		want = 0
		if r.existing == "expiring" {
			want = 2 * time.Hour
		}
	}
	switch {
	case err != nil:
		t.Errorf("%s: %v", r.key(), err)
	case want == 0 && info.Expiry != 0:
		t.Errorf("%s: expires at %d, want never", r.key(), info.Expiry)
	case want != 0:
		// The server's time and this one run apart by what the test takes.
		off := time.UnixMicro(int64(info.Expiry)).Sub(asked.Add(want))
		if info.Expiry == 0 || off < -10*time.Minute || off > 10*time.Minute {
			t.Errorf("%s: expiry %d is %v off", r.key(), info.Expiry, off)
		}
	}
}
