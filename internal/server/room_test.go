package server

import (
	"bytes"
	"errors"
	"testing"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/store/layout"
)

// TestLargePutOfACache: a cache READs a large value to the place of its item. It counts as staging
// memory meanwhile and never again; what changes under way is refused and leaves nothing
// behind; and regions have no right but to be READ.
func TestLargePutOfACache(t *testing.T) {
	card := newCard("card", iwarp.Options{})
	srv := startServer(t, func(c *Config) {
		c.Mode, c.Fabric = store.Cache, card
		c.MemoryLimit, c.RegionSize, c.IndexRegionSize = 64<<20, 8<<20, 2<<20
	})
	p := dial(t, srv, peerOptions{})
	value := p.sink()[:400_001]
	rng := byte(1)
	change := func() {
		for i := range value {
			rng = rng*5 + 7
			value[i] = rng
		}
		value[0]++
	}
	live := func() uint64 {
		st, err := srv.Stats()
		if err != nil {
			t.Fatal(err)
		}
		return st.Store.ItemLive
	}
	quiet := func(what string) {
		t.Helper()
		if used, waiting := srv.main.Staging.InUse(); used != 0 || waiting != 0 {
			t.Errorf("%s: %d bytes of staging memory in use, %d wait", what, used, waiting)
		}
		for access, n := range card.registered() {
			if access&rdma.AccessRemoteRead != 0 && access != rdma.AccessRemoteRead {
				t.Errorf("%s: %d regions are registered with %v", what, n, access)
			}
		}
	}
	var want []byte
	for range 3 {
		change()
		if err := p.putLarge([]byte("k"), len(value), checksum(value)); err != nil {
			t.Fatal(err)
		}
		quiet("a put")
		want = append(want[:0], value...) // what is READ goes to the same memory
		if got := p.getWhole("k"); !bytes.Equal(got, want) {
			t.Fatal("another value came back")
		}
	}
	if placed := layout.MayPlace; placed != (srv.main.Staging.Kept() == 0) {
		t.Errorf("placed %v, staging memory kept: %d", placed, srv.main.Staging.Kept())
	}
	before := live()
	for range 5 {
		change()
		err := p.putLarge([]byte("k"), len(value), checksum(want)) // of what it was
		if err == nil || errors.Is(err, wire.StatusOverloaded.Err()) {
			t.Fatalf("a value that is not the one announced: %v", err)
		}
		quiet("a refused put")
	}
	if got := p.getWhole("k"); !bytes.Equal(got, want) {
		t.Error("a refused put shows")
	}
	if after := live(); after != before {
		t.Errorf("%d bytes of items, %d before", after, before)
	}
}
