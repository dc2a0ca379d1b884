package client_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A watch of a cluster with replicas goes on over leaders: each put is told once, none is missed, and those of a group come in their order. It can
// be broken off anywhere, and goes on behind the last event by the text of its position.
func TestFleetWatchOverFalls(t *testing.T) {
	onReplicas(t, 2, nil, func(t *testing.T, r *clienttest.Replicas, c *client.Client) {
		r.Page = 3
		at, err := c.Position(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		const puts = 60
		go func() {
			for i := range puts {
				if err := c.Put(t.Context(), fmt.Appendf(nil, "k%d", i), nil); err != nil {
					t.Error(err)
				}
				if i%7 == 6 {
					r.Elect(fmt.Sprintf("k%d", i), r.Nodes[i%3])
				}
				time.Sleep(3 * time.Millisecond)
			}
		}()
		told, last := map[string]bool{}, map[uint32]uint64{}
		for rounds := 0; len(told) < puts; rounds++ {
			n := 0
			watchUntil(t, c, at, func(e client.Event) bool {
				g := r.GroupOf(string(e.Key)).ID
				if e.Op != client.EventPut || told[string(e.Key)] || e.Version <= last[g] || e.Node == "" {
					t.Errorf("%+v; the one before was %d, told before: %v", e, last[g], told[string(e.Key)])
				}
				told[string(e.Key)], last[g] = true, e.Version
				text := e.Position.String()
				if at, err = client.ParsePosition(text); err != nil || strings.Count(text, "@") != 2 || at.String() != text {
					t.Fatalf("%q, %v", text, err)
				}
				n++
				return n == 11 || len(told) == puts
			})
			if rounds > puts {
				t.Fatalf("%d rounds", rounds)
			}
		}
	})
}

// A leader that does not have the events behind a position any more says so; and the watch goes on.
func TestFleetWatchGapAtTheNextLeader(t *testing.T) {
	onReplicas(t, 1, nil, func(t *testing.T, r *clienttest.Replicas, c *client.Client) {
		at, err := c.Position(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		put := func(key string) {
			t.Helper()
			if err := c.Put(t.Context(), []byte(key), nil); err != nil {
				t.Fatal(err)
			}
		}
		put("lost")
		next := r.At("k")[1]
		r.Forget(next)
		r.Elect("k", next)
		time.AfterFunc(time.Second, func() { put("k") })
		var got []string
		watchUntil(t, c, at, func(e client.Event) bool {
			got = append(got, fmt.Sprintf("%v %s at %s", e.Op, e.Key, e.Node))
			return string(e.Key) == "k"
		})
		if want := fmt.Sprintf("[skip  at %s put k at %s]", next.ID, next.ID); fmt.Sprint(got) != want {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

// The replicas that do not lead are told that somebody watches, again and again, so that they keep events.
func TestFleetWatchIsToldToAll(t *testing.T) {
	onReplicas(t, 2, nil, func(t *testing.T, r *clienttest.Replicas, c *client.Client) {
		r.Draw(nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		for _, err := range c.Watch(ctx, nil, client.WatchOptions{}) {
			if !errors.Is(err, client.ErrTimeout) {
				t.Error(err)
			}
		}
		told := map[string]int{}
		for _, x := range r.Copies() {
			if x.Type == wire.TypeWatch && r.LeaderLocked(x.Group) != x.Node {
				told[fmt.Sprint(x.Node, " of ", x.Group)]++
			}
		}
		for who, n := range told {
			if n != 4 { // at the beginning, and every three minutes
				t.Errorf("%s was told %d times", who, n)
			}
		}
		if len(told) != 4 {
			t.Errorf("told were %v", maps.Clone(told))
		}
	})
}

// While nobody leads a group its events wait, and those of the others are told.
func TestFleetWatchWithoutALeader(t *testing.T) {
	onReplicas(t, 2, nil, func(t *testing.T, r *clienttest.Replicas, c *client.Client) {
		at, err := c.Position(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		other := "o0"
		for i := 0; r.GroupOf(other).ID == r.GroupOf("k").ID; i++ {
			other = fmt.Sprint("o", i)
		}
		if err := c.Put(t.Context(), []byte("k"), nil); err != nil {
			t.Fatal(err)
		}
		r.Elect("k", nil)
		go func() {
			time.Sleep(time.Minute)
			if err := c.Put(t.Context(), []byte(other), nil); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
			r.Elect("k", r.Nodes[2])
		}()
		begun, got := time.Now(), ""
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for e, err := range c.Watch(ctx, nil, client.WatchOptions{From: at}) {
			if err != nil {
				t.Fatal(err)
			}
			if got += string(e.Key) + " "; len(got) > 4 {
				break
			}
		}
		if took := time.Since(begun); got != other+" k " || took < 2*time.Minute || took > 2*time.Minute+time.Second {
			t.Errorf("%q after %v", got, took)
		}
	})
}
