package change

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/feature"
	"github.com/rdmakv/rdmakv/internal/seat"
)

// TestPollFormat: the bytes of a question are those that nodes of other releases send.
func TestPollFormat(t *testing.T) {
	m := born(t)
	head := "0100000000000000" + "0807060504030201" + "1817161514131211" + "0100000000000000" + "0000000000000000"
	of := echo{0x0102030405060708, 0x1112131415161718}
	if got := hex.EncodeToString(appendPoll(nil, of, 0, m, false)); got != head {
		t.Errorf("without a map: %s, want %s", got, head)
	}
	if got, want := hex.EncodeToString(appendPoll(nil, of, 3, m, false)), "0103"+head[4:]; got != want {
		t.Errorf("at level 3: %s, want %s", got, want)
	}
	for level := range feature.Level(4) {
		with := appendPoll([]byte("x"), of, level, m, true)
		if want := fmt.Sprintf("7801%02x", level) + head[4:] + hex.EncodeToString(cluster.AppendMap(nil, m)); hex.EncodeToString(with) != want {
			t.Errorf("with a map: %x, want %s", with, want)
		}
		q, err := parsePoll(with[1:])
		if err != nil || q.of != of || q.level != level || q.version != 1 || q.life != 0 || q.m.Digest() != m.Digest() {
			t.Errorf("%+v, %v", q, err)
		}
	}
}

// TestBadPolls: a question that no seat asks is refused, and says why.
func TestBadPolls(t *testing.T) {
	m := born(t)
	n := newNode(t, "b")
	n.has(m)
	whole := appendPoll(nil, n.reported(), 0, m, true)
	changed := func(at int, to byte) []byte {
		b := bytes.Clone(whole)
		b[at] = to
		return b
	}
	for name, b := range map[string][]byte{
		"nothing":                  nil,
		"half a head":              whole[:pollHead-1],
		"another kind":             changed(0, 2),
		"a kind that there is not": changed(0, 99),
		"the first reserved byte":  changed(2, 1),
		"the last reserved byte":   changed(7, 1),
		"a map of another one":     changed(24, 2),
		"of another meta group":    changed(32, 2),
		"half a map":               whole[:len(whole)-1],
		"something behind a map":   append(bytes.Clone(whole), 0),
		"one byte of a map":        whole[:pollHead+1],
		"a map of another format":  changed(pollHead, 99),
	} {
		if _, err := n.Answer(t.Context(), "a", b); !errors.Is(err, cluster.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
		if n.fresh.Load() != 0 {
			t.Errorf("%s: what it says of the map counts", name)
		}
	}
}

// reported is what a report of now says of the node's clock. The clock is after its zero.
func (n *node) reported() echo {
	for time.Since(n.begun) == 0 {
		time.Sleep(time.Nanosecond)
	}
	return echo{n.life, time.Since(n.begun)}
}

// asked has a node answer a poll of a seat that has read the meta group's state now, and had a report of the node.
func (n *node) asked(t testing.TB, m *cluster.Map, send bool) (r seat.Report, err error) {
	t.Helper()
	return n.askedOf(t, n.reported(), m, send)
}

// askedOf has a node answer a poll with an echo.
func (n *node) askedOf(t testing.TB, of echo, m *cluster.Map, send bool) (r seat.Report, err error) {
	t.Helper()
	b, err := n.Answer(context.Background(), "a", appendPoll(nil, of, 0, m, send))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return r, nil
}

// TestEchoes: what a poll says of the map counts from the moment of the report that it echoes, if that is one of this life of the node.
func TestEchoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, m := newNode(t, "b"), born(t)
		n.has(m)
		time.Sleep(time.Second)
		r, err := n.askedOf(t, echo{}, m, false)
		if err != nil || r.Life != n.life || r.Stamp != time.Second || n.life == 0 {
			t.Fatalf("a report of life %x, of %v, %v; it is life %x, and 1s is over", r.Life, r.Stamp, err, n.life)
		}
		time.Sleep(time.Second)
		for name, c := range map[string]struct {
			of   echo
			want time.Duration
		}{
			"no report":                     {echo{}, 0},
			"of this life, without a stamp": {echo{n.life, 0}, 0},
			"of an earlier life":            {echo{n.life + 1, time.Second}, 0},
			"of a moment that has not come": {echo{n.life, 2*time.Second + 1}, 0},
			"of no moment":                  {echo{n.life, -1}, 0},
			"of the report":                 {echo{n.life, r.Stamp}, time.Second},
			"of now":                        {echo{n.life, 2 * time.Second}, 2 * time.Second},
		} {
			n.fresh.Store(0)
			if _, err := n.askedOf(t, c.of, m, false); err != nil || time.Duration(n.fresh.Load()) != c.want {
				t.Errorf("%s: known behind %v, want %v; %v", name, time.Duration(n.fresh.Load()), c.want, err)
			}
		}
	})
}

