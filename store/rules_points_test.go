//go:build points

package store

import (
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/layout"
)

// TestPutOrder: k lived at B, then at A; one client remembers B, another A.
// The next put of k gets B again. Between any two of its steps the first
// client reads, then the second: the second must not see an older state.
func TestPutOrder(t *testing.T) {
	n := open(t, testConfig(memFS()))
	n.fill()
	first, second := n.reader(), n.reader()
	n.put(0, "k", "version 0")
	first.want(0, "k", "version 0")
	n.put(0, "k", "version 1")
	second.want(0, "k", "version 1")
	if first.loc["k"].Place == second.loc["k"].Place {
		t.Fatal("both puts at one place")
	}
	look := func(point string) {
		v1, _, found1, ask1 := first.get(0, "k")
		v2, _, found2, ask2 := second.get(0, "k")
		if !ask1 && !ask2 && found1 && (!found2 || v2 < v1) {
			t.Errorf("at %s: %v was read, after it %v (found %v)", point, v1, v2, found2)
		}
	}
	b := first.loc["k"].Place
	reused := false
	hook(t, func(point string, args ...uint64) {
		if strings.HasPrefix(point, "publish.") {
			reused = reused || layout.Place(args[1]) == b
			// The remembered places must stay what they are.
			locs := [2]layout.Loc{first.loc["k"], second.loc["k"]}
			look(point)
			first.loc["k"], second.loc["k"] = locs[0], locs[1]
		}
	})
	n.put(0, "k", "version 2")
	if !reused {
		t.Fatal("the place was not used again: the scenario does not happen")
	}
}

// TestPutOrderOfInsert: k lived at B and was deleted. It is put again, at B. A client
// that remembers B sees it; another that looks in the index must, too.
func TestPutOrderOfInsert(t *testing.T) {
	n := open(t, testConfig(memFS()))
	n.fill()
	remembers, looks := n.reader(), n.reader()
	n.put(0, "k", "one")
	remembers.want(0, "k", "one")
	n.del(0, "k")
	loc := remembers.loc["k"]
	hook(t, func(point string, args ...uint64) {
		if !strings.HasPrefix(point, "publish.") {
			return
		}
		if layout.Place(args[1]) != loc.Place {
			t.Error("the place was not used again: the scenario does not happen")
		}
		remembers.loc["k"] = loc
		delete(looks.loc, "k")
		v, _, found1, _ := remembers.get(0, "k")
		if _, _, found2, ask2 := looks.get(0, "k"); found1 && !found2 && !ask2 {
			t.Errorf("at %s: %v was read, after it nothing", point, v)
		}
	})
	n.put(0, "k", "two")
}

// restarted is a store with one key per shard that was just opened again, with
// the fill about to judge the key of shard 0: atJudge runs at that moment, on
// the fill's goroutine.
func restarted(t *testing.T, fs vfs.FS, atJudge func(n *node)) *node {
	return restartedWith(t, func() Config { return testConfig(fs) }, Write{Op: Op{Value: []byte("old")}}, atJudge)
}

// restartedWith is restarted with other stores, and another put of each key.
func restartedWith(t *testing.T, config func() Config, put Write, atJudge func(n *node)) *node {
	n := open(t, config())
	for shard := range uint16(4) {
		w := put
		w.Shard, w.Key = shard, []byte("k")
		n.do(w)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	opened := make(chan *node, 1)
	var once sync.Once
	hook(t, func(point string, args ...uint64) {
		if point == "fill.judge" && args[0] == 0 {
			once.Do(func() { atJudge(<-opened) })
		}
	})
	c := config()
	c.FillWorkers = 1
	n = open(t, c)
	opened <- n
	return n
}

// TestFillLosesToDelete: the fill has read k; k is deleted, which finds no slot to
// clear; then the fill brings k in.
func TestFillLosesToDelete(t *testing.T) {
	n := restarted(t, memFS(), func(n *node) { n.del(0, "k") })
	n.fill()
	if value, ok := n.get(0, "k"); ok {
		t.Errorf("a deleted key is back: %q", value)
	}
	n.want(1, "k", "old")
}

// TestFillLosesToPut: the fill has read k; k is put; then the fill brings the old value.
func TestFillLosesToPut(t *testing.T) {
	n := restarted(t, memFS(), func(n *node) { n.put(0, "k", "new") })
	n.fill()
	if value, _ := n.get(0, "k"); value != "new" {
		t.Errorf("the old value is back: %q", value)
	}
	if _, value, ok, _ := n.reader().get(0, "k"); ok && value != "new" {
		t.Errorf("a reader sees the old value: %q", value)
	}
}
