package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

// copyOf opens a copy of a group at whoever leads.
func (c *cluster) copyOf(id consensus.GroupID, shard uint16) (h *host, s *Store, got GroupCopy) {
	c.t.Helper()
	waitFor(c.t, "a copy of a group", func() bool {
		if h = c.leader(shard); h == nil || h.store() == nil {
			return false
		}
		s = h.store()
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		var err error
		got, err = CopyGroup(ctx, s, id)
		if err != nil && !errors.Is(err, ErrNotLeader) && !errors.Is(err, context.DeadlineExceeded) {
			c.t.Fatal(err)
		}
		return err == nil
	})
	return h, s, got
}

// readAll is all keys of a shard of a copy, read some at a time.
func readAll(t *testing.T, s *Store, id uint64, shard uint16, some int) map[string]string {
	t.Helper()
	all := make(map[string]string)
	var last []byte
	for n := some; n == some; {
		n = 0
		err := ReadCopy(t.Context(), s, id, shard, last, false, func(r CopyRecord) bool {
			all[string(r.Key)] = string(r.Value)
			last = append(last[:0], r.Key...)
			n++
			return n < some
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// TestGroupCopy: a copy has what was acknowledged before it was opened, and is of one entry of the group over all its shards, however long it
// is read and whatever is written meanwhile.
func TestGroupCopy(t *testing.T) {
	c := newCluster(t, nil)
	stop, acked := make(chan struct{}), [2]atomic.Int64{}
	var wg sync.WaitGroup
	wg.Go(func() { // shard 0 first, then shard 2, each the next number
		for n := int64(1); ; n++ {
			for i, shard := range [...]uint16{0, 2} {
				c.put(shard, "n", strconv.FormatInt(n, 10))
				acked[i].Store(n)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for i := range 20 {
		c.put(0, fmt.Sprint("k", i), "v")
	}
	for range 10 {
		before := [2]int64{acked[0].Load(), acked[1].Load()}
		_, s, got := c.copyOf(pair, 0)
		if got.ID == 0 || got.Index == 0 || got.Term == 0 || len(got.Shards) != 2 {
			t.Fatalf("%+v", got)
		}
		for round := range 2 {
			a, b := readAll(t, s, got.ID, 0, 3), readAll(t, s, got.ID, 2, 1)
			n0, _ := strconv.ParseInt(a["n"], 10, 64)
			n2, _ := strconv.ParseInt(b["n"], 10, 64)
			if len(a) < 20 || n0 < before[0] || n2 < before[1] {
				t.Errorf("%d keys, numbers %d and %d; %v were acknowledged before", len(a), n0, n2, before)
			}
			if n0 != n2 && n0 != n2+1 {
				t.Errorf("round %d: numbers %d and %d are of no moment", round, n0, n2)
			}
			if round == 0 {
				c.put(0, "k0", "v") // and the writer goes on
				if err := s.ckpt.Now(t.Context()); err != nil {
					t.Error(err)
				}
				before = [2]int64{n0, n2}
			} else if n0 != before[0] || n2 != before[1] {
				t.Errorf("numbers %d and %d, and %v when it was read first", n0, n2, before)
			}
		}
		if err := CloseCopy(s, got.ID); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	wg.Wait()
}

// TestGroupCopyDeposed: who leads no more copies nothing, although nobody has told it yet.
func TestGroupCopyDeposed(t *testing.T) {
	c := newCluster(t, nil)
	c.put(0, "k", "old")
	old := c.leader(0)
	c.cut(old.id, true)
	got := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), testPatience)
	defer cancel()
	go func() {
		_, err := CopyGroup(ctx, old.Store, pair)
		got <- err
	}()
	if err := <-got; !errors.Is(err, ErrNotLeader) {
		t.Errorf("a leader that is cut off: %v", err)
	}
	c.cut(old.id, false)
	for _, h := range c.hosts {
		if h != c.leader(0) {
			if _, err := CopyGroup(ctx, h.Store, pair); !errors.Is(err, ErrNotLeader) && err != nil {
				t.Errorf("a store that follows: %v", err)
			}
		}
	}
}

// TestGroupCopiesAreBounded: few are open at a time, and one that is closed, by hand or with the store, is read no more.
func TestGroupCopiesAreBounded(t *testing.T) {
	c := newCluster(t, nil)
	c.put(1, "k", "v")
	h, s, first := c.copyOf(single, 1)
	ids := []uint64{first.ID}
	for len(ids) < MaxGroupCopies {
		got, err := CopyGroup(t.Context(), s, single)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, got.ID)
	}
	if _, err := CopyGroup(t.Context(), s, single); !errors.Is(err, ErrCopies) || !errors.Is(err, ErrOverloaded) {
		t.Errorf("one more: %v", err)
	}
	if _, err := CopyGroup(t.Context(), s, 99); !errors.Is(err, consensus.ErrNoGroup) {
		t.Errorf("a group that is not there: %v", err)
	}
	none := func(CopyRecord) bool { t.Error("a record"); return false }
	if err := ReadCopy(t.Context(), s, first.ID, 0, nil, false, none); !errors.Is(err, ErrShard) {
		t.Errorf("a shard of another group: %v", err)
	}
	if err := CloseCopy(s, first.ID); err != nil {
		t.Error(err)
	}
	if err := errors.Join(CloseCopy(s, first.ID)); !errors.Is(err, ErrNoCopy) {
		t.Errorf("closed twice: %v", err)
	}
	if err := ReadCopy(t.Context(), s, first.ID, 1, nil, false, none); !errors.Is(err, ErrNoCopy) {
		t.Errorf("a closed one: %v", err)
	}
	if _, err := CopyGroup(t.Context(), s, single); err != nil {
		t.Errorf("behind one that was closed: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("with copies that are open: %v", err)
	}
	if err := ReadCopy(t.Context(), s, ids[1], 1, nil, false, none); !errors.Is(err, ErrNoCopy) {
		t.Errorf("of a store that is closed: %v", err)
	}
	h.away()
}

// TestCopiesGiveWay: a copy that nobody reads gives its room to another one, and is closed after a while; one that is read keeps it, but not for ever.
func TestCopiesGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cs copies
		count := func() int {
			cs.mu.Lock()
			defer cs.mu.Unlock()
			return len(cs.open)
		}
		open := func() (uint64, *openCopy) {
			t.Helper()
			id, err := cs.reserve()
			if err != nil {
				t.Fatal(err)
			}
			c := &openCopy{over: true} // it has no snapshot
			if err := cs.begin(id, c); err != nil {
				t.Fatal(err)
			}
			return id, c
		}
		none := func(when string) {
			t.Helper()
			if _, err := cs.reserve(); !errors.Is(err, ErrCopies) {
				t.Errorf("%s there is room: %v", when, err)
			}
		}
		first, _ := open()
		time.Sleep(time.Second)
		for range MaxGroupCopies - 1 {
			open()
		}
		none("all are new:")
		time.Sleep(copyYields - 2*time.Second)
		if cs.get(first) == nil {
			t.Error("the first one is gone")
		}
		time.Sleep(time.Second)
		none("a second too early")
		time.Sleep(time.Second)
		last, _ := open()
		if cs.get(first) == nil || count() != MaxGroupCopies {
			t.Errorf("the one that was read had to go, or nobody: %d copies", count())
		}
		for range 10 {
			time.Sleep(copyIdle - time.Second)
			if cs.get(first) == nil {
				t.Fatal("one that is read is closed")
			}
		}
		if cs.get(last) != nil || count() != 1 {
			t.Errorf("those that nobody reads are not closed: %d", count())
		}
		began := time.Now()
		for cs.get(first) != nil && time.Since(began) < 2*copyLife {
			time.Sleep(time.Minute)
		}
		if lived := time.Since(began); lived < copyLife-time.Hour || lived > copyLife+time.Minute {
			t.Errorf("one that is read was closed after %v", lived)
		}
		cs.end()
		if _, err := cs.reserve(); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}
