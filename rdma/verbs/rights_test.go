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
	always  bool         // it grants READ to every peer
	sticky  bool         // what was granted stays
	refusal ibv.WCStatus // how a READ without the right ends
	cannot  string       // which step fails: connect, allow, read, close
	pairNum int          // of which pair, 1 or 2: connect and close; 0: of each

	made int // pairs that were asked for
	open int // pairs that were not closed
}

type driverPair struct {
	*driver
	num     int
	granted bool
}

func (d *driver) pair(a ibv.Access) (probePair, error) {
	d.made++
	if d.fails("connect", d.made) {
		return nil, errors.New("no loopback")
	}
	d.open++
	return &driverPair{driver: d, num: d.made, granted: d.always || a&ibv.AccessRemoteRead != 0}, nil
}

func (d *driver) fails(step string, num int) bool {
	return d.cannot == step && (d.pairNum == 0 || d.pairNum == num)
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
	if p.fails("close", p.num) {
		return errClosing
	}
	return nil
}

var errClosing = errors.New("the queue pair is busy")

// Faults of drivers are found, and a property that cannot be found out counts as
// wrong.
func TestRightsProbe(t *testing.T) {
	const both = rdma.CapAccessIgnored | rdma.CapNoRevoke
	for _, c := range []struct {
		name string
		driver
		caps rdma.Caps
		says string
		err  error
	}{
		{"mlx5", driver{refusal: ibv.StatusRemAccessErr}, 0, "refused before and after", nil},
		{"rxe", driver{refusal: ibv.StatusRemInvReqErr}, 0, "refused before and after", nil},
		{"bnxt_re before Linux 6.13", driver{always: true}, both, "READ without the right", nil},
		{"irdma, right granted once", driver{sticky: true, refusal: ibv.StatusRemAccessErr}, rdma.CapNoRevoke, "after the right to was revoked", nil},
		{"no loopback", driver{cannot: "connect"}, both, "could not be probed", nil},
		{"no way to change rights", driver{cannot: "allow", refusal: ibv.StatusRemAccessErr}, both, "could not be probed", nil},
		{"no completion", driver{cannot: "read"}, both, "could not be probed", nil},
		{"packets are lost", driver{refusal: ibv.StatusRetryExcErr}, both, "could not be probed", nil},
		// A pair that was refused once proves half of it only.
		{"the second pair does not connect", driver{cannot: "connect", pairNum: 2, refusal: ibv.StatusRemAccessErr}, both, "could not be probed: connecting it to itself", nil},
		{"the first pair does not close", driver{cannot: "close", pairNum: 1, refusal: ibv.StatusRemAccessErr}, both, "the queue pair is busy", nil},
		{"nor after a READ without the right", driver{cannot: "close", pairNum: 1, always: true}, both, "the queue pair is busy", nil},
		// What does not close keeps the device from being closed: it cannot be opened.
		{"the second pair does not close", driver{cannot: "close", pairNum: 2, refusal: ibv.StatusRemAccessErr}, 0, "refused before and after", errClosing},
		{"nor one whose right stays", driver{cannot: "close", pairNum: 2, sticky: true, refusal: ibv.StatusRemAccessErr}, rdma.CapNoRevoke, "after the right to was revoked", errClosing},
	} {
		f, err := judgeRights(c.pair)
		if !errors.Is(err, c.err) || f.caps() != c.caps || !strings.Contains(f.why, c.says) {
			t.Errorf("%s: %#x because %q, %v; want %#x because %q", c.name, f.caps(), f.why, err, c.caps, c.says)
		}
		if c.open != 0 {
			t.Errorf("%s: %d pairs are left open", c.name, c.open)
		}
	}
}
