// Package rdmatest is the conformance suite of package rdma: it tests what a
// fabric must do. A fabric calls Run from a test of its own, once for each kind
// of memory:
//
//	func TestConformance(t *testing.T) {
//		rdmatest.Run(t, rdmatest.Config{New: newFabric, Memory: mem.Heap, Child: "TestChild"})
//	}
//
//	// TestChild is the second process of the suite. By itself it does nothing.
//	func TestChild(t *testing.T) { rdmatest.Child(t, rdmatest.Config{New: newFabric}) }
//
// There are two kinds because each finds another fault. The race detector
// watches the Go heap only, so with Heap it sees whether a software fabric and
// the program touch a buffer at the same time. With Mmap, a fabric that touches
// memory which it should have released meets pages that are gone, and the
// process ends at once.
//
// Fabrics differ by their standards, so outcomes are compared by error class
// (access, receiver not ready, flushed, peer gone, deadline), never by status
// number. An ability that a device lacks is not skipped: the suite checks that
// the device answers ErrNotSupported.
//
// # How to read it
//
// env.go and pair.go have the two ends that every test connects, and books.go
// the books they keep: whatever a test is about, each work request posted must
// complete exactly as often as the rules say, or the test fails when its ends
// close. Then come device.go, ops.go and requests.go (what works), faults.go
// (what is refused), queues.go and buffers.go (receives, flushes, limits, which
// end owns a buffer), sinks.go (prepared READs), teardown.go, connect.go and dial.go, cq.go, crash.go (a
// second process that is killed), load.go and scale.go. bench.go measures.
// tee.go and tshark.go let an independent dissector judge a fabric over TCP.
//
// Outcomes are deterministic. Nothing sleeps to let something happen; waits end
// with an event, and only a broken fabric meets their deadline (patience).
package rdmatest

import (
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"go.uber.org/goleak"
)

// Config says what to test.
type Config struct {
	// New makes a fabric. Each end of a test gets one of its own, as if it
	// were another machine.
	New func(t testing.TB) rdma.Fabric
	// NewImpatient makes one whose connection set-up deadline is short (well
	// below a second), for the tests that wait for it; nil means New.
	NewImpatient func(t testing.TB) rdma.Fabric
	// Device is the name for Fabric.Open; empty lets the fabric choose.
	Device string
	// Listen is the address to listen on; empty means 127.0.0.1:0.
	Listen string
	// Memory is the kind that buffers come from.
	Memory mem.Kind
	// Shared puts the memory into memfds, for a fabric that lets peers map them.
	Shared bool
	// Child names the test function that calls Child in this test binary.
	Child string
	// OneProcess says that the fabric does not reach beyond this process; how
	// the survivor of two processes fares is left to tests of its own.
	OneProcess bool
	// Connections is how many the many-connections test opens; 0 means 1000, or 100 with -short.
	Connections int
	// Hardware says that a device, not this process, does the work. Then a QP
	// that died learns of it from its completions once they are polled; a
	// completion does not tell whether its message was solicited; and sends and
	// receives that break a rule may have the status that the peer names.
	Hardware bool
	// Want are capabilities that must be there: a fabric that loses one is
	// caught, although the suite would do without it.
	Want rdma.Caps
}

// patience bounds every wait. It is generous: a healthy fabric on a busy
// machine never comes near it, so a test fails by it only if something is lost.
const patience = 30 * time.Second

func (c *Config) defaults() {
	if c.NewImpatient == nil {
		c.NewImpatient = c.New
	}
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	if c.Connections == 0 {
		c.Connections = 1000
		if testing.Short() {
			c.Connections = 100
		}
	}
}

// rounds is how often a check repeats what can end in more than one way. With -short, which
// is for the race detector and for emulated machines, it does a quarter.
func (c *Config) rounds(full int) int {
	if testing.Short() {
		return full / 4
	}
	return full
}

// A check is one test of the suite.
type check struct {
	name string
	run  func(t *testing.T, cfg *Config)
}

// Run runs the whole suite.
func Run(t *testing.T, cfg Config) {
	cfg.defaults()
	if cfg.New == nil || cfg.Child == "" && !cfg.OneProcess {
		t.Fatal("rdmatest: Config.New and Config.Child are required")
	}
	before := goleak.IgnoreCurrent()
	groups := []struct {
		name   string
		checks []check
	}{
		{"device", deviceChecks()},
		{"ops", opChecks()},
		{"faults", faultChecks()},
		{"queues", queueChecks()},
		{"teardown", teardownChecks()},
		{"connect", connectChecks()},
		{"cq", cqChecks()},
		{"sinks", sinkChecks()},
		{"crash", crashChecks()},
		{"load", loadChecks()},
	}
	for _, g := range groups {
		if g.name == "crash" && cfg.OneProcess {
			continue
		}
		t.Run(g.name, func(t *testing.T) {
			for _, c := range g.checks {
				t.Run(c.name, func(t *testing.T) { c.run(t, &cfg) })
			}
		})
	}
	eventually(t, "goroutines of the suite are gone", func() bool { return goleak.Find(before) == nil })
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}
