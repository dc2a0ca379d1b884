package server

import (
	"bytes"
	"sync"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
)

// TestStagedUntilPublished: a large put is ordered and waits for its turn to be
// published when the next one, of the same size, is READ from the client. The store
// still looks at the memory that the first was READ into.
func TestStagedUntilPublished(t *testing.T) {
	srv := startServer(t, nil)
	const size = 300 << 10
	p := dial(t, srv, peerOptions{sink: 2 * size})
	resume, stalled := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(resume) })
	defer release()
	blocker := store.Write{Op: store.Op{Key: []byte("blocker")}, Done: func(*store.Write) { close(stalled); <-resume }}
	if err := srv.main.Store.Submit(&blocker); err != nil {
		t.Fatal(err)
	}
	<-stalled // the publisher stands
	keys, ids := []string{"first", "second"}, []uint64{0, 0}
	for i := range keys {
		value := p.sink()[i*size : (i+1)*size]
		for j := range value {
			value[j] = byte(i + 1)
		}
		ids[i] = p.id()
		p.send(wire.AppendPutLarge(nil, ids[i], wire.PutLarge{
			Key: []byte(keys[i]), ValueLen: size, Checksum: xxh3.Hash(value),
			RKey: p.mr.RKey(), Addr: p.mr.Addr() + (peerReceives+1)*peerSize + uint64(i*size),
		}))
		// It has been READ, then.
		eventually(t, "the put is the store's", func() bool { return srv.main.Store.Stats().Inflight == i+1 })
	}
	release()
	for i, id := range ids {
		h, body, err := p.await(id)
		if err == nil {
			err = wire.ReplyError(h, body)
		}
		if err != nil {
			t.Fatalf("put of %s: %v", keys[i], err)
		}
	}
	for i, key := range keys {
		if got := p.getWhole(key); !bytes.Equal(got, bytes.Repeat([]byte{byte(i + 1)}, size)) {
			t.Errorf("%s has %d bytes that begin with %v, want %d of %d", key, len(got), got[:min(1, len(got))], size, i+1)
		}
	}
	if used, _ := srv.main.Staging.InUse(); used != 0 {
		t.Errorf("%d bytes of staging memory still in use", used)
	}
}
