package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/internal/disk"
)

// check has a group compared, and returns what each store that runs has come to. One that has got a state behind the entry does not know of the
// check, so another one is put, as kvclient does.
func (c *cluster) check(id consensus.GroupID, shard uint16) (index uint64, of [3]GroupCheck) {
	c.t.Helper()
	for deadline := time.Now().Add(testPatience); ; {
		index = c.putCheck(id, shard)
		of = c.checked(id, index)
		again := slices.ContainsFunc(of[:], func(o GroupCheck) bool {
			return o.Index != 0 && o.State == CheckUnknown || errors.Is(o.Err, ErrOvertaken) || errors.Is(o.Err, ErrOverloaded)
		})
		if !again || time.Now().After(deadline) {
			return index, of
		}
	}
}

// putCheck has the leader of a group put a check, whoever that is.
func (c *cluster) putCheck(id consensus.GroupID, shard uint16) (index uint64) {
	c.t.Helper()
	waitFor(c.t, "a leader that takes a check", func() bool {
		h := c.leader(shard)
		if h == nil || h.store() == nil {
			return false
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		var err error
		index, err = CheckGroup(ctx, h.store(), id)
		if err != nil && !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrOverloaded) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrClosed) {
			c.t.Fatalf("a check: %v", err)
		}
		return err == nil
	})
	return index
}

// checked waits until each store that runs is through with a check.
func (c *cluster) checked(id consensus.GroupID, index uint64) (of [3]GroupCheck) {
	c.t.Helper()
	for i, h := range c.hosts {
		waitFor(c.t, fmt.Sprintf("store %d to be through with the check at entry %d", i, index), func() bool {
			s := h.store()
			if s == nil {
				return true
			}
			var err error
			if of[i], err = CheckOf(s, id, index); err != nil {
				c.t.Fatal(err)
			}
			return of[i].State == CheckDone || of[i].State == CheckFailed || of[i].State == CheckUnknown
		})
	}
	return of
}

// compareUntil has groups compared, one after the other, whatever becomes of the stores meanwhile: those that come to a digest have the same one. It
// returns how many digests it has held against another.
func (c *cluster) compareUntil(ends time.Time) (compared int) {
	for round := 0; time.Now().Before(ends); round++ {
		id, shard := pair, uint16(0)
		if round%2 == 1 {
			id, shard = single, 1
		}
		index := uint64(0)
		if h := c.leader(shard); h != nil {
			if s := h.store(); s != nil {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				index, _ = CheckGroup(ctx, s, id) // it may lead no more, or have lost its power
				cancel()
			}
		}
		if index == 0 {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		var first *GroupCheck
		var of [3]bool
		for wait := time.Now().Add(500 * time.Millisecond); time.Now().Before(wait); time.Sleep(5 * time.Millisecond) {
			for i, h := range c.hosts {
				s := h.store()
				if of[i] || s == nil {
					continue
				}
				got, err := CheckOf(s, id, index)
				if err != nil || got.State != CheckDone {
					continue
				}
				if of[i] = true; first == nil {
					first = &got
				} else if compared++; got.Digest != first.Digest {
					c.t.Errorf("group %d, entry %d: store %d: %+v, another one %+v", id, index, i, got, *first)
				}
			}
		}
	}
	return compared
}

// wantAlike fails unless all have a digest, and the same.
func (c *cluster) wantAlike(what string, of [3]GroupCheck) {
	c.t.Helper()
	for i := range of {
		if of[i].State != CheckDone || of[i].Digest != of[0].Digest {
			c.t.Errorf("%s: store %d: %+v, and store 0: %+v", what, i, of[i], of[0])
		}
	}
}

// TestGroupCheck: replicas that have applied the same are alike at a check's place, whatever was written to them, while others write, and
// wherever the checkpoints of each ended before.
func TestGroupCheck(t *testing.T) {
	seed := rand.Uint64N(1 << 40)
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	c := newCluster(t, nil)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(2+w)))
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				op := Op{Shard: uint16(rng.IntN(3)), Key: fmt.Appendf(nil, "k%d", rng.IntN(40))}
				switch rng.IntN(8) {
				case 0:
					op.Kind = OpDelete
				case 1:
					op.Value, op.TTL = []byte("for a while"), time.Duration(1+rng.IntN(3))*time.Second
				case 2:
					op.Key, op.Kind, op.Delta, op.ID = []byte("n"), OpIncrement, 1, RequestID{Client: [16]byte{byte(w + 1)}, Seq: uint64(i + 1)}
				case 3:
					op.Value = []byte(pattern(40_000, fmt.Sprint(w, i))) // it stands apart
				default:
					op.Value = fmt.Appendf(nil, "%d of %d", i, w)
				}
				c.do(op)
			}
		})
	}
	rounds := 8
	if testing.Short() {
		rounds = 4
	}
	last := uint64(0)
	for round := range rounds {
		for _, h := range c.hosts {
			if rng.IntN(2) == 0 {
				h.checkpoint()
			}
		}
		for id, shard := range map[consensus.GroupID]uint16{pair: 2, single: 1} {
			index, of := c.check(id, shard)
			c.wantAlike(fmt.Sprintf("round %d, group %d, entry %d", round, id, index), of)
			if id == pair {
				if index <= last {
					t.Errorf("the check is at entry %d, and the one before at %d", index, last)
				}
				last = index
			}
		}
	}
	close(stop)
	wg.Wait()
	c.do(Op{Kind: OpIncrement, Shard: 1, Key: []byte("n"), Delta: 1, ID: RequestID{Client: [16]byte{9}, Seq: 1}})
	index, of := c.check(single, 1)
	if of[0].Digest.Keys == 0 || of[0].Digest.Results == 0 {
		t.Errorf("%+v: no keys, or no results of requests", of[0])
	}
	again, more := c.check(single, 1)
	if c.wantAlike("once more", more); again <= index {
		t.Errorf("the check is at entry %d, and the one before at %d", again, index)
	}
	for _, h := range c.hosts { // checkpoints have gone on
		h.checkpoint()
		if s, _ := h.groups.of[1].Load().Due(); s < again {
			t.Errorf("store %d: rounds stay at entry %d behind the check at %d", h.id, s, again)
		}
	}
}