// TestLatePoll: a poll that is held up, until another node leads the group and the map is a later one, does not have the new leader believe that the old map is the newest one.
func TestLatePoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.seat.Stop()
		r, b := c.seat.leads(), c.others["b"]
		sits := func() {
			t.Helper()
			if _, err := c.seat.sitOnce(r); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		ask := c.seat.ask
		var late []byte // the poll that is held up, to b
		c.seat.ask = func(ctx context.Context, node string, question []byte) ([]byte, error) {
			if node == "b" && late == nil && b.fresh.Load() != 0 {
				late = question
				return nil, errAway
			}
			return ask(ctx, node, question)
		}
		sits() // a report
		time.Sleep(time.Second)
		sits() // its echo
		time.Sleep(time.Second)
		sits() // and one that does not arrive
		if late == nil {
			t.Fatal("no poll was held up")
		}
		time.Sleep(time.Second)
		reign := time.Since(b.begun) // b is elected
		time.Sleep(time.Second)
		if _, err := b.Answer(t.Context(), "a", late); err != nil {
			t.Fatal(err)
		}
		if b.isFresh(b.now.Load(), reign) {
			t.Error("a leader believes a poll that was made before its reign")
		}
		sits() // its answer is the first report since the election
		if b.isFresh(b.now.Load(), reign) {
			t.Error("a leader believes a poll whose seat had no report of its reign")
		}
		time.Sleep(time.Second)
		sits()
		if !b.isFresh(b.now.Load(), reign) {
			t.Error("a leader is never told that its map is the newest one")
		}
	})
}

// TestStaysFresh: while the seat polls once in pollIdle, and waits for a node that does not answer, a leader knows at any time that its map is the newest one.
func TestStaysFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.seat.Stop()
		ask := c.seat.ask
		c.seat.ask = func(ctx context.Context, node string, question []byte) ([]byte, error) {
			if node == "c" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return ask(ctx, node, question)
		}
		time.Sleep(time.Second)
		c.seat.wg.Go(c.seat.sit)
		time.Sleep(2 * (pollIdle + pollTime))
		b := c.others["b"]
		for at := range 100 {
			time.Sleep(pollIdle / 4)
			synctest.Wait()
			if !b.isFresh(b.now.Load(), 0) {
				t.Fatalf("at look %d it is not, and was at %v of %v", at, time.Duration(b.fresh.Load()), time.Since(b.begun))
			}
		}
	})
}

// TestFollowsPolls: a node follows a later map that a poll brings, and no older one, and tells which one it has.
func TestFollowsPolls(t *testing.T) {
	first, next := born(t), moving(t, "c")
	for name, c := range map[string]struct {
		has, sent *cluster.Map
		send      bool
		follow    error
		followed  []uint64
		reports   uint64 // 0: it answers with an error
		fresh     bool
	}{
		"the same":                     {has: first, sent: first, reports: 1, fresh: true},
		"the same, sent":               {has: first, sent: first, send: true, reports: 1, fresh: true},
		"a later one, not sent":        {has: first, sent: next, reports: 1},
		"a later one":                  {has: first, sent: next, send: true, followed: []uint64{2}, reports: 2, fresh: true},
		"an older one":                 {has: next, sent: first, send: true, reports: 2},
		"the first one":                {sent: next, send: true, followed: []uint64{2}, reports: 2, fresh: true},
		"none, and none is sent":       {sent: next},
		"a later one that cannot last": {has: first, sent: next, send: true, follow: errors.New("the disk is full")},
	} {
		n := newNode(t, "d")
		if c.has != nil {
			n.has(c.has)
		}
		n.follow(c.follow)
		r, err := n.asked(t, c.sent, c.send)
		if (err != nil) != (c.reports == 0) || r.Map != c.reports || c.follow != nil && !errors.Is(err, c.follow) {
			t.Errorf("%s: reports map %d, %v", name, r.Map, err)
		}
		if !slices.Equal(n.followed, c.followed) || (n.fresh.Load() != 0) != c.fresh {
			t.Errorf("%s: followed %v, fresh %d", name, n.followed, n.fresh.Load())
		}
	}
}

