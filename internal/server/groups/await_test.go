package groups

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/transport"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// TestAwaits: a node that is about to end waits for those whose replicas have not caught up, if a group has no majority without it until they have, and has one then.
func TestAwaits(t *testing.T) {
	lacks := []uint32{3, 5}
	for name, c := range map[string]struct {
		voters int
		says   map[string][]uint32 // of group 5, whose replica 1 is at node a, which asks
		change func(*consensus.Status)
		late   []string
		short  bool
	}{
		"all have caught up":             {voters: 3, says: map[string][]uint32{"b": nil, "c": nil}},
		"one has not":                    {voters: 3, says: map[string][]uint32{"b": lacks, "c": nil}, late: []string{"b"}},
		"none has":                       {voters: 3, says: map[string][]uint32{"b": lacks, "c": lacks}, late: []string{"b", "c"}},
		"it lacks another group":         {voters: 3, says: map[string][]uint32{"b": {3, 6}, "c": nil}},
		"one is down":                    {voters: 3, says: map[string][]uint32{"c": nil}, short: true},
		"one is down, one has not":       {voters: 3, says: map[string][]uint32{"c": lacks}, short: true},
		"nobody answers":                 {voters: 3, short: true},
		"three of five have":             {voters: 5, says: map[string][]uint32{"b": nil, "c": nil, "d": nil, "e": lacks}},
		"two of five have":               {voters: 5, says: map[string][]uint32{"b": nil, "c": nil, "d": lacks}, late: []string{"d"}},
		"two of five have, two are down": {voters: 5, says: map[string][]uint32{"b": nil, "c": nil}, short: true},
		"four voters, two have":          {voters: 4, says: map[string][]uint32{"b": nil, "c": nil, "d": lacks}, late: []string{"d"}},
		"two voters":                     {voters: 2, says: map[string][]uint32{"b": lacks}},
		"two voters, one is down":        {voters: 2},
		"it is alone":                    {voters: 1},
		"no voter itself":                {voters: 3, says: map[string][]uint32{"b": lacks, "c": nil}, change: func(st *consensus.Status) { st.ID = 7 }},
		"stopped itself":                 {voters: 3, says: map[string][]uint32{"b": lacks, "c": nil}, change: func(st *consensus.Status) { st.Fenced = errors.New("x") }},
	} {
		st := consensus.Status{Group: 5, ID: 1, Config: voters(c.voters)}
		if c.change != nil {
			c.change(&st)
		}
		if got := awaits(&st, c.says); !slices.Equal(got.late, c.late) || got.short != c.short {
			t.Errorf("%s: %+v, want late %v, short %v", name, got, c.late, c.short)
		}
	}
}

// TestAsksAgain: those that are late are waited for as long as there is time, those that do not answer for a moment, and nobody else at all.
func TestAsksAgain(t *testing.T) {
	late, short, settled := awaiting{group: 5, late: []string{"b"}}, awaiting{short: true}, awaiting{}
	for name, c := range map[string]struct {
		seen  []awaiting // at one look after the other; the last one stays
		looks int
		took  time.Duration
		want  bool // somebody is late still
	}{
		"nobody is late":                 {seen: []awaiting{settled}, looks: 1},
		"somebody is late for a while":   {seen: []awaiting{late, late, late, settled}, looks: 4, took: 3 * askEvery},
		"somebody is late for ever":      {seen: []awaiting{late}, looks: 50, took: 50 * askEvery, want: true},
		"who did not answer is there":    {seen: []awaiting{short, settled}, looks: 2, took: askEvery},
		"who did not answer is late":     {seen: []awaiting{short, late, late, settled}, looks: 4, took: 3 * askEvery},
		"some never answer":              {seen: []awaiting{short}, looks: 1 + int(silentFor/askEvery), took: silentFor},
		"the late one goes, and is gone": {seen: []awaiting{late, late, late, late, late, late, late, short}, looks: 8, took: 7 * askEvery},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*askEvery-askEvery/2)
			defer cancel()
			began, looks := time.Now(), 0
			got := until(ctx, func(context.Context) awaiting {
				looks++
				return c.seen[min(looks, len(c.seen))-1]
			})
			took := time.Since(began).Round(askEvery)
			if looks != c.looks || took != c.took || len(got.late) > 0 != c.want {
				t.Errorf("%s: %d looks, %v, %+v; want %d, %v, late %v", name, looks, took, got, c.looks, c.took, c.want)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), askEvery+askEvery/2)
		defer cancel()
		looks := 0
		if got := until(ctx, func(ctx context.Context) awaiting {
			if looks++; looks == 1 {
				return late
			}
			<-ctx.Done()
			return short
		}); len(got.late) == 0 || looks != 2 {
			t.Errorf("the time is over while others are asked: %d looks, %+v", looks, got)
		}
	})
}

