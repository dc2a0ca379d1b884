package store

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/upkeep"
)

// TestResultOfBeforeTheGroup: a write that changed nothing leaves a result in the store's own stream, and no key. Were the shard a
// group's then, the next checkpoint would add the stream behind the entries of groups, so the old result would take the place of a newer
// one of the same slot, which stands in an entry; and after the next start a retry of the newer request would be applied again. So the
// result has to be forgotten first.
func TestResultOfBeforeTheGroup(t *testing.T) {
	disk := memFS()
	cfg := alone(disk)
	cfg.checkpoints = time.Hour
	n := open(t, cfg)
	id := RequestID{Client: [16]byte{1}, Seq: 1}
	w := &Write{Op: Op{Shard: 0, Key: []byte("k"), Value: []byte("v"), If: CondExists, ID: id}}
	if err := n.Do(t.Context(), w); !errors.Is(err, ErrCondition) {
		t.Fatal(err)
	}
	ticks := time.Duration(0)
	for ; ; ticks++ {
		if err := AddGroup(t.Context(), n.Store, aGroup(7, 0)); err == nil {
			break
		} else if !errors.Is(err, ErrGroups) {
			t.Fatal(err)
		}
		n.dedup.Tick()
		if err := upkeep.NewForgetter(n.upkeep(), n.dedup, slog.New(slog.DiscardHandler)).Some(); err != nil {
			t.Fatal(err)
		}
	}
	if d := ticks * dedup.TickEvery; d < dedup.ForgetAfter-dedup.TickEvery {
		t.Errorf("the result is forgotten after %v", d)
	}
	n.leads(0)
	id.Seq = 2
	w = &Write{Op: Op{Kind: OpIncrement, Shard: 0, Key: []byte("n"), Delta: 1, ID: id}}
	if err := n.Do(t.Context(), w); err != nil || w.Result.Number != 1 {
		t.Fatal(err, w.Result.Number)
	}
	n.checkpoint()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	cfg = alone(disk)
	n = open(t, cfg)
	n.leads(0)
	id.Age = time.Second
	w = &Write{Op: Op{Kind: OpIncrement, Shard: 0, Key: []byte("n"), Delta: 1, ID: id}}
	if err := n.Do(t.Context(), w); err != nil || w.Result.Number != 1 {
		t.Errorf("a retry of an increment: %v, it is %d now", err, w.Result.Number)
	}
	n.want(0, "n", "1")
}

// TestForgottenResultAfterAdoption: a leader that is short of room for results forgets one before its time, removes its record, and
// knows that of what it does not know nothing can be told. Who adopts its state has neither the record nor that knowledge, and takes a
// retry for a new request: it is applied twice (section 3, R4; dedup: WasShort).
func TestForgottenResultAfterAdoption(t *testing.T) {
	cfg := alone(memFS())
	cfg.dedupEntries = 16
	from := openWith(t, cfg, aGroup(7, 0))
	from.leads(0)
	ids := []RequestID{{Client: [16]byte{0, 1}, Seq: 1}, {Client: [16]byte{0, 2}, Seq: 1}, {Client: [16]byte{0, 3}, Seq: 1}}
	for _, id := range ids {
		if err := from.Do(t.Context(), &Write{Op: Op{Kind: OpIncrement, Shard: 0, Key: []byte("n"), Delta: 1, ID: id}}); err != nil {
			t.Fatal(err)
		}
	}
	from.checkpoint()
	if err := upkeep.NewForgetter(from.upkeep(), from.dedup, slog.New(slog.DiscardHandler)).Some(); err != nil {
		t.Fatal(err)
	}
	from.checkpoint()
	retry := ids[0]
	retry.Age = time.Second
	if again, err := from.dedup.Look(&retry); !errors.Is(err, ErrOutcomeUnknown) {
		t.Fatalf("at the leader: %v, %v", again, err)
	}
	n := adopts(t, from)
	n.want(0, "n", "3")
	if !n.disk.Short() {
		t.Error("its disk does not know that results were forgotten early")
	}
	last := ids[2]
	last.Age = time.Second
	if again, err := n.dedup.Look(&last); !again || err != nil {
		t.Errorf("a retry of what the state has: %v, %v", again, err)
	}
	if again, err := n.dedup.Look(&retry); !again && err == nil {
		t.Error("at the one that has adopted its state a retry of a request that was applied is a new one")
	}
}

// TestRetryAfterAdoption: whoever adopts the state of a leader that has forgotten nothing knows as much as that one: a retry of what was never applied is a new
// request, and one of what was is told the result. If not, no write whose first copy went to another replica could be done for a minute.
func TestRetryAfterAdoption(t *testing.T) {
	from := openWith(t, alone(memFS()), aGroup(7, 0))
	from.leads(0)
	done := RequestID{Client: [16]byte{0, 1}, Seq: 1}
	if err := from.Do(t.Context(), &Write{Op: Op{Kind: OpIncrement, Shard: 0, Key: []byte("n"), Delta: 1, ID: done}}); err != nil {
		t.Fatal(err)
	}
	from.checkpoint()
	n := adopts(t, from)
	never := RequestID{Client: [16]byte{0, 2}, Seq: 1, Age: time.Second}
	if again, err := n.dedup.Look(&never); again || err != nil {
		t.Errorf("a retry of what was never applied: %v, %v", again, err)
	}
	done.Age = time.Second
	if again, err := n.dedup.Look(&done); !again || err != nil {
		t.Errorf("a retry of what was: %v, %v", again, err)
	}
	if n.disk.Short() {
		t.Error("its disk says that results were forgotten early")
	}
}

// adopts is a new replica that has adopted the state of another one's group.
func adopts(t *testing.T, from *node) *node {
	t.Helper()
	snap, err := (&machine{from.groups.of[0].Load(), from.Store}).Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	g := aGroup(7, 0)
	g.Founders.Voters = nil
	n := openWith(t, alone(memFS()), g)
	n.fill()
	m := &machine{n.groups.of[0].Load(), n.Store}
	got, err := m.Receive(t.Context(), snap.State(), snap)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Adopt(got); err != nil {
		t.Fatal(err)
	}
	return n
}
