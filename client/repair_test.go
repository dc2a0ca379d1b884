//go:build !race

package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// A seeingFabric is iwarp that remembers what memory was registered on it. (To
// change that beside the server is a race, of course; not for the detector.)
type seeingFabric struct {
	rdma.Fabric
	mu   sync.Mutex
	mems [][]byte
}

func (f *seeingFabric) Open(ctx context.Context, name string) (rdma.Device, error) {
	d, err := f.Fabric.Open(ctx, name)
	return seeingDevice{d, f}, err
}

type seeingDevice struct {
	rdma.Device
	f *seeingFabric
}

func (d seeingDevice) AllocPD() (rdma.PD, error) {
	pd, err := d.Device.AllocPD()
	return seeingPD{pd, d.f}, err
}

type seeingPD struct {
	rdma.PD
	f *seeingFabric
}

func (p seeingPD) RegMR(buf []byte, access rdma.Access) (rdma.MR, error) {
	p.f.mu.Lock()
	p.f.mems = append(p.f.mems, buf)
	p.f.mu.Unlock()
	return p.PD.RegMR(buf, access)
}

// flipAll changes a bit in every copy of what, in memory that clients READ or
// not, and returns how many there were.
func (f *seeingFabric) flipAll(what []byte) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, mem := range f.mems {
		for at := 0; ; at++ {
			i := bytes.Index(mem[at:], what)
			if i < 0 {
				break
			}
			at += i
			mem[at+len(what)/2] ^= 1
			n++
		}
	}
	return n
}

// Bits flip in the server's memory: no get returns what is there, the server
// learns of it and repairs, and gets are one-sided again. For a small value and
// for one that is READ in chunks.
func TestDamageIsRepaired(t *testing.T) {
	f := &seeingFabric{Fabric: iwarp.New(iwarp.Options{})}
	n := node.Soft(t, func(cfg *server.Config) { cfg.Fabric = f })
	c := dialNode(n, nil)
	for i, size := range []int{1000, 300_000} {
		key, value := fmt.Appendf(nil, "key %d", i), make([]byte, size)
		for j := range value {
			value[j] = byte(i + j*j>>3 + j>>9)
		}
		mark := value[size/2 : size/2+64]
		get := func() {
			t.Helper()
			if got, err := c.Get(t.Context(), key); err != nil || !bytes.Equal(got, value) {
				t.Fatalf("%d of %d bytes, %v", len(got), size, err)
			}
		}
		if err := c.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
		get()
		if f.flipAll(mark) == 0 {
			t.Fatal("the value is not in registered memory")
		}
		get()
		clienttest.Eventually(t, "the item is repaired, and gets are one-sided", func() bool {
			before := c.Counters()
			get()
			after := c.Counters()
			return after.OneSidedHits > before.OneSidedHits && after.SendGets == before.SendGets
		})
	}
	stats, err := admin.Of(c).Stats(t.Context())
	if err != nil || !json.Valid(stats.Server) {
		t.Fatal(err)
	}
	t.Logf("%d damages told", c.Counters().Damaged)
	settled(t, c)
}