// TestGroupCheckFinds: what differs on the disk of one replica, or cannot be read there, is found there, and in its own group.
func TestGroupCheckFinds(t *testing.T) {
	key := func(kind disk.Kind, name string) []byte { return disk.AppendKey(nil, 0, kind, []byte(name)) }
	put := func(h *host, key []byte, r disk.Record, spoil func(b []byte)) {
		b := make([]byte, disk.RecordSize(len(r.Value), r.Expiry != 0))
		disk.PutRecord(b, key, r)
		if spoil != nil {
			spoil(b)
		}
		h.setRaw(key, b)
	}
	remove := func(h *host, lower, upper []byte) {
		h.checkpoint()
		db := h.node.disk.ForTests().DB()
		if err := errors.Join(db.DeleteRange(lower, upper, pebble.NoSync), db.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	for name, plant := range map[string]func(h *host, was disk.Record) error{
		"another value": func(h *host, r disk.Record) error {
			r.Value = []byte("other")
			put(h, key(disk.KindData, "k"), r, nil)
			return nil
		},
		"another version": func(h *host, r disk.Record) error { r.Version++; put(h, key(disk.KindData, "k"), r, nil); return nil },
		"another expiry": func(h *host, r disk.Record) error {
			r.Expiry = 1 << 40
			put(h, key(disk.KindData, "k"), r, nil)
			return nil
		},
		"a key more": func(h *host, r disk.Record) error { put(h, key(disk.KindData, "l"), r, nil); return nil },
		"a key less": func(h *host, _ disk.Record) error {
			remove(h, key(disk.KindData, "k"), key(disk.KindData, "l"))
			return nil
		},
		"a result less": func(h *host, _ disk.Record) error {
			lower, upper := disk.KindBounds(0, disk.KindDedup)
			remove(h, lower, upper)
			return nil
		},
		"rot": func(h *host, r disk.Record) error {
			put(h, key(disk.KindData, "k"), r, func(b []byte) { b[len(b)-1] ^= 1 })
			return ErrCorrupt
		},
		"rot of a value that stands apart": func(h *host, r disk.Record) error {
			at := key(disk.KindValue, "large")
			put(h, at, disk.Record{Version: r.Version, Value: []byte("none of it")}, nil)
			return ErrCorrupt
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, nil)
			c.put(0, "k", "value")
			c.put(0, "large", pattern(disk.SeparateFrom, "large"))
			c.do(Op{Kind: OpIncrement, Shard: 0, Key: []byte("n"), Delta: 1, ID: RequestID{Client: [16]byte{1}, Seq: 1}})
			c.put(1, "k", "value")
			c.settle()
			_, of := c.check(pair, 0)
			c.wantAlike("before", of)
			bad := (c.leader(0).id + 1) % 3
			h := c.hosts[bad]
			rec, closer, err := h.node.disk.Read(0, []byte("k"))
			if err != nil {
				t.Fatal(err)
			}
			want := plant(h, disk.Record{Version: rec.Version, Value: []byte(string(rec.Value))})
			if err := closer.Close(); err != nil {
				t.Fatal(err)
			}
			index, of := c.check(pair, 0)
			for i := range of {
				switch {
				case i != bad && (of[i].State != CheckDone || of[i].Digest != of[(3-bad-i)].Digest):
					t.Errorf("store %d of those that are well: %+v", i, of[i])
				case i == bad && want != nil && (of[i].State != CheckFailed || !errors.Is(of[i].Err, want)):
					t.Errorf("the store that has rotted: %+v, want %v", of[i], want)
				case i == bad && want == nil && (of[i].State != CheckDone || of[i].Digest.Sum == of[(bad+1)%3].Digest.Sum):
					t.Errorf("entry %d: the store that differs has %+v, another %+v", index, of[i], of[(bad+1)%3])
				}
			}
			_, of = c.check(single, 1)
			c.wantAlike("the other group", of)
		})
	}
}

