package verbs

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
	for _, c := range []struct{ to, routed, want string }{
		{"10.1.9.9", "10.9.0.1", "10.1.0.7"},                   // its subnet, wherever the kernel's route leads
		{"10.2.9.9", "10.9.0.1", "10.2.0.7"},                   // the other one
		{"192.0.2.1", "10.2.0.7", "10.2.0.7"},                  // behind a router: as the kernel's route leaves
		{"192.0.2.1", "10.9.0.1", ""},                          // the route leads through another device
		{"192.0.2.1", "", ""},                                  // there is none
		{"2001:db8:3::99", "", "2001:db8:3::7"},                // the other family
		{"2001:db8:ffff::1", "2001:db8:3::7", "2001:db8:3::7"}, // of it, behind a router
		{"2001:db8:ffff::1", "fd00::7", ""},                    // by an address that is no GID
	} {
		want, routed := netip.Addr{}, netip.Addr{}
		if c.want != "" {
			want = netip.MustParseAddr(c.want)
		}
		if c.routed != "" {
			routed = netip.MustParseAddr(c.routed)
		}
		if got := pickSource(table, netip.MustParseAddr(c.to), nets, func() netip.Addr { return routed }); got != want {
			t.Errorf("to %s, which the kernel reaches from %q: from %s, want %q", c.to, c.routed, got, c.want)
		}
	}
	never := func() netip.Addr { t.Error("asked for the route though nothing can be chosen"); return netip.Addr{} }
	if got := pickSource(table[:1], netip.MustParseAddr("10.1.9.9"), nets, never); got.IsValid() {
		t.Errorf("a link-local address is no source: %s", got)
	}
}

// Whatever the bound attempt meets, silence above all, the other one begins, with
// half of the time at least.
func TestBoundThenAny(t *testing.T) {
	from := netip.MustParseAddr("10.1.0.7")
	errBound, errAny := errors.New("nobody answers"), errors.New("no route")
	conn := new(cmConn)
	for _, c := range []struct {
		name  string
		from  netip.Addr
		bound error // nil: silence, until the context ends
		any   error
		begun time.Duration // when the attempt from any address begins
		says  []string
	}{
		{"silence", from, nil, nil, 1500 * time.Millisecond, nil},
		{"refused", from, errBound, nil, 0, nil},
		{"no address", netip.Addr{}, nil, nil, 0, nil},
		{"both fail", from, errBound, errAny, 0, []string{"no route", "from 10.1.0.7: nobody answers"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				start, tries := time.Now(), 0
				got, err := boundThenAny(ctx, c.from, func(ctx context.Context, at netip.AddrPort) (*cmConn, error) {
					tries++
					if at.IsValid() {
						if at.Addr() != from || tries != 1 {
							t.Errorf("attempt %d is from %v", tries, at)
						}
						if c.bound == nil {
							<-ctx.Done()
							return nil, ctx.Err()
						}
						return nil, c.bound
					}
					if since := time.Since(start); since != c.begun {
						t.Errorf("the other attempt began after %v, want %v", since, c.begun)
					}
					if ctx.Err() != nil {
						t.Error("the other attempt has no time left")
					}
					if c.any != nil {
						return nil, c.any
					}
					return conn, nil
				})
				if !errors.Is(err, c.any) || c.any == nil && got != conn {
					t.Errorf("got %v, %v", got, err)
				}
				for _, text := range c.says {
					if !strings.Contains(err.Error(), text) {
						t.Errorf("%q does not say %q", err, text)
					}
				}
			})
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	tries := 0
	_, err := boundThenAny(ctx, from, func(ctx context.Context, _ netip.AddrPort) (*cmConn, error) {
		tries++
		cancel()
		return nil, ctx.Err()
	})
	if tries != 1 || !errors.Is(err, context.Canceled) {
		t.Errorf("after the caller gave up: %d attempts, %v", tries, err)
	}
}

// The address that packets leave from is looked up, and none is sent: to this host
// it is the one that is asked for.
func TestLocalToward(t *testing.T) {
	for _, port := range []uint16{0, 7400} {
		to := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
		if got, err := localToward(t.Context(), to); err != nil || got != to.Addr() {
			t.Errorf("toward %v from %v, %v", to, got, err)
		}
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
	// A peer that is not ours names any number. We never send more READs than it
	// serves, and serve as many as it sends, as far as it was told that we do.
	for theirIRD := range 256 {
		for theirORD := range 256 {
			ird, ord := agreed(16, 8, theirIRD, theirORD)
			for _, n := range []int{ird, ord} {
				if n != powerOfTwo(n) {
					t.Fatalf("a peer with %d and %d: %d is no power of two", theirIRD, theirORD, n)
				}
			}
			if ird > 16 || ird < min(16, theirORD) || ord > min(8, theirIRD) || 2*ord <= min(8, theirIRD) && theirIRD > 0 {
				t.Fatalf("a peer with %d and %d: %d and %d", theirIRD, theirORD, ird, ord)
			}
		}
	}
	for _, c := range []struct {
		iwarp              bool
		theirIRD, theirORD uint8
		wantIRD, wantORD   int
	}{
		{false, 12, 12, 16, 8}, {false, 8, 4, 4, 8}, {false, 0, 0, 0, 0}, {false, 255, 255, 16, 8},
		{true, 0, 0, 16, 8}, {true, 3, 3, 4, 2},
	} {
		d.iwarp = c.iwarp
		ird, ord := d.agree(16, 8, &ibv.ConnParam{InitiatorDepth: c.theirIRD, ResponderResources: c.theirORD})
		if ird != c.wantIRD || ord != c.wantORD {
			t.Errorf("a peer with %d and %d (iWARP %v): %d and %d, want %d and %d", c.theirIRD, c.theirORD, c.iwarp, ird, ord, c.wantIRD, c.wantORD)
		}
	}
}
