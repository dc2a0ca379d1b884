package server

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/secret"
	"github.com/rdmakv/rdmakv/internal/wire"
)

func tenantOf(name string) Tenant {
	return Tenant{Name: name, Secret: secret.New(secretOf(name)), Space: "own"}
}

// asTenant connects to a node as one of its tenants.
func asTenant(t testing.TB, srv *Server, name string) *peer {
	t.Helper()
	return dial(t, srv, peerOptions{tenant: name, secret: secretOf(name)})
}

// TestSpacesObeyTheMap: whose shard a key is, is the same in every space of a
// node, in those that were opened after the map was made, too; and no rkey of a
// space is gossiped.
func TestSpacesObeyTheMap(t *testing.T) {
	var nodes []*Server
	var seeds []string
	for _, id := range []string{"a", "b"} {
		srv := startServer(t, func(c *Config) {
			clusterOf(id, seeds...)(c)
			c.Secret, c.Tenants = nil, nil
			c.Spaces = []SpaceConfig{{Name: "spare"}}
		})
		seeds = append(seeds, srv.GossipAddr())
		nodes = append(nodes, srv)
	}
	for _, srv := range nodes {
		for shard := range uint16(4) {
			if withheld, err := srv.spaces.of("spare").Store.Withheld(shard); err != nil || !withheld {
				t.Errorf("without a map misses of shard %d may be believed in a space: %v", shard, err)
			}
		}
	}
	m := birth(t, nodes...)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, srv := range nodes { // the main login goes: with tenants everybody is one
		if err := srv.SetTenants(ctx, []Tenant{tenantOf("anna"), {Name: "bert", Secret: secret.New(secretOf("bert")), Space: "spare"}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, srv := range nodes {
		self := srv.cfg.Cluster.NodeID
		for _, name := range []string{"anna", "bert"} {
			p := asTenant(t, srv, name)
			for i := range 16 {
				key := fmt.Sprint("key ", i)
				want := wire.StatusOK
				if m.OwnerOf(cluster.ShardOf([]byte(key), 4)) != self {
					want = wire.StatusMoved
				}
				if err := p.put(key, "value"); wire.StatusOf(err) != want {
					t.Errorf("%s at node %s: put of %q: %v, want %v", name, self, key, err, want)
				}
			}
			sp := srv.spaces.of(map[string]string{"anna": "anna", "bert": "spare"}[name])
			for shard := range uint16(4) {
				mine := m.OwnerOf(shard) == self
				eventually(t, "the space of "+name+" knows its shards", func() bool {
					withheld, err := sp.Store.Withheld(shard)
					return err == nil && withheld != mine
				})
			}
			if _, err := p.change(wire.MapPrepare, m); wire.StatusOf(err) != wire.StatusDenied {
				t.Errorf("a tenant changes the map: %v", err)
			}
			_, regions := p.regions()
			table := srv.member.Members().Table(self)
			if table == nil || len(regions) == 0 {
				t.Fatalf("no table of %s, or no regions of %s", self, name)
			}
			for _, reg := range regions {
				for _, told := range table.Regions {
					for _, key := range told.Keys {
						if key.RKey == reg.RKey {
							t.Errorf("rkey %#x of the space of %s is gossiped", reg.RKey, name)
						}
					}
				}
			}
		}
	}
}

// TestSpaceNotEmpty: a node whose space holds keys takes no part in the birth of
// a map, though its own store is empty.
func TestSpaceNotEmpty(t *testing.T) {
	fs := vfs.NewMem()
	spaces := []SpaceConfig{{Name: "anna"}}
	alone := startServer(t, func(c *Config) { c.FS, c.Spaces = fs, spaces })
	put(t, alone.spaces.of("anna").Store, "key", "value")
	if err := alone.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	srv := startServer(t, func(c *Config) { clusterOf("a")(c); c.FS, c.Spaces = fs, spaces })
	got, err := dial(t, srv, peerOptions{}).change(wire.MapPrepare, mapFor(t, "a"))
	if err != nil || got.State != wire.MapNone || !strings.Contains(string(got.Text), "holds keys") {
		t.Errorf("%+v %q, %v", got, got.Text, err)
	}
}