// TestLackingFormat: the bytes of the question and of its answer are those that nodes of other releases send.
func TestLackingFormat(t *testing.T) {
	if got := hex.EncodeToString(appendLacking(nil)); got != "0400000000000000" {
		t.Errorf("the question: %s", got)
	}
	b := appendGroups([]byte("x"), []Lacking{{Group: 1}, {Group: 0x01020304}})
	if got := hex.EncodeToString(b); got != "78"+"01000000"+"04030201" {
		t.Errorf("the answer: %s", got)
	}
	if list, err := parseGroups(b[1:]); err != nil || !slices.Equal(list, []uint32{1, 0x01020304}) {
		t.Errorf("%v, %v", list, err)
	}
	if list, err := parseGroups(nil); err != nil || len(list) > 0 {
		t.Errorf("nothing is lacking: %v, %v", list, err)
	}
	long := make([]Lacking, cluster.MaxGroups+1)
	for i := range long {
		long[i].Group = uint32(i)
	}
	for name, b := range map[string][]byte{
		"half a group": {1, 0},
		"one twice":    appendGroups(nil, []Lacking{{Group: 7}, {Group: 7}}),
		"falling":      appendGroups(nil, []Lacking{{Group: 7}, {Group: 6}}),
		"too many":     appendGroups(nil, long),
	} {
		if list, err := parseGroups(b); !errors.Is(err, cluster.ErrMalformed) {
			t.Errorf("%s: %v, %v", name, list, err)
		}
	}
}

