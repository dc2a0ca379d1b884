package cluster

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// refused runs kvclient on east; it must fail and say some words.
func (w *world) refused(words []string, args ...string) {
	w.t.Helper()
	out, code, errOut := w.kvclient(w.t, w.net.Host("east"), args...)
	if code == 0 {
		w.t.Errorf("kvclient %q: exit code 0\n%s", args, out)
	}
	for _, word := range words {
		if !strings.Contains(errOut, word) {
			w.t.Errorf("kvclient %q does not say %q: %s", args, word, errOut)
		}
	}
}

// TestBirth: what a cluster is before and after its shard map is agreed on, once
// and for ever, also over a restart.
func TestBirth(t *testing.T) {
	if testing.Short() {
		t.Skip("restarts a cluster: make cluster-test")
	}
	parallel(t)
	w := newWorld(t)
	must(t, w.Start(within(t)))
	any, east := w.Nodes[1], w.net.Host("east")
	w.refused([]string{"cluster init"}, "--server", any.Addr(), "--timeout", "2s", "put", "key", "value")
	w.refused([]string{"cluster init"}, "--server", any.Addr(), "--timeout", "2s", "get", "key")
	st, err := w.status(t, east, any)
	must(t, err)
	if !st.Clustered || st.Map.Version != 0 || len(st.Map.Owners) != 0 {
		t.Errorf("before there is a map: %+v", st)
	}
	w.refused([]string{"n4"}, "--server", any.Addr(), "cluster", "init", "--wait", "1s", "n1", "n2", "n3", "n4")

	w.initMap()
	w.awaitAlive(t, east)
	born, err := w.status(t, east, any)
	must(t, err)
	checkMap(t, &born)
	w.must("west", "--server", any.Addr(), "put", "key", "value")
	if out := w.must("west", "--server", w.Nodes[2].Addr(), "get", "key"); out != "value" && out != "value\n" {
		t.Errorf("the key is %q", out)
	}

	// The same again is done already; another one cannot be.
	w.must("east", "--server", any.Addr(), "cluster", "init", "n3", "n2", "n1")
	w.refused(nil, "--server", any.Addr(), "cluster", "init", "n1", "n2")
	w.refused(nil, "--server", any.Addr(), "cluster", "init", "n1:5", "n2", "n3")
	for _, args := range [][]string{{"add", "n4", "--yes"}, {"remove", "n1", "--yes"}, {"replace", "n1", "n4", "--yes"}} {
		w.refused([]string{"without replicas", "--help"}, append([]string{"--server", any.Addr(), "cluster"}, args...)...)
	}
	for _, s := range w.Nodes {
		must(t, s.Stop(patience))
	}
	must(t, w.Start(within(t)))
	w.awaitAlive(t, east)
	after, err := w.status(t, east, any)
	must(t, err)
	checkMap(t, &after)
	if after.ID != born.ID || after.Map.Digest != born.Map.Digest || !slices.Equal(after.Map.Owners, born.Map.Owners) {
		t.Errorf("the map was %+v and is %+v", born.Map, after.Map)
	}
	if out := w.must("west", "--server", w.Nodes[0].Addr(), "get", "key"); out != "value" && out != "value\n" {
		t.Errorf("the key is %q", out)
	}
}

// checkMap: 32 shards, spread evenly, and every node has committed the same map.
func checkMap(t *testing.T, st *status) {
	t.Helper()
	if st.Map.Version != 1 || len(st.Map.Owners) != 32 || len(st.Nodes) != 3 {
		t.Errorf("the map is %+v, of %d nodes", st.Map, len(st.Nodes))
	}
	for _, n := range st.Nodes {
		owned := 0
		for _, id := range st.Map.Owners {
			if id == n.ID {
				owned++
			}
		}
		if owned < 10 || owned > 11 || owned != n.Shards || !n.Reached || n.Status == nil || n.Status.Map.Digest != st.Map.Digest || n.Status.Map.State != "committed" {
			t.Errorf("node %s owns %d shards: %+v, %+v", n.ID, owned, n, n.Status)
		}
	}
}

// TestScripts: the command lines that scripts rely on, without keys and secrets.
func TestScripts(t *testing.T) {
	parallel(t)
	w := newWorld(t, func(o *Options) { o.Open = true }).born()
	records := realData(t, 1000)
	w.imports("east", records)
	w.imports("west", records)
	out := w.must("west", "--server", w.Nodes[2].Addr(), "cluster", "status", "-o", "json")
	var st status
	must(t, json.Unmarshal([]byte(out), &st))
	checkMap(t, &st)
	c := w.dial("east")
	must(t, c.WaitOneSided(within(t)))
	table, err := c.ReadAll(within(t), records)
	must(t, err)
	t.Log(table)
}
