package server

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/secret"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/verbs"
	"github.com/rdmakv/rdmakv/store/layout"
)

// These tests attack spaces with what an attacker would have: a tenant's own
// secret, an unaltered connection, and the true rkeys and addresses of others.

// A spaceRig is a node with two tenants and its own space, on one fabric.
type spaceRig struct {
	srv     *Server
	options peerOptions // of every peer
}

// spaceNames are the tenants, "" for the main secret.
var spaceNames = []string{"", "anna", "bert"}

func secretOf(tenant string) []byte { return []byte("the secret of tenant " + tenant) }

func newSpaceRig(t testing.TB, o peerOptions, listen string) *spaceRig {
	r := &spaceRig{options: o}
	r.srv = startServer(t, func(c *Config) {
		if o.fabric != nil {
			c.Fabric, c.MemoryKind, c.Listen = o.fabric, o.kind, listen
		}
		c.Secret, c.MemoryLimit, c.RegionSize, c.IndexRegionSize = secretOf(""), 64<<20, 4<<20, 2<<20
		c.Idle = 10 * time.Minute // looking through whole regions takes long under the race detector
		for _, name := range spaceNames[1:] {
			c.Tenants = append(c.Tenants, Tenant{Name: name, Secret: secret.New(secretOf(name)), Space: "own"})
		}
	})
	return r
}

// try connects as a tenant.
func (r *spaceRig) try(t testing.TB, tenant string, change func(*peerOptions)) (*peer, error) {
	t.Helper()
	o := r.options
	o.tenant, o.secret = tenant, secretOf(tenant)
	if change != nil {
		change(&o)
	}
	return tryDial(t, r.srv, o)
}

func (r *spaceRig) dial(t testing.TB, tenant string) *peer {
	t.Helper()
	p, err := r.try(t, tenant, nil)
	if err != nil {
		t.Fatalf("tenant %q: %v", tenant, err)
	}
	return p
}

// whole READs a region in pieces and returns it.
func (p *peer) whole(reg wire.Region) ([]byte, error) {
	p.t.Helper()
	var all []byte
	for off := uint64(0); off < reg.Length; {
		n := min(peerSink, reg.Length-off)
		b, err := p.read(reg.Addr+off, reg.RKey, int(n))
		if err != nil {
			return nil, err
		}
		all = append(all, b...)
		off += n
	}
	return all, nil
}

// alter is an RDMA WRITE or an atomic of 8 bytes.
func (p *peer) alter(addr uint64, rkey uint32, op rdma.Opcode) error {
	p.t.Helper()
	p.qp.PostSend([]rdma.SendWR{{
		ID: 2, Op: op, Flags: rdma.SendSignaled, CompareAdd: 1, Swap: 1,
		SGL:    []rdma.SGE{{MR: p.mr, Off: (peerReceives + 1) * peerSize, Len: 8}},
		Remote: rdma.RemoteAddr{Addr: addr, RKey: rkey},
	}})
	return p.outcome()
}

// outcome is how the work request with ID 2 ended; nil where the fabric says
// that of a WRITE before its peer has looked at it, and the connection lives.
func (p *peer) outcome() error {
	p.t.Helper()
	var got *rdma.WC
	p.poll(func() bool {
		for i, wc := range p.reads {
			if wc.ID == 2 {
				got = &wc
				p.reads = append(p.reads[:i], p.reads[i+1:]...)
				return true
			}
		}
		return false
	})
	if got == nil {
		return p.qp.Err()
	}
	if got.Status != rdma.StatusSuccess {
		return got.Status.Err()
	}
	return p.ping()
}

// TestSpaceAccess on iwarp.
func TestSpaceAccess(t *testing.T) { testSpaceAccess(t, newSpaceRig(t, peerOptions{}, "")) }