// TestFresh: what a seat says of a map counts for freshFor, for what began before it was heard, and for the map that it was said of or a later one.
func TestFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, first := newNode(t, "b"), born(t)
		n.has(first)
		fresh := func(since time.Duration) bool { return n.isFresh(n.now.Load(), since) }
		if fresh(0) {
			t.Error("before any seat was heard")
		}
		time.Sleep(time.Second)
		if _, err := n.asked(t, first, false); err != nil {
			t.Fatal(err)
		}
		for since, want := range map[time.Duration]bool{0: true, time.Second - 1: true, time.Second: false, 2 * time.Second: false} {
			if fresh(since) != want {
				t.Errorf("of a reign since %v: %v", since, !want)
			}
		}
		time.Sleep(freshFor - 1)
		if !fresh(0) {
			t.Error("it ends too early")
		}
		time.Sleep(time.Nanosecond)
		if fresh(0) {
			t.Error("it does not end")
		}
		if _, err := n.asked(t, first, false); err != nil {
			t.Fatal(err)
		}
		was := n.now.Load()
		n.has(moving(t, "c"))
		if n.isFresh(was, 0) {
			t.Error("a map that is in force no more")
		}
		if !fresh(0) {
			t.Error("a map that is later than the one that was said to be the newest")
		}
	})
}

// TestReport: a node tells of the replicas that its map gives it and that run, and of others what it knows as their leader alone.
func TestReport(t *testing.T) {
	m := moving(t, "b")
	n, d := newNode(t, "a"), m.Draft()
	n.has(m)
	lead := leading(d.Group(1), "a", 7)
	lead.Peers[0].Active = false
	n.engine.set(lead)
	other := leading(d.Group(2), "a", 4)
	other.Leads, other.Peers = false, nil
	n.engine.set(other)
	n.engine.set(consensus.Status{Group: 9, ID: 1}) // that is none of the map's
	n.note(1, seat.Doing{Act: seat.Promote, Replica: 4})
	n.note(2, seat.Doing{Why: "of when it led"})
	r, err := n.asked(t, m, false)
	if err != nil || r.Map != 2 || len(r.Groups) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	id := uint64(lead.ID)
	one := seat.GroupReport{Group: 1, Replica: id, Leads: true, Term: 7, Config: 10, Shown: 1000, Voters: []uint64{1, 2, 3, 4}, Last: 1000, Match: map[uint64]uint64{}, Step: stepTexts[seat.Promote], Away: []uint64{uint64(lead.Peers[0].ID)}}
	for _, p := range lead.Peers {
		one.Match[uint64(p.ID)] = 1000
	}
	two := seat.GroupReport{Group: 2, Replica: uint64(other.ID), Term: 4, Config: 10, Shown: 1000, Voters: []uint64{1, 2, 3}, Last: 1000}
	if !reflect.DeepEqual(r.Groups, []seat.GroupReport{one, two}) {
		t.Errorf("%+v\nwant %+v", r.Groups, []seat.GroupReport{one, two})
	}
	lead.Fenced = errors.New("x")
	n.engine.set(lead)
	if r, err := n.asked(t, m, false); err != nil || len(r.Groups) != 1 || r.Groups[0].Group != 2 {
		t.Errorf("a replica that was stopped: %+v, %v", r, err)
	}
}

