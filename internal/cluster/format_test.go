package cluster

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// The byte formats as golden dumps: what nodes of different builds say to each
// other, and what lies on their disks. A change of these files is a change of
// a format, and needs a new format number. Rewrite them with
//
//	go test ./internal/cluster -run TestFormat -args -rewrite
func TestFormat(t *testing.T) {
	datadriven.RunTest(t, "testdata/format", func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "encode":
			b := samples()[d.CmdArgs[0].Key]
			if b == nil {
				t.Fatalf("%s: no such sample", d.Pos)
			}
			return fmt.Sprintf("%d bytes\n%s", len(b), hex.Dump(b))
		case "propose":
			return proposeCase(t, d)
		case "digest":
			m, table := sampleMap(), sampleTable()
			return fmt.Sprintf("map %016x\ntable %016x\n", m.Digest(), table.Digest())
		case "name":
			var out strings.Builder
			for _, s := range strings.Split(d.Input, "\n") {
				fmt.Fprintf(&out, "%q %v\n", s, CheckNodeID(s) == nil && CheckName(s) == nil)
			}
			return out.String()
		}
		t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
		return ""
	})
}

func proposeCase(t *testing.T, d *datadriven.TestData) string {
	var shards int
	d.ScanArgs(t, "shards", &shards)
	var nodes []MapNode
	for _, a := range d.CmdArgs {
		if a.Key == "nodes" {
			for _, v := range a.Vals {
				n := MapNode{ID: v}
				if id, weight, ok := strings.Cut(v, "*"); ok {
					n.ID = id
					if _, err := fmt.Sscan(weight, &n.Weight); err != nil {
						t.Fatal(err)
					}
				}
				nodes = append(nodes, n)
			}
		}
	}
	m, err := Propose(sampleID, "demo", shards, nodes)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	var out strings.Builder
	for _, n := range m.Nodes {
		fmt.Fprintf(&out, "%s weight %d: %d shards %v\n", n.ID, n.Weight, len(m.Shards(n.ID)), m.Shards(n.ID))
	}
	return out.String()
}

var sampleID = [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

func sampleMember() Member {
	return Member{
		ID: "node-a", Role: RoleServer, Incarnation: 0x1122334455667788, Gossip: "10.0.0.1:7946",
		Endpoints: []Endpoint{
			{"verbs", "10.0.0.1:7400"}, {"iwarp", "[fd00::1]:7400"}, {"shm", "/run/rdmakv.sock"},
		},
		TableVersion: 7, TableDigest: 0xdeadbeef, Regions: 3, MapVersion: 1, MapDigest: 0xfeed,
		State: Alive, Since: time.UnixMilli(1_790_000_000_123).UTC(),
	}
}

func sampleView() *View {
	b := Member{ID: "node-b", Role: RoleServer, Incarnation: 9, State: Dead}
	return &View{Version: 42, Cluster: "demo", Self: "node-a", Members: []Member{sampleMember(), b}}
}

func sampleTable() *Table {
	return &Table{
		Node: "node-a", Incarnation: 0x1122334455667788, Version: 7, Devices: []string{"verbs/rxe0", "iwarp"},
		Regions: []Region{
			{ID: 0, Kind: 1, State: Serving, Base: 0, Length: 1 << 20, Keys: []RemoteKey{{0, 0xaabb, 0x7f0000000000}, {1, 0xccdd, 0x1000}}},
			{ID: 1, Kind: 2, State: Retired, Base: 1 << 20, Length: 4 << 20, Keys: []RemoteKey{{1, 0xeeff, 0x2000}}},
			{ID: 9, Kind: 2, State: Serving, Base: 5 << 20, Length: 4 << 20},
		},
	}
}

func sampleMap() *Map {
	m, err := Propose(sampleID, "demo", 8, []MapNode{{ID: "node-a"}, {ID: "node-b"}, {ID: "node-c", Weight: 2}})
	if err != nil {
		panic(err)
	}
	return m
}

// sampleRecovered is a map in which group 2 has become group 5, of a meta group that was made anew.
func sampleRecovered() *Map {
	m := sampleLive()
	d := m.Draft()
	d.Recover(2, d.Group(2).Replicas[0].Node, 2)
	next, err := d.Map(m)
	if err != nil {
		panic(err)
	}
	next.Version, next.Replication.Lives = 1<<32, []uint64{0x0123456789abcdef}
	return next
}

// samples has one encoding of each kind.
func samples() map[string][]byte {
	m := sampleMember()
	meta, err := AppendMeta(nil, &m)
	if err != nil {
		panic(err)
	}
	return map[string][]byte{
		"meta":       meta,
		"view":       AppendView(nil, sampleView()),
		"empty-view": AppendView(nil, &View{}),
		"table":      AppendTable(nil, sampleTable()),
		"map":        AppendMap(nil, sampleMap()),
		"replicas":   AppendMap(nil, fixed(sampleReplicas())),
		"live":       AppendMap(nil, sampleLive()),
		"recovered":  AppendMap(nil, sampleRecovered()),
		"spaces":     AppendMap(nil, sampleSpaces()),
	}
}

// reencode parses bytes of a kind and encodes what came out.
func reencode(kind string, b []byte) ([]byte, error) {
	switch kind {
	case "meta":
		m, err := ParseMeta(b)
		if err != nil {
			return nil, err
		}
		return AppendMeta(nil, &m)
	case "view", "empty-view":
		v, err := ParseView(b)
		if err != nil {
			return nil, err
		}
		return AppendView(nil, v), nil
	case "table":
		v, err := ParseTable(b)
		if err != nil {
			return nil, err
		}
		return AppendTable(nil, v), nil
	case "map", "replicas", "live", "recovered", "spaces":
		v, err := ParseMap(b)
		if err != nil {
			return nil, err
		}
		return AppendMap(nil, v), nil
	}
	panic(kind)
}

// Every encoding comes back as it was, and not one of its prefixes, nor with a
// byte more, nor with any reserved or counting byte raised beyond what is
// there, is taken for something else without being equal to its own encoding.
func TestParsersAreExact(t *testing.T) {
	for kind, b := range samples() {
		if again, err := reencode(kind, b); err != nil || !bytes.Equal(again, b) {
			t.Errorf("%s: %v\n%x\n%x", kind, err, b, again)
		}
		for n := range b {
			if _, err := reencode(kind, b[:n:n]); err == nil {
				t.Errorf("%s: its first %d of %d bytes parse", kind, n, len(b))
			}
		}
		if _, err := reencode(kind, append(bytes.Clone(b), 0)); err == nil {
			t.Errorf("%s: a byte too many parses", kind)
		}
		for i := range b {
			for _, x := range []byte{1, 0x80, 0xff} {
				other := bytes.Clone(b)
				other[i] ^= x
				if again, err := reencode(kind, other); err == nil && !bytes.Equal(again, other) {
					t.Errorf("%s: not canonical with byte %d changed:\n%x\n%x", kind, i, other, again)
				}
			}
		}
	}
}
