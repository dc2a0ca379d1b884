package verbs

import (
	"net/netip"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// Of a host with two NICs in one subnet, a connection leaves by the device that
// was opened.
func TestPickSource(t *testing.T) {
	gid := func(addr, netdev string) ibv.GIDEntry {
		return ibv.GIDEntry{GID: netip.MustParseAddr(addr).As16(), NetDev: netdev, Type: ibv.GIDRoCEv2}
	}
	table := []ibv.GIDEntry{
		gid("fe80::1", "eth3"), gid("10.1.0.7", "eth3"), gid("10.2.0.7", "eth3.2"), gid("2001:db8:3::7", "eth3"),
	}
	nets := func(netdev string) []netip.Prefix {
		switch netdev {
		case "eth3":
			return []netip.Prefix{netip.MustParsePrefix("10.1.0.7/16"), netip.MustParsePrefix("2001:db8:3::7/64")}
		case "eth3.2":
			return []netip.Prefix{netip.MustParsePrefix("10.2.0.7/16")}
		}
		return nil
	}
	for _, c := range []struct{ to, want string }{
		{"10.1.9.9", "10.1.0.7"},              // its subnet
		{"10.2.9.9", "10.2.0.7"},              // the other one
		{"192.0.2.1", "10.1.0.7"},             // behind a router: the first of the family
		{"2001:db8:3::99", "2001:db8:3::7"},   // the other family
		{"2001:db8:ffff::1", "2001:db8:3::7"}, // of it, behind a router
	} {
		if got := pickSource(table, netip.MustParseAddr(c.to), nets); got.String() != c.want {
			t.Errorf("to %s from %s, want %s", c.to, got, c.want)
		}
	}
	if got := pickSource(table[:1], netip.MustParseAddr("10.1.9.9"), nets); got.IsValid() {
		t.Errorf("a link-local address is no source: %s", got)
	}
}

// Depths are powers of two, whatever is asked for and whatever the device has.
func TestDepths(t *testing.T) {
	d := deviceless(Options{})
	d.attr.MaxQPRdAtom, d.attr.MaxQPInitRdAtom = 126, 16
	for _, c := range []struct{ ird, ord, wantIRD, wantORD int }{
		{0, 0, 64, 16}, {12, 12, 8, 8}, {1, 1, 1, 1}, {200, 200, 64, 16}, {16, 3, 16, 2},
	} {
		ird, ord, err := d.depths(rdma.ConnParams{IRD: c.ird, ORD: c.ord}, 0)
		if err != nil || ird != c.wantIRD || ord != c.wantORD {
			t.Errorf("asked for %d and %d: %d and %d, %v; want %d and %d", c.ird, c.ord, ird, ord, err, c.wantIRD, c.wantORD)
		}
	}
	if got := powerOfTwo(0); got != 0 {
		t.Errorf("none is %d", got)
	}
}