// TestReportsOfOthers: what a node says of replicas that the map does not have at it does not count.
func TestReportsOfOthers(t *testing.T) {
	d := moving(t, "b").Draft()
	at := func(g uint32, node string) seat.GroupReport {
		return seat.GroupReport{Group: g, Replica: d.Group(g).At(node).ID}
	}
	r := seat.Report{Map: 2, Groups: []seat.GroupReport{at(1, "a"), at(1, "c"), at(2, "a"), {Group: 1, Replica: 99}, {Group: 77, Replica: 1}, {}, at(1, "d"), at(0, "a")}}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for node, want := range map[string][]seat.GroupReport{"a": {at(1, "a"), at(2, "a"), at(0, "a")}, "c": {at(1, "c")}, "d": {at(1, "d")}, "e": {}} {
		if got, err := parseReport(b, node, d); err != nil || got.Map != 2 || !reflect.DeepEqual(got.Groups, want) {
			t.Errorf("of %s: %+v, %v", node, got, err)
		}
	}
	for name, b := range map[string][]byte{"nothing": nil, "no JSON": []byte("{"), "another type": []byte(`{"map":"x"}`), "too much": []byte(`{"map":1` + strings.Repeat(" ", maxReport) + "}")} {
		if _, err := parseReport(b, "a", d); !errors.Is(err, cluster.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReportsArePrintable: what a node says of its steps reaches an operator's terminal, so it is short, and has nothing in it that a terminal obeys.
func TestReportsArePrintable(t *testing.T) {
	d := born(t).Draft()
	b, err := json.Marshal(seat.Report{Groups: []seat.GroupReport{{Group: 1, Replica: d.Group(1).At("a").ID, Step: "\x1b[2J", Why: strings.Repeat("y", 100_000)}}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := parseReport(b, "a", d)
	if err != nil || len(r.Groups) != 1 || strings.Contains(r.Groups[0].Step, "\x1b") || len(r.Groups[0].Why) > 10_000 {
		t.Errorf("%.300s, %v", fmt.Sprintf("%+v", r), err)
	}
}

// FuzzPoll: a question is refused, or it is one that a seat asks.
func FuzzPoll(f *testing.F) {
	f.Add([]byte{})
	f.Add(appendPoll(nil, echo{7, 9}, 0, born(f), false))
	f.Add(appendPoll(nil, echo{7, 9}, 0, born(f), true))
	f.Add(appendPoll(nil, echo{7, 9}, 1, born(f), false))
	f.Add(appendPoll(nil, echo{1 << 63, -1}, 255, moving(f, "b"), true))
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := parsePoll(b)
		if err != nil {
			if !errors.Is(err, cluster.ErrMalformed) {
				t.Fatalf("%v", err)
			}
			return
		}
		has := q.m
		if has == nil {
			has = &cluster.Map{Version: q.version, Replication: &cluster.Replication{Lives: []uint64{q.life}}}
		}
		if has.Version != q.version || !bytes.Equal(appendPoll(nil, q.of, q.level, has, q.m != nil), b) {
			t.Fatalf("%x is read as %+v", b, q)
		}
	})
}

// FuzzReport: what a node reports is refused, or it is about replicas that the map has there, and is the same when it is told again.
func FuzzReport(f *testing.F) {
	d := moving(f, "b").Draft()
	f.Add([]byte(`{"map":2,"groups":[{"group":1,"replica":1,"leads":true,"term":3,"config":4,"voters":[1,2,3],"last":9,"match":{"2":8},"step":"promote"},{"group":1,"replica":2}]}`), "a")
	f.Add([]byte(`{"groups":null}`), "d")
	f.Add([]byte(`{"map":18446744073709551615,"groups":[{"group":0,"replica":3,"why":"\u001b"}]}`), "c")
	f.Fuzz(func(t *testing.T, b []byte, node string) {
		r, err := parseReport(b, node, d)
		if err != nil {
			if !errors.Is(err, cluster.ErrMalformed) {
				t.Fatalf("%v", err)
			}
			return
		}
		for _, g := range r.Groups {
			if at := d.Group(g.Group).At(node); at == nil || at.ID != g.Replica {
				t.Fatalf("%s tells of replica %d of group %d", node, g.Replica, g.Group)
			}
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parseReport(again, node, d); len(again) <= maxReport && (err != nil || !sameJSON(got, r)) {
			t.Fatalf("%+v is %+v when it is told again: %v", r, got, err)
		}
	})
}

func sameJSON(a, b any) bool {
	x, err := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err == nil && err2 == nil && bytes.Equal(x, y)
}
