package verbs

import (
	"errors"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// A driver is what a kernel driver makes of the rights of a queue pair.
type driver struct {
	always  bool         // it grants READ to everybody
	sticky  bool         // what was granted stays
	refusal ibv.WCStatus // how a READ without the right ends
	cannot  string       // which step fails: connect, allow, read

	open int // pairs that were not closed
}

type driverPair struct {
	*driver
	granted bool
}

func (d *driver) pair(a ibv.Access) (fencePair, error) {
	if d.cannot == "connect" {
		return nil, errors.New("no loopback")
	}
	d.open++
	return &driverPair{driver: d, granted: d.always || a&ibv.AccessRemoteRead != 0}, nil
}

func (p *driverPair) allow(a ibv.Access) error {
	if p.cannot == "allow" {
		return errors.New("no such transition")
	}
	p.granted = p.always || p.sticky && p.granted || a&ibv.AccessRemoteRead != 0
	return nil
}

func (p *driverPair) read() (ibv.WCStatus, error) {
	switch {
	case p.cannot == "read":
		return 0, errors.New("no completion")
	case p.granted:
		return ibv.StatusSuccess, nil
	}
	return p.refusal, nil
}

func (p *driverPair) close() error {
	p.open--
	return nil
}

// What drivers do wrong is found, and what cannot be found out counts as wrong.
func TestFence(t *testing.T) {
	const both = rdma.CapAccessIgnored | rdma.CapNoRevoke
	for _, c := range []struct {
		name string
		driver
		caps rdma.Caps
		says string
	}{
		{"mlx5", driver{refusal: ibv.StatusRemAccessErr}, 0, "refused before and after"},
		{"rxe", driver{refusal: ibv.StatusRemInvReqErr}, 0, "refused before and after"},
		{"bnxt_re before Linux 6.13", driver{always: true}, both, "READ without the right"},
		{"irdma, right granted once", driver{sticky: true, refusal: ibv.StatusRemAccessErr}, rdma.CapNoRevoke, "after the right to was revoked"},
		{"no loopback", driver{cannot: "connect"}, both, "could not be probed"},
		{"no way to change rights", driver{cannot: "allow", refusal: ibv.StatusRemAccessErr}, both, "could not be probed"},
		{"no completion", driver{cannot: "read"}, both, "could not be probed"},
		{"packets are lost", driver{refusal: ibv.StatusRetryExcErr}, both, "could not be probed"},
	} {
		f, err := judgeFence(c.pair)
		if err != nil || f.caps() != c.caps || !strings.Contains(f.why, c.says) {
			t.Errorf("%s: %#x because %q, %v; want %#x because %q", c.name, f.caps(), f.why, err, c.caps, c.says)
		}
		if c.open != 0 {
			t.Errorf("%s: %d pairs are left open", c.name, c.open)
		}
	}
}