// TestAnswers: a node answers the question of this package itself, refuses what looks like it and is not, and hands on all else.
func TestAnswers(t *testing.T) {
	handed := 0
	g := New(Env{Node: "a", Answer: func(_ context.Context, node string, question []byte) ([]byte, error) {
		handed++
		return append([]byte(node+": "), question...), nil
	}})
	g.m = &cluster.Map{Replication: &cluster.Replication{}} // of which this node has no part
	if b, err := (others{g}).answer(t.Context(), "b", appendLacking(nil)); err != nil || len(b) > 0 || handed > 0 {
		t.Errorf("who has no replicas lacks %x, %v", b, err)
	}
	for name, q := range map[string][]byte{
		"half":     appendLacking(nil)[:4],
		"longer":   append(appendLacking(nil), 0),
		"reserved": {kindLacking, 0, 0, 0, 0, 0, 0, 1},
	} {
		if _, err := (others{g}).answer(t.Context(), "b", q); !errors.Is(err, cluster.ErrMalformed) || handed > 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, q := range []string{"", "\x01", "\x03 what is it?"} {
		handed = 0
		if b, err := (others{g}).answer(t.Context(), "b", []byte(q)); err != nil || string(b) != "b: "+q || handed != 1 {
			t.Errorf("%q: %q, %v", q, b, err)
		}
		if _, err := (others{New(Env{Node: "a"})}).answer(t.Context(), "b", []byte(q)); !errors.Is(err, cluster.ErrMalformed) {
			t.Errorf("%q, and nobody else answers: %v", q, err)
		}
	}
}

// TestAsksOthers: what a node says counts; one that refuses the question or answers something else is taken for one that lacks nothing, and one that does not answer is left out.
func TestAsksOthers(t *testing.T) {
	dev, err := iwarp.New(iwarp.Options{}).Open(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	addrs := map[string]string{"f": "127.0.0.1:1"} // nobody is there
	open := func(name string, answer func(context.Context, string, []byte) ([]byte, error)) *transport.Transport {
		tr, err := transport.New(transport.Config{
			Name: name, Secret: []byte("s"), Openings: []wire.Opening{{Epoch: 1, Incarnation: 1}}, Endpoint: nobody{}, Answer: answer,
			Routes: func(node string) (list []transport.Route) {
				if addrs[node] != "" {
					list = append(list, transport.Route{Device: dev, Addr: addrs[node]})
				}
				return list
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return tr
	}
	answers := func(b []byte, err error) func(context.Context, string, []byte) ([]byte, error) {
		return func(_ context.Context, _ string, question []byte) ([]byte, error) {
			if !bytes.Equal(question, appendLacking(nil)) {
				t.Errorf("the question: %x", question)
			}
			return b, err
		}
	}
	g := New(Env{Node: "a", Log: base.NewLog(slog.New(slog.DiscardHandler))})
	g.link.to.Store(open("a", nil))
	closing := []func() error{g.Close}
	for name, answer := range map[string]func(context.Context, string, []byte) ([]byte, error){
		"b": answers(appendGroups(nil, []Lacking{{Group: 3}}), nil),
		"c": answers(nil, errors.New("a question of a kind that this node does not know")),
		"d": answers([]byte{1}, nil),
		"e": nil, // it knows no questions
	} {
		tr := open(name, answer)
		ln, err := dev.Listen(t.Context(), "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addrs[name] = ln.Addr().String()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				req, err := ln.Accept(context.Background())
				if err != nil {
					return
				}
				tr.Accept(dev, req)
			}
		}()
		closing = append(closing, func() error {
			err := ln.Close()
			<-done
			return errors.Join(err, tr.Close())
		})
	}
	t.Cleanup(func() {
		for _, end := range append(closing, dev.Close) {
			if err := end(); err != nil {
				t.Error(err)
			}
		}
	})
	says := map[string][]uint32{"b": nil, "c": nil, "d": nil, "e": nil, "f": nil, "g": nil}
	others{g}.ask(t.Context(), says)
	want := map[string][]uint32{"b": {3}, "c": nil, "d": nil, "e": nil}
	for node := range map[string]bool{"b": true, "c": true, "d": true, "e": true, "f": true, "g": true} {
		got, answered := says[node]
		if list, does := want[node]; answered != does || !slices.Equal(got, list) {
			t.Errorf("node %s: answers %v, lacks %v", node, answered, got)
		}
	}
	if a := (others{g}).look(t.Context()); a.late != nil || a.short {
		t.Errorf("a node without replicas waits: %+v", a)
	}
	AwaitOthers(t.Context(), g) // and returns
	AwaitOthers(t.Context(), nil)
}

// FuzzGroups: what is read is what was written, whatever another node sends, and the question is taken for nothing else.
func FuzzGroups(f *testing.F) {
	f.Add(appendLacking(nil))
	f.Add(appendGroups(nil, []Lacking{{Group: 1}, {Group: 7}}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if mine, err := asksLacking(b); mine && err == nil && !bytes.Equal(b, appendLacking(nil)) {
			t.Errorf("%x is taken for the question", b)
		}
		list, err := parseGroups(b)
		if err != nil {
			return
		}
		back := make([]Lacking, len(list))
		for i, group := range list {
			back[i].Group = group
		}
		if got := appendGroups(nil, back); !bytes.Equal(got, b) {
			t.Errorf("%x is written as %x", b, got)
		}
	})
}
