package shardmap

import (
	"context"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// A map without replicas is in force, and its nodes promise the one by which they get groups.

// upgradeOf is the map by which the nodes of m get groups.
func upgradeOf(t testing.TB, m *cluster.Map) *cluster.Map {
	t.Helper()
	want := cluster.Want{Groups: 2}
	for _, n := range m.Nodes {
		want.Stores = append(want.Stores, [16]byte{n.ID[0]})
	}
	next, err := cluster.ProposeAdopting(m, want)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// both says what a book shows, by the maps of a test.
func both(b *Book, names map[*cluster.Map]string) string {
	name := func(of *cluster.Map) string {
		for m, n := range names {
			if same(of, m) {
				return n
			}
		}
		return "none"
	}
	return name(b.Map()) + " " + name(b.Promised())
}

// TestUpgradeSteps is the table of what each step does where a map without replicas is in force: that map stays in force until the commit, and the promise of the next one outlives a crash beside it.
func TestUpgradeSteps(t *testing.T) {
	m := mapOf(t, 1, "red", 8, "a", "b")
	next := upgradeOf(t, m)
	other := *next // promised by another run
	r := *next.Replication
	r.Stores = [][16]byte{{'a'}, {'z'}}
	other.Replication = &r
	later := *next // agreed on by the meta group of next
	later.Version++
	later.Replication = next.Replication
	elsewhere := *next
	elsewhere.Owner = append([]uint16(nil), next.Owner...)
	elsewhere.Owner[0] ^= 1
	names := map[*cluster.Map]string{m: "m", next: "next", &other: "other", &later: "later"}
	suits := errors.New("its tenants have stores of their own")
	for _, c := range []struct {
		promised *cluster.Map
		step     string
		m        *cluster.Map
		suits    error
		err      error
		after    string
	}{
		{nil, "prepare", next, nil, nil, "m next"},
		{nil, "prepare", next, suits, suits, "m none"},
		{nil, "prepare", &later, nil, cluster.ErrOtherMap, "m none"},
		{nil, "prepare", &elsewhere, nil, cluster.ErrMalformed, "m none"},
		{nil, "prepare", m, nil, nil, "m none"},
		{nil, "commit", next, nil, ErrNotPromised, "m none"},
		{nil, "follow", next, nil, ErrNotPromised, "m none"},
		{nil, "follow", &later, nil, ErrNotPromised, "m none"},
		{nil, "abandon", next, nil, nil, "m none"},
		{nil, "abandon", m, nil, ErrCommitted, "m none"},
		{next, "prepare", next, nil, nil, "m next"},
		{next, "prepare", next, suits, nil, "m next"}, // it was asked before
		{next, "prepare", &other, nil, cluster.ErrOtherMap, "m next"},
		{next, "commit", next, suits, nil, "next none"},
		{next, "commit", &other, nil, ErrNotPromised, "m next"},
		{next, "commit", m, nil, nil, "m next"},
		{next, "abandon", next, nil, nil, "m none"},
		{next, "abandon", &other, nil, cluster.ErrOtherMap, "m next"},
		{next, "abandon", m, nil, ErrCommitted, "m next"},
		{next, "follow", next, nil, nil, "next none"},
		{next, "follow", &later, nil, nil, "later none"},
		{next, "follow", &other, nil, cluster.ErrOtherMap, "m next"},
	} {
		t.Run(c.step, func(t *testing.T) {
			fs := newDisk(t)
			var says error
			b, err := Open(Options{
				FS: fs, Dir: dir, Node: "a", Name: "red", Shards: 8,
				Empty: func(context.Context) error {
					if m := m; says == nil && m != nil {
						return nil
					}
					return errors.New("it holds keys")
				},
				Suits: func(context.Context, *cluster.Map) error { return says },
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Change(t.Context(), nil, m); err != nil {
				t.Fatal(err)
			}
			if c.promised != nil {
				if err := b.Prepare(t.Context(), c.promised); err != nil {
					t.Fatal(err)
				}
			}
			says = c.suits
			if c.step == "follow" {
				err = b.Follow(t.Context(), c.m)
			} else {
				err = step(t.Context(), b, c.step, c.m)
			}
			if !errors.Is(err, c.err) || (err != nil) != (c.err != nil) {
				t.Errorf("%v, want %v", err, c.err)
			}
			if got := both(b, names); got != c.after {
				t.Errorf("then %s, want %s", got, c.after)
			}
			again := open(t, fs.CrashClone(vfs.CrashCloneCfg{}))
			if got := both(again, names); got != c.after {
				t.Errorf("after a crash %s, want %s", got, c.after)
			}
		})
	}
}

// TestUpgradeBegun: a commit that failed at the disk may be on it, so the promise is not taken back any more.
func TestUpgradeBegun(t *testing.T) {
	m := mapOf(t, 1, "red", 8, "a", "b")
	next := upgradeOf(t, m)
	fail := errorfs.Toggle{Injector: errorfs.ErrInjected}
	b := open(t, errorfs.Wrap(newDisk(t), &fail))
	if err := errors.Join(b.Change(t.Context(), nil, m), b.Prepare(t.Context(), next)); err != nil {
		t.Fatal(err)
	}
	fail.On()
	if err := b.Commit(next); !errors.Is(err, errorfs.ErrInjected) {
		t.Fatal(err)
	}
	fail.Off()
	if err := b.Abandon(next); !errors.Is(err, ErrCommitted) {
		t.Errorf("the promise of a map that may be in force is taken back: %v", err)
	}
	if err := b.Commit(next); err != nil || !same(b.Map(), next) || b.Promised() != nil {
		t.Errorf("%v, %v", err, b.Map())
	}
}