// TestGroupCheckOfWhoWasAway: a replica that was away is never taken for one that differs: it comes to the entry, or does not know the
// check, as after a start.
func TestGroupCheckOfWhoWasAway(t *testing.T) {
	c := newCluster(t, nil)
	c.put(1, "k", "v")
	c.settle()
	late := (c.leader(1).id + 1) % 3
	c.hosts[late].stop()
	ctx, cancel := context.WithTimeout(context.Background(), testPatience)
	defer cancel()
	c.put(1, "k", "w") // by whoever leads
	index, of := c.check(single, 1)
	for i, h := range c.hosts {
		if i == late {
			continue
		}
		if got, err := CheckOf(h.Store, single, index+1); err != nil || got.State != CheckBehind {
			t.Errorf("an entry that is not there yet: %+v, %v", got, err)
		}
		if of[i].State != CheckDone {
			t.Errorf("store %d: %+v", i, of[i])
		}
		if _, err := CheckOf(h.Store, 99, index); !errors.Is(err, consensus.ErrNoGroup) {
			t.Errorf("a group that is not there: %v", err)
		}
	}
	c.hosts[late].start()
	// It gets the entry, or a state behind it, because the others' bases have the entry and their logs may be without it.
	if got := c.checked(single, index)[late]; got.State == CheckFailed || got.State == CheckDone && got.Digest != of[(late+1)%3].Digest {
		t.Errorf("behind its start: %+v, the others have %+v", got, of[(late+1)%3])
	}
	c.settle()
	_, of = c.check(single, 1)
	c.wantAlike("behind its start", of)
	for _, h := range c.hosts {
		if h.running() && h != c.leader(1) {
			if _, err := CheckGroup(ctx, h.Store, single); !errors.Is(err, ErrNotLeader) {
				t.Errorf("a check at store %d, which does not lead: %v", h.id, err)
			}
			break
		}
	}
	gone := c.hosts[late]
	gone.checkpoint()
	gone.stop()
	if _, err := CheckOf(gone.Store, single, index); !errors.Is(err, ErrClosed) {
		t.Errorf("a store that is closed: %v", err)
	}
	if _, err := CheckGroup(ctx, gone.Store, single); !errors.Is(err, ErrClosed) {
		t.Errorf("a check at a store that is closed: %v", err)
	}
	gone.start()
	if got, err := CheckOf(gone.Store, single, index); err != nil || got.State != CheckUnknown {
		t.Errorf("what was before the start: %+v, %v", got, err)
	}
}

// TestGroupCheckWithoutMajority: a check of a leader that has no majority ends, with an error that says that it leads no more.
func TestGroupCheckWithoutMajority(t *testing.T) {
	c := newCluster(t, nil)
	c.put(1, "k", "v")
	lead := c.leader(1)
	c.cut(lead.id, true)
	ctx, cancel := context.WithTimeout(context.Background(), testPatience)
	defer cancel()
	if _, err := CheckGroup(ctx, lead.Store, single); !errors.Is(err, ErrNotLeader) {
		t.Errorf("%v", err)
	}
	c.cut(lead.id, false)
	c.settle()
	_, of := c.check(single, 1)
	c.wantAlike("with a majority", of)
}

// TestGroupCheckEndsWithItsStore: checks and ends of stores do not wait for each other.
func TestGroupCheckEndsWithItsStore(t *testing.T) {
	c := newCluster(t, nil)
	for i := range 30 {
		c.put(1, fmt.Sprint("k", i), pattern(10_000, fmt.Sprint(i)))
	}
	for range 3 {
		h := c.leader(1)
		if h == nil {
			continue
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), testPatience)
			defer cancel()
			if _, err := CheckGroup(ctx, h.Store, single); err != nil && !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrOverloaded) {
				t.Errorf("a check of a store that is closed: %v", err)
			}
		})
		h.stop()
		wg.Wait()
		h.start()
		c.settle()
	}
	_, of := c.check(single, 1)
	c.wantAlike("at the end", of)
}
