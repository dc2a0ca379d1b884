package ckpt

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/internal/base"
	groupentry "github.com/rdmakv/rdmakv/store/internal/entry"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/logged"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
)

// Groups beside each other, beside a stream, and without a quorum.

// fillOthers writes about so many bytes, to shards that are no group's.
func (r *rig) fillOthers(bytes int) {
	for n := 0; n < bytes; n += 64 << 10 {
		var frame []write
		for i := range 16 {
			frame = append(frame, write{shard: uint16(1 + i%2), key: fmt.Sprint("fill-", i)})
		}
		r.write(4<<10, frame...)
	}
}

// replace appends entry index again in a newer term, as a follower does whose tail another leader has replaced.
func (g *team) replace(index uint64, data []byte) {
	body := make([]byte, consensus.BodySize(consensus.Write, len(data)))
	consensus.PutBody(body, consensus.Write, data)
	if _, err := g.r.log.Append(log.Record{Kind: log.Entry, Stream: g.Stream(), Index: index, Term: 2, Body: body}); err != nil {
		g.r.t.Fatal(err)
	}
}

// TestHoldBehindReplacedEntry: readers hold the log, whatever has become of an entry that was never committed.
func TestHoldBehindReplacedEntry(t *testing.T) {
	r := newRig(t, nil)
	g := r.team(1, 0, 1)
	g.write("x") // entry 3, never committed
	r.fillOthers(3 * segment)
	if err := r.Last(t.Context()); err != nil { // the place is behind it; the group holds the log from entry 3 on
		t.Fatal(err)
	}
	at, err := r.log.EntryAt(g.Stream(), 3)
	if err != nil || at >= r.Place().Frame || at.Segment() >= r.Place().Frame.Segment() {
		t.Fatal("premise", at, r.Place(), err)
	}
	// Another leader's entry takes its place; the group's replica is a follower now.
	g.entries = g.entries[:2]
	e := &flight.Effect{Effect: base.Effect{Shard: 0, Key: []byte("y"), Value: []byte("of y")}, Hash: layout.HashKey(9, []byte("y"))}
	f := &flight.Flight{Shard: 0, Effects: []*flight.Effect{e}}
	f.NumberInGroup(1)
	g.replace(3, groupentry.AppendWrites(nil, 2, 1, 2, []*flight.Flight{f}))
	g.entries = append(g.entries, []*flight.Flight{f})
	g.publish(1) // a write of the shard is newer than the base
	// Anything that pokes the retirer: another reader that is done.
	if release, err := r.Hold(); err == nil {
		release()
	}
	waitFor(t, "that the segment of the entry that was replaced is freed", func() bool {
		release, err := r.Hold()
		if err != nil {
			t.Fatalf("a write of shard 0 is newer than the base, the log is open, and Hold: %v", err)
		}
		release()
		_, err = r.log.ReadAt(at)
		return err != nil
	})
}

// TestUncommittedEntryIsNoReason: an entry that is not committed is no reason for rounds, which can do nothing about it.
func TestUncommittedEntryIsNoReason(t *testing.T) {
	for _, with := range []bool{false, true} {
		r := newRig(t, func(c *Config) { c.Every = time.Hour })
		g := r.team(1, 0, 1)
		if with {
			g.write("x") // entry 3, of a group without a quorum
		}
		r.fillOthers(bound / 2)
		if err := r.Last(t.Context()); err != nil {
			t.Fatal(err)
		}
		due := 0
		for range 20 {
			r.write(10, write{shard: 1, key: "a"})
			if d, _ := r.look(); d {
				due++
				if _, err := r.round(t.Context(), true); err != nil {
					t.Fatal(err)
				}
			}
		}
		if due > 1 {
			t.Errorf("uncommitted entry %v: %d rounds for 20 frames of some bytes each, with Every of an hour", with, due)
		}
	}
}

// pieces writes pieces of a value whose write never comes, as a put does that is cut off by the stop.
func (r *rig) pieces(bytes int) {
	const most = 100 << 10
	e := &flight.Effect{Effect: base.Effect{Shard: 1, Key: []byte("large"), Value: make([]byte, bytes)}, Hash: layout.HashKey(9, []byte("large"))}
	fl := &flight.Flight{Shard: 1, Effects: []*flight.Effect{e}}
	r.next = fl.Number(r.next)
	for i := range logged.Pieces(fl, most) {
		f := r.log.Begin()
		b, err := f.Add(&log.Record{Kind: log.Write, Stream: stream}, logged.PieceSize(fl, i, most))
		if err != nil {
			r.t.Fatal(err)
		}
		logged.PutPiece(b, fl, i, most)
		if err := errors.Join(f.Seal(), f.Write(), f.Turn()); err != nil {
			r.t.Fatal(err)
		}
		f.Pass()
	}
}

// TestLastBesidePieces: pieces without their write keep no group out, and Last ends.
func TestLastBesidePieces(t *testing.T) {
	r := newRig(t, nil)
	g := r.team(1, 0, 1)
	if err := r.Last(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.pieces(leastRange + 1<<20)
	g.write("x")
	g.publish(1)
	done := make(chan error, 1)
	go func() { done <- r.Last(t.Context()) }()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
		if g.find("x") != "base" {
			t.Error("x is in", g.find("x"))
		}
	case <-time.After(10 * time.Second):
		t.Errorf("Last has not returned within 10 s; the group is at %v of %d", r.groupList()[0].state.Applied, g.published.Load())
	}
}

// TestStreamLeavesRoomForGroups: a stream that would fill each range keeps no group out.
func TestStreamLeavesRoomForGroups(t *testing.T) {
	r := newRig(t, nil)
	g := r.team(1, 0, 1)
	if err := r.Last(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.write("x")
	g.publish(1)
	n := 0
	push := func(bytes int) {
		for ; bytes > 0; bytes -= 64 << 10 {
			var frame []write
			for range 16 {
				n++
				frame = append(frame, write{shard: 1, key: fmt.Sprint("k", n)})
			}
			r.write(4<<10, frame...)
		}
	}
	push(leastRange + 1<<20)
	if _, err := r.round(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if got := g.find("x"); got != "base" {
		t.Errorf("after a round x, which was published before it, is in the %s", got)
	}
}