// TestLabSpaceAccess is the same on a device of the kernel's, which compares the
// protection domains itself.
func TestLabSpaceAccess(t *testing.T) {
	if os.Getenv("RDMAKV_LAB") == "" {
		t.Skip("needs an RDMA device: make lab")
	}
	fabric, addr := labFabric(t)
	testSpaceAccess(t, newSpaceRig(t, peerOptions{fabric: fabric, kind: mem.Mmap, receives: 16}, addr))
}

// labFabric is verbs, and an address of its first device.
func labFabric(t testing.TB) (rdma.Fabric, string) {
	t.Helper()
	fabric := verbs.New(verbs.Options{})
	routes, err := fabric.Local(context.Background(), ":0")
	if err != nil {
		t.Fatal(err)
	}
	host, _, err := net.SplitHostPort(routes[0].Addr)
	if err != nil {
		t.Fatal(err)
	}
	return fabric, net.JoinHostPort(host, "0")
}

func testSpaceAccess(t *testing.T, r *spaceRig) {
	whole := t // peers that outlive a part of the test
	peers := make(map[string]*peer)
	tables := make(map[string][]wire.Region)
	value := func(name string) string { return "the value of " + name + " " + strings.Repeat("x", 64) }
	for _, name := range spaceNames {
		p := r.dial(t, name)
		// A fill that is under way may read the put in the log, and leave a copy of it in memory that it gives back.
		eventually(t, "the fill of the space", r.srv.spaces.of(name).Filled)
		if err := p.put("key", value(name)); err != nil {
			t.Fatal(err)
		}
		peers[name] = p
	}
	for _, name := range spaceNames {
		_, tables[name] = peers[name].regions()
		if len(tables[name]) < 2 {
			t.Fatalf("tenant %q has %d regions", name, len(tables[name]))
		}
	}
	wellOff := func(t *testing.T) { // nobody has suffered
		t.Helper()
		for _, name := range spaceNames {
			if got, err := peers[name].get("key", 4096); err != nil || string(got.Value) != value(name) {
				t.Fatalf("tenant %q: %q, %v", name, got.Value, err)
			}
			if _, err := peers[name].read(tables[name][0].Addr, tables[name][0].RKey, 64); err != nil {
				t.Fatalf("tenant %q READs no more: %v", name, err)
			}
		}
	}
	t.Run("each reads its own", func(t *testing.T) {
		seen := make(map[uint64]string)
		for _, name := range spaceNames {
			if other, twice := seen[peers[name].wel.Incarnation]; twice {
				t.Errorf("%q and %q have one incarnation", name, other)
			}
			seen[peers[name].wel.Incarnation] = name
			head, err := peers[name].read(tables[name][0].Addr, tables[name][0].RKey, layout.PageSize)
			if err != nil {
				t.Fatal(err)
			}
			if h, err := layout.ParseRegionHeader(head); err != nil || h.Incarnation != peers[name].wel.Incarnation {
				t.Errorf("%q: header %+v, %v", name, h, err)
			}
			found := 0
			for _, reg := range tables[name] {
				all, err := peers[name].whole(reg)
				if err != nil {
					t.Fatal(err)
				}
				for _, other := range spaceNames {
					if n := bytes.Count(all, []byte(value(other))); other == name {
						found += n
					} else if n > 0 {
						t.Errorf("%q READs what %q has written", name, other)
					}
				}
			}
			if found != 1 {
				t.Errorf("%q finds its value %d times", name, found)
			}
		}
		wellOff(t)
	})
	t.Run("another's true rkey", func(t *testing.T) {
		for _, thief := range spaceNames {
			for _, victim := range spaceNames {
				if thief == victim {
					continue
				}
				for _, reg := range tables[victim] {
					p := r.dial(t, thief)
					if b, err := p.read(reg.Addr, reg.RKey, 64); !errors.Is(err, rdma.ErrAccess) {
						t.Fatalf("%q READs region %d of %q: %x, %v", thief, reg.ID, victim, b, err)
					}
					p.dead()
					p.close()
				}
			}
		}
		wellOff(t)
	})
	t.Run("before Hello", func(t *testing.T) {
		for _, name := range spaceNames {
			p, err := r.try(t, name, func(o *peerOptions) { o.noHello = true })
			if err != nil {
				t.Fatal(err)
			}
			if b, err := p.read(tables[name][0].Addr, tables[name][0].RKey, 64); err == nil {
				t.Fatalf("%q READs before Hello: %x", name, b)
			}
			p.dead()
			p.close()
		}
		wellOff(t)
	})
	t.Run("brute force", func(t *testing.T) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		for range 24 { // each costs the guesser its connection
			p := r.dial(t, "anna")
			reg := tables["bert"][0]
			guess := reg.RKey ^ uint32(1+rng.IntN(1<<12))
			if b, err := p.read(reg.Addr, guess, 64); err == nil && !own(tables["anna"], guess) {
				t.Fatalf("rkey %#x opened something: %x", guess, b)
			}
			if !own(tables["anna"], guess) {
				p.dead()
			}
			p.close()
		}
		wellOff(t)
	})
	t.Run("writes", func(t *testing.T) {
		ops := []rdma.Opcode{rdma.OpRDMAWrite}
		if peers["anna"].dev.Attr().Caps.Has(rdma.CapAtomics) {
			ops = append(ops, rdma.OpAtomicFetchAdd, rdma.OpAtomicCmpSwap)
		}
		for _, op := range ops {
			for _, table := range [][]wire.Region{tables["anna"], tables["bert"]} {
				p := r.dial(t, "anna")
				if err := p.alter(table[0].Addr+8, table[0].RKey, op); err == nil {
					t.Fatalf("%v into a slab was let through", op)
				}
				p.dead()
				p.close()
			}
		}
		wellOff(t)
	})
	t.Run("revoked", func(t *testing.T) {
		p := r.dial(t, "bert")
		if _, err := r.srv.Revoke("bert"); err != nil {
			t.Fatal(err)
		}
		for _, p := range []*peer{p, peers["bert"]} {
			if b, err := p.read(tables["bert"][0].Addr, tables["bert"][0].RKey, 64); err == nil {
				t.Errorf("READs after revoke: %x", b)
			}
			p.dead()
		}
		if _, err := r.try(t, "bert", nil); err == nil {
			t.Error("a revoked tenant comes in")
		}
		p = r.dial(t, "anna")
		if b, err := p.read(tables["bert"][0].Addr, tables["bert"][0].RKey, 64); !errors.Is(err, rdma.ErrAccess) {
			t.Errorf("another READs the space of a revoked tenant: %x, %v", b, err)
		}
		if _, err := r.srv.Allow("bert"); err != nil {
			t.Fatal(err)
		}
		peers["bert"] = r.dial(whole, "bert")
		wellOff(t)
	})
	t.Run("removed", func(t *testing.T) {
		anna := Tenant{Name: "anna", Secret: secret.New(secretOf("anna")), Space: "own"}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := r.srv.SetTenants(ctx, []Tenant{anna}); err != nil {
			t.Fatal(err)
		}
		peers["bert"].dead()
		for _, name := range []string{"", "anna"} {
			p := r.dial(t, name)
			if b, err := p.read(tables["bert"][0].Addr, tables["bert"][0].RKey, 64); !errors.Is(err, rdma.ErrAccess) {
				t.Errorf("%q READs a space that is gone: %x, %v", name, b, err)
			}
		}
		bert := Tenant{Name: "bert", Secret: secret.New(secretOf("bert")), Space: "own"}
		if err := r.srv.SetTenants(ctx, []Tenant{anna, bert}); err != nil {
			t.Fatal(err)
		}
		peers["bert"] = r.dial(whole, "bert")
		_, tables["bert"] = peers["bert"].regions()
		wellOff(t)
	})
}

// own says whether a key is among those of a table.
func own(table []wire.Region, rkey uint32) bool {
	for _, reg := range table {
		if reg.RKey == rkey {
			return true
		}
	}
	return false
}
