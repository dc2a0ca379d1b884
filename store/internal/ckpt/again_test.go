package ckpt

import (
	"context"
	"fmt"
	"testing"

	"github.com/rdmakv/rdmakv/store/internal/checkpoint"
)

// commitUntold takes what has passed into the base as a round does, and tells nobody: what is
// left when an ingest took effect and the round that made it has failed all the same.
func (r *rig) commitUntold() checkpoint.Place {
	r.t.Helper()
	walk := &values{base: r}
	defer walk.close()
	done, err := checkpoint.Run(context.Background(), checkpoint.Config{
		Log: r.log, Stream: stream, From: r.Place(), Epoch: 1, Facts: r.c.Facts, ReadRate: -1, Values: walk,
		Begin: func(ctx context.Context) (checkpoint.Ingest, error) { return r.Tables(ctx, 0) },
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return done.Place
}

// TestRoundIsMadeAgain: a round has failed whose ingest took effect. The next one begins at the old
// place and takes the same range in again, with what has come since: each key is what it was
// written last, before and behind it, and the base never goes back.
func TestRoundIsMadeAgain(t *testing.T) {
	r := newRig(t, nil)
	check := func(when string) {
		t.Helper()
		for name, want := range r.model {
			got, err := r.read(uint16(name[0]-'0'), name[1:])
			if err != nil || got != want {
				t.Errorf("%s: key %s has version %v, %v; want %v", when, name, got, err, want)
			}
		}
	}
	for i := range 30 {
		r.write(100, write{shard: uint16(i % shards), key: fmt.Sprint(i)})
	}
	for i := range 10 {
		r.write(100, write{shard: uint16(i % shards), key: fmt.Sprint(i), gone: i%2 == 0})
	}
	at := r.commitUntold()
	if r.inBase() != at || r.Place() == at {
		t.Fatalf("the base is at %+v, and the keeper at %+v; want %+v in the base alone", r.inBase(), r.Place(), at)
	}
	check("behind the round that failed")
	for i := range 20 {
		// Deleted keys come back, and others go.
		r.write(100, write{shard: uint16(i % shards), key: fmt.Sprint(i), gone: i%3 == 0})
	}
	check("behind later writes")
	if _, err := r.round(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	check("behind the next round")
	if now := r.inBase(); now.At <= at.At || now != r.Place() {
		t.Errorf("the base is at %+v, was at %+v; the keeper is at %+v", now, at, r.Place())
	}
	for _, sh := range r.shards {
		if n, _ := sh.DirtyCounts(); n != 0 {
			t.Errorf("shard %d: %d writes are dirty still", sh.ID, n)
		}
	}
}
